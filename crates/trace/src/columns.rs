//! A block of events as columns: each field of all events together, as differences.
//!
//! # Guarantee
//! Decoding gives exactly the events that were encoded, and accepts nothing that encoding does not make; it never
//! panics and never allocates more than a small multiple of the bytes it was given.
//!
//! # Invariants
//! - C1 a block is read without any other block: all bases are zero at its start
//! - C2 encoder and decoder move the bases ([`Bases`]) by the same steps, in the same order
//! - C3 every column is used up by the block's last event
//!
//! Fields of one kind next to each other compress far better than whole events would: most columns are runs of equal
//! or nearly equal numbers. `FORMAT.md` beside this crate's manifest lists the columns.

use std::collections::HashMap;

use crate::call::Call;
use crate::event::{CallEnter, CallExit, CloneTask, Event, EventKind, Fault, Mapped, Side, SwitchReason, ThreadIndex};
use crate::header::{Header, Pace};
use crate::varint::{Cursor, Malformed, put, put_bytes, put_difference};

/// The events of a block are at most this many: what precedes a damaged block is all that can be read.
pub(crate) const BLOCK_EVENTS: usize = 4096;

/// The columns, in their order in the block.
#[derive(Clone, Copy)]
enum Column {
    Kinds,
    Threads,
    Times,
    OffCpu,
    Pages,
    Offsets,
    Ips,
    NewIps,
    ErrorCodes,
    Calls,
    Arguments,
    Results,
    Tasks,
    Mappings,
}

const COLUMNS: usize = Column::Mappings as usize + 1;
const PAGE_BITS: u32 = 12;

/// In the column of instructions: one not met before in this block.
const NEW_IP: u64 = 0;
/// In the column of instructions: the faulting address itself, as when code is fetched.
const IP_IS_ADDRESS: u64 = 1;
/// In the column of instructions: this much more than the place of one that was met before.
const KNOWN_IP: u64 = 2;

/// How a trace tells time; inside a block all times are in its unit.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Clock {
    pace: Pace,
    unit_ns: u64,
}

impl Clock {
    /// Returns the clock of the trace with this header.
    pub(crate) fn new(header: &Header) -> Self {
        Self { pace: header.pace, unit_ns: header.time_unit_ns() }
    }

    fn to_ns(self, time: u64) -> Result<u64, Malformed> {
        time.checked_mul(self.unit_ns).ok_or(Malformed)
    }
}

/// Where differences start from.
#[derive(Default)]
struct Bases {
    time: u64,
    ip: u64,
    ips: Instructions,
    mapping: u64,
    threads: HashMap<ThreadIndex, ThreadBase>,
    calls: HashMap<(ThreadIndex, Call), CallBase>,
}

/// The instructions of a block's faults, each once: few instructions take most faults.
#[derive(Default)]
struct Instructions {
    list: Vec<u64>,
    places: HashMap<u64, u64>,
}

impl Instructions {
    fn add(&mut self, ip: u64) {
        self.places.insert(ip, self.list.len() as u64);
        self.list.push(ip);
    }

    fn at(&self, place: u64) -> Result<u64, Malformed> {
        usize::try_from(place).ok().and_then(|place| self.list.get(place)).copied().ok_or(Malformed)
    }
}

#[derive(Default)]
struct ThreadBase {
    time: u64,
    page: u64,
}

#[derive(Default)]
struct CallBase {
    args: [u64; 6],
    result: u64,
}

impl Bases {
    /// Returns how long the thread was off its CPU since its last event, and moves its base to `time`.
    fn off_cpu(&mut self, thread: ThreadIndex, time: u64, on_cpu: u64) -> u64 {
        let base = self.threads.entry(thread).or_default();
        let elapsed = time.wrapping_sub(base.time);
        base.time = time;
        elapsed.wrapping_sub(on_cpu)
    }
}

/// Gathers events into columns.
pub(crate) struct BlockEncoder {
    clock: Clock,
    columns: [Vec<u8>; COLUMNS],
    bases: Bases,
    count: usize,
}

impl BlockEncoder {
    /// Returns an empty block of a trace with such times.
    pub(crate) fn new(clock: Clock) -> Self {
        Self { clock, columns: Default::default(), bases: Bases::default(), count: 0 }
    }

    /// Returns how many events were pushed.
    pub(crate) fn count(&self) -> usize {
        self.count
    }

