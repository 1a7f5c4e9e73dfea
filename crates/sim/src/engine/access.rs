//! What an access costs: hits, transfers in two phases, stores on their way.
//!
//! # Protocol
//! ```text
//! turn      wait until no other clock is lower (not on lines that nobody else has touched)
//! hit       the CPU has the line as it needs it: done
//! miss      phase 1, at t:      reserve: start = max(t, busy_until), end = start + distance, busy_until = end
//!           phase 2, at `end`:  take the line; only now is the value read or changed
//! ```
//! From `start` + the hold share of the transfer on, the line is on its way: the last owner's accesses miss, and queue
//! up behind it. A plain store that misses does not wait: the line is taken at once, whoever wants it next comes after
//! `end`, and so does this CPU's next fence or read-modify-write.
//!
//! A read of a line that its owner has written takes it over whole where the machine is migratory; a line that was
//! read in this way and not written since is shared with the next reader.

use super::lines::{LineId, MANY, NEVER, NOBODY};
use super::pending::{Asked, Kind, Pending, Stage};
use super::record::NO_CPU;
use super::state::{Borrowed, ENDED_AT, ENGINE, Engine, RUN_AHEAD, step, with};
use super::suspend::suspend;
use faultless_platform::{KernelEntry, TouchKind};

const LINE_BYTES: usize = 64;
const WORD_BYTES: usize = 8;

/// How far an access got at once.
enum Begun {
    /// It is done.
    Done,
    /// It must wait for its turn.
    Turn(LineId),
}

/// What a turn brought.
enum Served {
    Done,
    /// It arrives now, if the clock is as low as that.
    Arriving(Asked),
}

/// Charges an access of the running thread and waits until it takes place; what follows at once happens at that time.
#[inline(always)]
pub(crate) fn access(address: usize, kind: Kind) {
    let engine = ENGINE.get();
    if engine.is_null() {
        return;
    }
    // SAFETY: as in `with`; the borrow ends before anything is suspended (E1).
    if let Begun::Turn(line) = unsafe { (*engine).begin(address, kind) } {
        access_in_turn(line, address, kind);
    }
}

#[inline(never)]
fn access_in_turn(line: LineId, address: usize, kind: Kind) {
    let access = Pending { line, address, kind, stage: Stage::Serve };
    if !step(|engine| engine.access_when_early(access)) {
        // The scheduler makes the access meanwhile.
        suspend();
    }
}

/// Charges a fence that waits for the stores before it.
// ORDER: none: one OS thread runs all CPUs.
pub(crate) fn fence() {
    with(|engine| {
        if engine.cpu != NO_CPU {
            engine.clock += engine.costs.fence;
            engine.drain();
        }
    });
}

/// Charges accesses of plain memory, and the instructions that fill what is written.
pub(crate) fn touch(address: usize, len_bytes: usize, kind: TouchKind) {
    let kind = if kind == TouchKind::Write { Kind::Store } else { Kind::Load };
    let lines = address / LINE_BYTES..=(address + len_bytes.max(1) - 1) / LINE_BYTES;
    if kind == Kind::Store {
        let nr_lines = lines.clone().count() as u64;
        with(|engine| engine.clock += nr_lines * engine.costs.fill_line * engine.pace / 1024);
    }
    lines.for_each(|line| access(line * LINE_BYTES, kind));
}

/// Returns the virtual time in ns.
pub(crate) fn read_clock() -> u64 {
    with(|engine| {
        if engine.cpu != NO_CPU {
            engine.clock += engine.costs.clock;
        }
    });
    look_at_clock()
}

/// Returns the time, for nothing: nobody on the machine looks.
pub(crate) fn look_at_clock() -> u64 {
    with(|engine| engine.clock / 1000).unwrap_or(ENDED_AT.get())
}

/// Charges what the machine takes to enter the kernel and to leave it again.
pub(crate) fn enter_kernel(entry: KernelEntry) {
    with(|engine| {
        engine.clock += match entry {
            KernelEntry::Exception => engine.costs.exception,
            KernelEntry::Call => engine.costs.call,
        }
    });
}

impl Engine {
    #[inline(always)]
    fn begin(&mut self, address: usize, kind: Kind) -> Begun {
        if self.cpu == NO_CPU {
            return Begun::Done;
        }
        self.figures.accesses += 1;
        let cost = match kind {
            Kind::Load => self.costs.load,
            Kind::Store => self.costs.store,
            Kind::FencedStore | Kind::ReadModifyWrite => self.costs.rmw,
        };
        self.clock += (cost + self.instructions_before(address)) * self.pace / 1024;
        let line = self.lines.find(address);
        let line = line.unwrap_or_else(|| self.first_touch(address));
        let is_own = self.lines.get(line).user == self.cpu;
        if is_own && self.clock <= self.horizon.saturating_add(RUN_AHEAD) && !self.is_recording {
            self.finish_own(line, kind);
            return Begun::Done;
        }
        Begun::Turn(line)
    }

    /// Says whether a read finds the line here.
    #[inline]
    fn has_copy(&self, id: LineId) -> bool {
        match self.lines.get(id).owner {
            NOBODY => self.lines.is_sharer(id, self.cpu),
            owner => owner == self.cpu,
        }
    }

    /// Says what the instructions before an access take: nothing for the next word, as in a loop that copies.
    #[inline(always)]
    fn instructions_before(&mut self, address: usize) -> u64 {
        let last = std::mem::replace(&mut self.last_word, address);
        if address == last.wrapping_add(WORD_BYTES) { 0 } else { self.costs.between }
    }

    /// An access of a line that nobody else has touched: always a hit.
    #[inline(always)]
    fn finish_own(&mut self, line: LineId, kind: Kind) {
        if kind.is_write() {
            let line = self.lines.get_mut(line);
            line.version = line.version.wrapping_add(1);
            line.set_written(true);
        }
        if matches!(kind, Kind::FencedStore | Kind::ReadModifyWrite) {
            self.drain();
        }
    }

    #[cold]
    fn first_touch(&mut self, address: usize) -> LineId {
        let _borrowed = Borrowed::new();
        let home = self.places.home_of(address).unwrap_or(self.cpu);
        let line = self.lines.add(address, self.cpu, home);
        if self.lines.get(line).owner == NOBODY {
            self.fetch_from_memory(line);
        }
        line
    }

    /// Pays for a line that no cache has.
    fn fetch_from_memory(&mut self, line: LineId) {
        let level = if self.costs.is_interleaved {
            let socket = self.lines.number(line) as usize / 64 % self.topology.nr_sockets;
            self.topology.level_to_socket(usize::from(self.cpu), socket)
        } else {
            let home = self.lines.get(line).home();
            self.topology.level(usize::from(self.cpu), usize::from(home))
        };
        self.clock += self.random.about(self.costs.memory[level]);
        let cpu = self.cpu;
        let line = self.lines.get_mut(line);
        (line.owner, line.user) = (cpu, cpu);
        line.set_written(false);
        self.figures.fetches += 1;
    }

    /// Waits for the stores on their way.
    #[inline(always)]
    fn drain(&mut self) {
        let drained_at = self.here().drained_at;
        if drained_at > self.clock {
            self.count_drain(drained_at - self.clock);
            self.clock = drained_at;
        }
    }

    /// Makes an access as far as the running thread's clock is the lowest; says whether that was all of it. The rest is
    /// the scheduler's, when the thread's turn comes.
    fn access_when_early(&mut self, access: Pending) -> bool {
        if self.is_too_early() {
            self.thread().pending = Some(access);
            return false;
        }
        self.access_now(access)
    }

    /// Makes an access whose turn has come; as [`Engine::access_when_early`].
    pub(super) fn access_now(&mut self, access: Pending) -> bool {
        let Pending { line, address, kind, stage } = access;
        match stage {
            Stage::Serve => {
                if let Served::Arriving(asked) = self.serve(line, address, kind) {
                    return self.access_when_early(Pending { stage: Stage::Take(asked), ..access });
                }
            }
            Stage::Take(asked) => self.take(line, asked),
        }
        self.conclude(line, kind);
        true
    }

    fn serve(&mut self, id: LineId, address: usize, kind: Kind) -> Served {
        let cpu = self.cpu;
        if matches!(kind, Kind::FencedStore | Kind::ReadModifyWrite) {
            self.drain();
        }
        let line = self.lines.get_mut(id);
        if line.user != cpu {
            line.user = MANY;
        }
        let may_write = line.owner == cpu && self.clock < self.lines.leaves_at(id);
        if may_write || (!kind.is_write() && self.has_copy(id)) {
            return Served::Done;
        }
        self.figures.transfers += 1;
        let since = self.clock;
        let served = match kind {
            Kind::Load => Served::Arriving(self.ask_to_read(id)),
            Kind::Store => {
                let end = self.reserve(id, kind);
                let here = self.here();
                if end > here.drained_at {
                    (here.drained_at, here.drained_line) = (end, Some((id, address)));
                }
                self.take(id, Asked::Whole);
                Served::Done
            }
            Kind::FencedStore | Kind::ReadModifyWrite => {
                self.clock = self.reserve(id, kind);
                Served::Arriving(Asked::Whole)
            }
        };
        self.count_transfer(id, address, kind, since);
        served
    }