    /// Appends one event; the caller keeps [`count`](Self::count) within [`BLOCK_EVENTS`].
    pub(crate) fn push(&mut self, event: &Event) {
        self.count += 1;
        self.columns[Column::Kinds as usize].push(kind_code(&event.kind));
        self.int(Column::Threads, u64::from(event.thread));
        let time = event.time_ns / self.clock.unit_ns;
        self.int(Column::Times, time.wrapping_sub(self.bases.time));
        self.bases.time = time;
        if self.clock.pace == Pace::Stored {
            let off_cpu = self.bases.off_cpu(event.thread, time, event.on_cpu_ns / self.clock.unit_ns);
            self.difference(Column::OffCpu, 0, off_cpu);
        }
        self.push_kind(event.thread, &event.kind);
    }

    /// Returns the block's bytes and starts the next one.
    pub(crate) fn take(&mut self) -> Vec<u8> {
        let mut out = Vec::new();
        put(&mut out, self.count as u64);
        self.columns.iter().for_each(|column| put_bytes(&mut out, column));
        *self = Self::new(self.clock);
        out
    }

    fn push_kind(&mut self, thread: ThreadIndex, kind: &EventKind) {
        match kind {
            EventKind::Fault(fault) => self.push_fault(thread, fault),
            EventKind::CallEnter(enter) => self.push_enter(thread, enter),
            EventKind::CallExit(exit) => self.push_exit(thread, exit),
            EventKind::Mapped(mapped) => self.push_mapped(mapped),
            EventKind::Clone(clone) => {
                self.int(Column::Tasks, u64::from(clone.child));
                self.int(Column::Tasks, clone.flags);
            }
            EventKind::Wake { woken } => self.int(Column::Tasks, u64::from(*woken)),
            EventKind::Exec | EventKind::Exit | EventKind::SwitchOut(_) | EventKind::SwitchIn => {}
        }
    }

    fn push_fault(&mut self, thread: ThreadIndex, fault: &Fault) {
        let page = fault.address >> PAGE_BITS;
        let base = std::mem::replace(&mut self.bases.threads.entry(thread).or_default().page, page);
        self.difference(Column::Pages, base, page);
        self.int(Column::Offsets, fault.address & ((1 << PAGE_BITS) - 1));
        self.push_ip(fault);
        self.int(Column::ErrorCodes, u64::from(fault.error_code));
    }

    fn push_ip(&mut self, fault: &Fault) {
        if fault.ip == fault.address {
            self.int(Column::Ips, IP_IS_ADDRESS);
        } else if let Some(&place) = self.bases.ips.places.get(&fault.ip) {
            self.int(Column::Ips, KNOWN_IP + place);
        } else {
            self.int(Column::Ips, NEW_IP);
            self.difference(Column::NewIps, self.bases.ip, fault.ip);
            self.bases.ips.add(fault.ip);
        }
        self.bases.ip = fault.ip;
    }

    fn push_enter(&mut self, thread: ThreadIndex, enter: &CallEnter) {
        self.columns[Column::Calls as usize].push(enter.call.code());
        let base = self.bases.calls.entry((thread, enter.call)).or_default();
        for (base, &arg) in base.args.iter_mut().zip(&enter.args).take(enter.call.arity()) {
            put_difference(&mut self.columns[Column::Arguments as usize], *base, arg);
            *base = arg;
        }
    }

    fn push_exit(&mut self, thread: ThreadIndex, exit: &CallExit) {
        self.columns[Column::Calls as usize].push(exit.call.code());
        let base = self.bases.calls.entry((thread, exit.call)).or_default();
        put_difference(&mut self.columns[Column::Results as usize], base.result, exit.result as u64);
        base.result = exit.result as u64;
    }

    fn push_mapped(&mut self, mapped: &Mapped) {
        self.difference(Column::Mappings, self.bases.mapping, mapped.start);
        self.bases.mapping = mapped.start.wrapping_add(mapped.len_bytes);
        self.int(Column::Mappings, mapped.len_bytes);
        self.int(Column::Mappings, mapped.file_offset);
        self.int(Column::Mappings, u64::from(mapped.prot));
        self.int(Column::Mappings, u64::from(mapped.flags));
        self.int(Column::Mappings, mapped.file.map_or(0, |file| u64::from(file) + 1));
    }

    fn int(&mut self, column: Column, value: u64) {
        put(&mut self.columns[column as usize], value);
    }

    fn difference(&mut self, column: Column, base: u64, value: u64) {
        put_difference(&mut self.columns[column as usize], base, value);
    }
}

/// Reads a block of events back.
pub(crate) fn decode_block(bytes: &[u8], clock: Clock) -> Result<Vec<Event>, Malformed> {
    let mut input = Cursor::new(bytes);
    let count = input.int()?;
    if count > BLOCK_EVENTS as u64 {
        return Err(Malformed);
    }
    let mut decoder = BlockDecoder::new(&mut input, clock)?;
    input.end()?;
    let events = (0..count).map(|_| decoder.next()).collect::<Result<_, _>>()?;
    decoder.end()?;
    Ok(events)
}

struct BlockDecoder<'a> {
    clock: Clock,
    columns: [Cursor<'a>; COLUMNS],
    bases: Bases,
}

impl<'a> BlockDecoder<'a> {
    fn new(input: &mut Cursor<'a>, clock: Clock) -> Result<Self, Malformed> {
        let mut columns = [const { Cursor::EMPTY }; COLUMNS];
        for column in &mut columns {
            *column = Cursor::new(input.bytes()?);
        }
        Ok(Self { clock, columns, bases: Bases::default() })
    }

    fn next(&mut self) -> Result<Event, Malformed> {
        let code = self.column(Column::Kinds).byte()?;
        let thread = self.column(Column::Threads).int32()?;
        let time = self.bases.time.wrapping_add(self.column(Column::Times).int()?);
        self.bases.time = time;
        let time_ns = self.clock.to_ns(time)?;
        let on_cpu = self.on_cpu(thread, time)?;
        let on_cpu_ns = self.clock.to_ns(on_cpu)?;
        Ok(Event { thread, time_ns, on_cpu_ns, kind: self.kind(thread, code)? })
    }

    /// Off-CPU and on-CPU time add up to the elapsed time, so the same step computes either from the other (C2).
    fn on_cpu(&mut self, thread: ThreadIndex, time: u64) -> Result<u64, Malformed> {
        match self.clock.pace {
            Pace::Absent => Ok(0),
            Pace::Stored => {
                let off_cpu = self.column(Column::OffCpu).difference(0)?;
                Ok(self.bases.off_cpu(thread, time, off_cpu))
            }
        }
    }

    fn kind(&mut self, thread: ThreadIndex, code: u8) -> Result<EventKind, Malformed> {
        Ok(match code {
            0 => EventKind::Fault(self.fault(thread, Side::User)?),
            1 => EventKind::Fault(self.fault(thread, Side::Kernel)?),
            2 => EventKind::CallEnter(self.enter(thread)?),
            3 => EventKind::CallExit(self.exit(thread)?),
            4 => EventKind::Mapped(self.mapped()?),
            5 => EventKind::Clone(CloneTask {
                child: self.column(Column::Tasks).int32()?,
                flags: self.column(Column::Tasks).int()?,
            }),
            6 => EventKind::Exec,
            7 => EventKind::Exit,
            8 => EventKind::SwitchOut(SwitchReason::Blocked),
            9 => EventKind::SwitchOut(SwitchReason::Preempted),
            10 => EventKind::SwitchIn,
            11 => EventKind::Wake { woken: self.column(Column::Tasks).int32()? },
            _ => return Err(Malformed),
        })
    }

    fn fault(&mut self, thread: ThreadIndex, side: Side) -> Result<Fault, Malformed> {
        let base = self.bases.threads.entry(thread).or_default().page;
        let page = self.column(Column::Pages).difference(base)?;
        let offset = self.column(Column::Offsets).int()?;
        if page >> (64 - PAGE_BITS) != 0 || offset >> PAGE_BITS != 0 {
            return Err(Malformed);
        }
        self.bases.threads.entry(thread).or_default().page = page;
        let address = page << PAGE_BITS | offset;
        let ip = self.ip(address)?;
        let error_code = self.column(Column::ErrorCodes).int32()?;
        Ok(Fault { address, ip, error_code, side })
    }

    fn ip(&mut self, address: u64) -> Result<u64, Malformed> {
        let base = self.bases.ip;
        let ip = match self.column(Column::Ips).int()? {
            NEW_IP => {
                let ip = self.column(Column::NewIps).difference(base)?;
                self.bases.ips.add(ip);
                ip
            }
            IP_IS_ADDRESS => address,
            known => self.bases.ips.at(known - KNOWN_IP)?,
        };
        self.bases.ip = ip;
        Ok(ip)
    }