    /// Reserves a read: of the whole line if it migrates, else of a copy, for which others need not wait long.
    fn ask_to_read(&mut self, id: LineId) -> Asked {
        let line = self.lines.get(id);
        if self.costs.is_migratory && line.owner != NOBODY && line.is_written() {
            self.clock = self.reserve(id, Kind::Load);
            return Asked::Whole;
        }
        let level = self.level_of_source(id);
        let latency = self.random.about(self.costs.read[level]);
        let occupancy = self.costs.read_occupancy.min(latency);
        let start = self.clock.max(self.lines.busy_until(id));
        self.lines.set_busy_until(id, start + occupancy);
        let leaves_at = self.lines.leaves_at(id).min(start + latency);
        self.lines.set_leaves_at(id, leaves_at);
        let owner = self.lines.get(id).owner;
        self.clock = start + latency;
        Asked::CopyOf(owner)
    }

    /// Reserves the whole line; returns when it arrives.
    fn reserve(&mut self, id: LineId, kind: Kind) -> u64 {
        let latency = self.latency_of_taking(id, kind);
        let (cpu, clock) = (self.cpu, self.clock);
        let hold = latency * self.costs.hold_share / 1024;
        let (busy_until, before) = (self.lines.busy_until(id), self.lines.tail(id));
        let start = clock.max(busy_until);
        let is_queued = busy_until > clock && before != NOBODY && before != self.lines.get(id).owner;
        if is_queued {
            self.cpus[usize::from(before)].next_leaves_at = start + hold;
        } else {
            self.lines.set_leaves_at(id, start + hold);
        }
        self.lines.set_tail(id, cpu);
        self.lines.set_busy_until(id, start + latency);
        self.here().next_leaves_at = NEVER;
        start + latency
    }

    /// Says how far the data is: with the last that asked for the line, its owner, or the nearest sharer.
    fn level_of_source(&self, id: LineId) -> usize {
        let cpu = usize::from(self.cpu);
        let tail = self.lines.tail(id);
        if self.lines.busy_until(id) > self.clock && tail != NOBODY {
            return self.topology.level(cpu, usize::from(tail));
        }
        match self.lines.get(id).owner {
            NOBODY => self.topology.nearest(cpu, self.lines.sharers(id)).unwrap_or(2),
            owner => self.topology.level(cpu, usize::from(owner)),
        }
    }

    fn latency_of_taking(&mut self, id: LineId, kind: Kind) -> u64 {
        let cpu = usize::from(self.cpu);
        let table = if kind.is_write() { &self.costs.write } else { &self.costs.read };
        let source = table[self.level_of_source(id)];
        let mut latency = source;
        if self.lines.get(id).owner == NOBODY {
            let sharers = self.lines.sharers(id);
            let others = sharers.iter().map(|word| u64::from(word.count_ones())).sum::<u64>();
            let farthest = table[self.topology.farthest(cpu, sharers)];
            latency = source.max(farthest) + others * self.costs.invalidate_each;
        }
        self.random.about(latency)
    }

    /// What was asked for arrives.
    fn take(&mut self, id: LineId, asked: Asked) {
        let cpu = self.cpu;
        match (asked, self.lines.get(id).owner) {
            (Asked::Whole, _) => {
                self.lines.clear_sharers(id);
                let leaves_at = self.here().next_leaves_at;
                self.lines.set_leaves_at(id, leaves_at);
                let line = self.lines.get_mut(id);
                line.owner = cpu;
                line.set_written(false);
            }
            (Asked::CopyOf(_), NOBODY) => self.lines.add_sharer(id, cpu),
            (Asked::CopyOf(asked_of), owner) if asked_of == owner => {
                self.lines.add_sharer(id, owner);
                self.lines.add_sharer(id, cpu);
                self.lines.get_mut(id).owner = NOBODY;
                self.lines.set_leaves_at(id, NEVER);
            }
            // Somebody took the line for itself while the copy was on its way.
            (Asked::CopyOf(_), _) => {}
        }
    }

    /// The access takes place.
    fn conclude(&mut self, id: LineId, kind: Kind) {
        if kind.is_write() {
            let line = self.lines.get_mut(id);
            line.version = line.version.wrapping_add(1);
            line.set_written(true);
            if self.lines.is_watched(id) {
                self.wake_watchers(id);
            }
        } else if self.is_recording {
            let version = self.lines.get(id).version;
            self.thread().reads.push((id, version));
        }
    }
}