    fn call(&mut self) -> Result<Call, Malformed> {
        Call::from_code(self.column(Column::Calls).byte()?).ok_or(Malformed)
    }

    fn enter(&mut self, thread: ThreadIndex) -> Result<CallEnter, Malformed> {
        let call = self.call()?;
        let base = self.bases.calls.entry((thread, call)).or_default();
        for arg in base.args.iter_mut().take(call.arity()) {
            *arg = self.columns[Column::Arguments as usize].difference(*arg)?;
        }
        Ok(CallEnter { call, args: base.args })
    }

    fn exit(&mut self, thread: ThreadIndex) -> Result<CallExit, Malformed> {
        let call = self.call()?;
        let base = self.bases.calls.entry((thread, call)).or_default();
        base.result = self.columns[Column::Results as usize].difference(base.result)?;
        Ok(CallExit { call, result: base.result as i64 })
    }

    fn mapped(&mut self) -> Result<Mapped, Malformed> {
        let base = self.bases.mapping;
        let column = self.column(Column::Mappings);
        let mapped = Mapped {
            start: column.difference(base)?,
            len_bytes: column.int()?,
            file_offset: column.int()?,
            prot: column.int32()?,
            flags: column.int32()?,
            file: match column.int()? {
                0 => None,
                file => Some(u32::try_from(file - 1).map_err(|_| Malformed)?),
            },
        };
        self.bases.mapping = mapped.start.wrapping_add(mapped.len_bytes);
        Ok(mapped)
    }

    fn column(&mut self, column: Column) -> &mut Cursor<'a> {
        &mut self.columns[column as usize]
    }

    /// Confirms C3.
    fn end(&self) -> Result<(), Malformed> {
        self.columns.iter().try_for_each(Cursor::end)
    }
}

fn kind_code(kind: &EventKind) -> u8 {
    match kind {
        EventKind::Fault(Fault { side: Side::User, .. }) => 0,
        EventKind::Fault(Fault { side: Side::Kernel, .. }) => 1,
        EventKind::CallEnter(_) => 2,
        EventKind::CallExit(_) => 3,
        EventKind::Mapped(_) => 4,
        EventKind::Clone(_) => 5,
        EventKind::Exec => 6,
        EventKind::Exit => 7,
        EventKind::SwitchOut(SwitchReason::Blocked) => 8,
        EventKind::SwitchOut(SwitchReason::Preempted) => 9,
        EventKind::SwitchIn => 10,
        EventKind::Wake { .. } => 11,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const CLOCK: Clock = Clock { pace: Pace::Stored, unit_ns: 1 };

    fn block(nr_events: u64) -> Vec<u8> {
        let mut encoder = BlockEncoder::new(CLOCK);
        let enter = |place| CallEnter { call: Call::Mmap, args: [place, 4096, 3, 0x22, u64::MAX, 0] };
        for place in 0..nr_events {
            let kind = match place % 4 {
                0 => EventKind::Fault(Fault { address: place << 13, ip: 77 * place, error_code: 6, side: Side::User }),
                1 => EventKind::CallEnter(enter(place)),
                2 => EventKind::CallExit(CallExit { call: Call::Mmap, result: -12 }),
                _ => EventKind::Wake { woken: 3 },
            };
            encoder.push(&Event { thread: place as u32 % 3, time_ns: 900 * place, on_cpu_ns: 7 * place, kind });
        }
        encoder.take()
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 2000, failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn changed_blocks_are_refused_or_decoded_but_never_panic(
            changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..6),
        ) {
            let mut bytes = block(40);
            for (place, byte) in changes {
                let place = place.index(bytes.len());
                bytes[place] = byte;
            }
            if let Ok(events) = decode_block(&bytes, CLOCK) {
                prop_assert!(events.len() <= bytes.len());
            }
        }

        #[test]
        fn arbitrary_bytes_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let _ = decode_block(&bytes, CLOCK);
        }
    }

    #[test]
    fn every_cut_block_is_refused() {
        let bytes = block(40);
        assert_eq!(decode_block(&bytes, CLOCK).map(|events| events.len()), Ok(40));
        for len in 0..bytes.len() {
            assert_eq!(decode_block(&bytes[..len], CLOCK), Err(Malformed), "cut at {len}");
        }
    }

    #[test]
    fn a_count_beyond_the_limit_is_refused() {
        assert_eq!(decode_block(&block(BLOCK_EVENTS as u64 + 1), CLOCK), Err(Malformed));
    }
}
