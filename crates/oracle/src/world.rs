//! A sequence on the VM: the same operations, the same outcomes.
//!
//! # Guarantee
//! A run begins in an empty space, but for the inaccessible mappings that fill everything outside the zones on both
//! sides; when it is over nothing of it is left.

use std::mem::ManuallyDrop;

use crate::kernel::{
    AreaSeen, Behind, Bounds, Call, FILE_BYTES, FILE_CONTENT, File, HEAP_START, LOW_END, Op, Outcome, PAGE,
    REFERENCE_BYTE, Sequence, USER_END, WINDOW, WINDOW_BYTES, Zone, byte, digest,
};
use faultless_phys::{Failing, Kind, OutOfFrames};
use faultless_platform::{Platform, Usual};
use faultless_vm::design::Design;
use faultless_vm::{
    AreaFlags, AreaLine, Backing, CallError, Guest, Limits, MapRequest, ObjectHandle, ObjectSpec, Pattern, Placement,
    PlacementPolicy, Populate, Privileges, ReferenceHandle, SpaceRef, VirtAddr, Vm, WriteNotice, ZeroSource,
};

use super::abi::{self, CallResult};

/// Names of the objects, as [`ObjectSpec::identity`].
pub(super) mod identity {
    /// The file `rw`.
    pub(in super::super) const READ_WRITE: u64 = 1;
    /// The file `empty`.
    pub(in super::super) const EMPTY: u64 = 2;
    /// What stands beside the window.
    pub(in super::super) const GUARD: u64 = 4;
}

/// The conditions that the host has and the VM shall have.
#[derive(Clone, Copy, Debug)]
pub struct Conditions {
    /// vm.mmap_min_addr.
    pub mmap_min_addr: u64,
    /// vm.max_map_count.
    pub max_map_count: u64,
    /// RLIMIT_MEMLOCK and RLIMIT_STACK unless a sequence sets them.
    pub usual: Bounds,
    /// Bytes of the empty process that count as data; RLIMIT_DATA counts from there.
    pub data_bytes: u64,
    /// All memory and swap.
    pub commit_bytes: u64,
    /// Whether what may only be fetched from gets a protection key.
    pub has_protection_keys: bool,
}

/// The files of a run: open file descriptions.
pub(super) struct Files<'vm, P: Platform<Embedding = Usual>> {
    read_write: ObjectHandle<'vm, P>,
    read_only: ObjectHandle<'vm, P>,
    write_only: ObjectHandle<'vm, P>,
    empty: ObjectHandle<'vm, P>,
    reference: ReferenceHandle<'vm, P>,
}

impl<'vm, P: Platform<Embedding = Usual>> Files<'vm, P> {
    fn new<D: Design<P>>(vm: &'vm Vm<P, D>) -> Result<Self, OutOfFrames> {
        let read_write = object(vm, identity::READ_WRITE, FILE_BYTES)?;
        let (read_only, write_only) = (read_write.reopen(), read_write.reopen());
        let reference = vm.create_repeated(Pattern::Byte(REFERENCE_BYTE))?;
        Ok(Self { read_write, read_only, write_only, empty: object(vm, identity::EMPTY, 0)?, reference })
    }

    /// Returns what stands behind a file that has memory.
    pub(super) fn get(&self, file: File) -> Option<&ObjectHandle<'vm, P>> {
        match file {
            File::ReadWrite => Some(&self.read_write),
            File::ReadOnly => Some(&self.read_only),
            File::WriteOnly => Some(&self.write_only),
            File::Empty => Some(&self.empty),
            File::None | File::Pipe | File::Closed | File::Reference => None,
        }
    }
}

impl<P: Platform<Embedding = Usual>> Files<'_, P> {
    /// Returns the file of the reference page.
    pub(super) fn reference(&self) -> faultless_abi::File<'_, P> {
        faultless_abi::File::reference(&self.reference)
    }
}

/// Whoever is told after an attempt that found no memory.
pub(super) type Told<'a> = &'a (dyn Fn() + Sync);

/// A process of a run: a space, and a thread in it.
pub(super) struct Process<'a, 'vm, P: Platform<Embedding = Usual>, D: Design<P>> {
    pub(super) vm: &'vm Vm<P, D>,
    pub(super) files: &'a Files<'vm, P>,
    pub(super) guest: Guest<'vm, P, D>,
    /// What is told after each attempt that an operation makes without enough memory; without it none does.
    pub(super) shortages: Option<Told<'a>>,
}

/// What could not be run on the VM at all.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unfit(pub String);

impl From<CallError> for Unfit {
    fn from(error: CallError) -> Self {
        Self(format!("the VM could not be made ready: {error}"))
    }
}

impl From<OutOfFrames> for Unfit {
    fn from(error: OutOfFrames) -> Self {
        Self(format!("the VM could not be made ready: {error}"))
    }
}

/// Runs a sequence in order, whatever threads its operations belong to; `watch` sees each outcome and may stop the run.
///
/// With `shortages`, each operation is tried with its first allocation failing, then with the second, and so on, until
/// it finds all the memory that it needs.
pub(super) fn run<P: Platform<Embedding = Usual>, D: Design<P>>(
    vm: &Vm<P, D>,
    sequence: &Sequence,
    conditions: &Conditions,
    shortages: Option<Told<'_>>,
    watch: &mut dyn FnMut(usize, &Outcome) -> bool,
) -> Result<(), Unfit> {
    let (files, space) = prepare(vm, sequence, conditions)?;
    // What is locked is populated as far as there is memory, which later calls show.
    let shortages = shortages.filter(|_| !sequence.ops.iter().any(locks));
    let process = Process { vm, files: &files, guest: Guest::new(&space), shortages };
    // A panic leaves them as they are: what it broke can't be taken apart.
    let (process, space) = (ManuallyDrop::new(process), ManuallyDrop::new(space));
    process.run(&sequence.ops, 0, watch);
    drop((ManuallyDrop::into_inner(process), ManuallyDrop::into_inner(space)));
    Ok(())
}

/// Says whether an operation locks memory.
fn locks(op: &Op) -> bool {
    let is_locked_map = op.call == Call::Mmap && op.args[3] & libc::MAP_LOCKED as u64 != 0;
    is_locked_map || matches!(op.call, Call::Mlock | Call::Mlock2 | Call::Mlockall)
}

/// Says whether an operation that finds no memory has done nothing, so that it can be made again.
fn is_all_or_nothing(op: &Op) -> bool {
    match op.call {
        Call::Mmap => op.args[3] & libc::MAP_POPULATE as u64 == 0,
        // Of several areas some may have moved; what is populated or filled stays.
        Call::Mremap => {
            let keeps_size = op.args[1].div_ceil(PAGE) == op.args[2].div_ceil(PAGE);
            op.args[3] & libc::MREMAP_FIXED as u64 == 0 || !keeps_size
        }
        Call::Madvise => !matches!(op.args[2] as i32, libc::MADV_POPULATE_READ | libc::MADV_POPULATE_WRITE),
        Call::Munmap | Call::Mprotect | Call::Brk | Call::Mseal | Call::Truncate => true,
        Call::Load | Call::Store | Call::Fetch => true,
        _ => false,
    }
}

/// Makes the files and the empty space of a run.
pub(super) fn prepare<'vm, P: Platform<Embedding = Usual>, D: Design<P>>(
    vm: &'vm Vm<P, D>,
    sequence: &Sequence,
    conditions: &Conditions,
) -> Result<(Files<'vm, P>, SpaceRef<'vm, P, D>), Unfit> {
    let files = Files::new(vm)?;
    if sequence.ops.iter().any(Op::names_file) {
        write_content(vm, &files.read_write)?;
    }
    let space = vm.create_space(limits(sequence, conditions))?;
    // Without a limit nobody counts data.
    fill_around(vm, &space, sequence.bounds.data.map_or(0, |_| conditions.data_bytes))?;
    space.set_heap_start(VirtAddr::new(HEAP_START));
    Ok((files, space))
}

fn object<'vm, P: Platform<Embedding = Usual>, D: Design<P>>(
    vm: &'vm Vm<P, D>,
    identity: u64,
    size_bytes: u64,
) -> Result<ObjectHandle<'vm, P>, OutOfFrames> {
    vm.create_object(&ObjectSpec { identity, size_bytes, source: &ZeroSource, write_notice: WriteNotice::None })
}

/// Stores a file's first content, as a program of another process would.
fn write_content<P: Platform<Embedding = Usual>, D: Design<P>>(
    vm: &Vm<P, D>,
    file: &ObjectHandle<'_, P>,
) -> Result<(), Unfit> {
    let space = vm.create_space(Limits::default())?;
    let guest = Guest::new(&space);
    let flags = AreaFlags::READ | AreaFlags::WRITE | AreaFlags::SHARED;
    let backing = Backing::Object(file, 0);
    let at = Placement::Fixed(VirtAddr::new(WINDOW));
    space.mmap(&MapRequest {
        placement: at,
        len_bytes: FILE_BYTES,
        protection: flags.protection(),
        options: flags.options(),
        backing,
        populate: Populate::OnFault,
    })?;
    for (page, content) in FILE_CONTENT.chunks(PAGE as usize).enumerate() {
        // The file's length is a multiple of 8.
        let words: Vec<u64> = content.as_chunks().0.iter().map(|&word| u64::from_le_bytes(word)).collect();
        let stored = guest.store_words(VirtAddr::new(WINDOW + page as u64 * PAGE), &words);
        stored.map_err(|error| Unfit(format!("a file could not be written: {error}")))?;
    }
    Ok(())
}

fn limits(sequence: &Sequence, conditions: &Conditions) -> Limits {
    let bounds = &sequence.bounds;
    let Conditions { mmap_min_addr, max_map_count, commit_bytes, usual, .. } = *conditions;
    let all = Privileges::LOW_ADDRESSES | Privileges::UNLIMITED_LOCKS;
    let or_none = |bound: Option<u64>| bound.unwrap_or(u64::MAX);
    Limits {
        max_map_count,
        mmap_min_addr,
        // The windows are small: where a design can share tables, it does here.
        shared_table_bytes: 0,
        // A kernel's security modules keep what it chooses itself above their own limit.
        lowest_chosen: LOW_END,
        // The VM's space is as empty as the process: what the kernel counts outside the zones, the fillers count here.
        address_space_bytes: bounds.address_space.map_or(u64::MAX, |bytes| bytes.saturating_add(FILLED_BYTES)),
        data_bytes: bounds.data.map_or(u64::MAX, |bytes| bytes.saturating_add(conditions.data_bytes)),
        lock_bytes: or_none(bounds.locked.or(usual.locked)),
        stack_bytes: or_none(bounds.stack.or(usual.stack)),
        commit_bytes,
        has_protection_keys: conditions.has_protection_keys,
        placement: PlacementPolicy::Linux,
        privileges: if sequence.user.is_root() { all } else { Privileges::empty() },
        ..Limits::default()
    }
}

/// Where the filler stands that counts as data: it can be read, so it is far from all that sequences name.
const DATA_FILLER: u64 = 0x3a5c_0000_0000;

/// What the fillers cover.
const FILLED_BYTES: u64 = USER_END - LOW_END - WINDOW_BYTES;

/// Fills all but the zones with inaccessible mappings, as the kernel's side does.
fn fill_around<P: Platform<Embedding = Usual>, D: Design<P>>(
    vm: &Vm<P, D>,
    space: &SpaceRef<'_, P, D>,
    data_bytes: u64,
) -> Result<(), Unfit> {
    let window_end = WINDOW + WINDOW_BYTES;
    let guard = object(vm, identity::GUARD, PAGE)?;
    for start in [WINDOW - PAGE, window_end] {
        let backing = Backing::Object(&guard, 0);
        space.mmap(&filler(start, PAGE, AreaFlags::SHARED, backing))?;
    }
    let data_end = DATA_FILLER + data_bytes;
    if data_bytes != 0 {
        let data = AreaFlags::WRITE | AreaFlags::NORESERVE;
        space.mmap(&filler(DATA_FILLER, data_bytes, data, Backing::Anonymous))?;
    }
    for (start, end) in [(LOW_END, WINDOW - PAGE), (window_end + PAGE, DATA_FILLER), (data_end, USER_END)] {
        space.mmap(&filler(start, end - start, AreaFlags::NORESERVE, Backing::Anonymous))?;
    }
    Ok(())
}

fn filler<'a, P: Platform<Embedding = Usual>>(
    start: u64,
    len_bytes: u64,
    flags: AreaFlags,
    backing: Backing<'a, P>,
) -> MapRequest<'a, P> {
    MapRequest {
        placement: Placement::Fixed(VirtAddr::new(start)),
        len_bytes,
        protection: flags.protection(),
        options: flags.options(),
        backing,
        populate: Populate::OnFault,
    }
}

impl<'a, 'vm, P: Platform<Embedding = Usual>, D: Design<P>> Process<'a, 'vm, P, D> {
    /// Runs operations; `first` is the place of the first one in the sequence. Says whether the run goes on.
    pub(super) fn run(&self, ops: &[Op], first: usize, watch: &mut dyn FnMut(usize, &Outcome) -> bool) -> bool {
        let mut at = 0;
        while at < ops.len() {
            let op = &ops[at];
            let (next, outcome) = match op.call.makes_process() {
                true => {
                    let inner = at + 1..ops.len().min(at + 1 + op.args[0].min(ops.len() as u64) as usize);
                    (inner.end, self.make(op.call, &ops[inner.clone()], first + inner.start, watch))
                }
                false => (at + 1, Some(self.tried(op))),
            };
            if !outcome.is_some_and(|outcome| watch(first + at, &outcome)) {
                return false;
            }
            at = next;
        }
        true
    }

    /// Makes a child and runs the operations between its begin and its end; `None` if the run does not go on.
    fn make(
        &self,
        call: Call,
        ops: &[Op],
        first: usize,
        watch: &mut dyn FnMut(usize, &Outcome) -> bool,
    ) -> Option<Outcome> {
        // A panic leaves the child as it is: what it broke can't be taken apart.
        let child = match self.child(call) {
            Ok(child) => ManuallyDrop::new(child),
            Err(error) => return Some(Outcome::Errno(error.errno())),
        };
        let outcome = match call {
            Call::Snapshot => self.run(ops, first, watch).then(|| child.one(&Op::new(Call::Look, &[]))),
            _ => child.run(ops, first, watch).then_some(Outcome::Value(0)),
        };
        drop(ManuallyDrop::into_inner(child));
        outcome
    }

    fn child(&self, call: Call) -> Result<Self, CallError> {
        let guest = match call {
            Call::Vfork => Guest::new(self.guest.space()),
            _ => Guest::new(&self.with_shortages(|| self.guest.space().fork(), Result::is_err)?),
        };
        Ok(Self { guest, ..*self })
    }

    /// Runs an operation that is no fork; first without enough memory, if that is wanted.
    fn tried(&self, op: &Op) -> Outcome {
        match is_all_or_nothing(op) {
            true => self.with_shortages(|| self.one(op), |outcome| is_refused(op, outcome)),
            false => self.one(op),
        }
    }

    /// Acts with one allocation more each time until `is_refused` no longer holds of what comes out, or all have
    /// succeeded.
    fn with_shortages<R>(&self, act: impl Fn() -> R, is_refused: impl Fn(&R) -> bool) -> R {
        let Some(tell) = self.shortages else { return act() };
        let memory = self.vm.memory();
        for nth in 1.. {
            memory.set_failing(Failing::Once(nth));
            let result = act();
            let was_short = memory.failing() == Failing::Never;
            memory.set_failing(Failing::Never);
            if !was_short || !is_refused(&result) {
                return result;
            }
            tell();
        }
        unreachable!("no operation makes so many allocations")
    }

    /// Runs an operation that is no fork.
    pub(super) fn one(&self, op: &Op) -> Outcome {
        let [first, second, third, ..] = op.args;
        match op.call {
            Call::Load => self.accessed(self.guest.load_byte(VirtAddr::new(first)).map(|(byte, _)| byte.into())),
            Call::Store => self.accessed(self.guest.store_byte(VirtAddr::new(first), byte(second as u8)).map(|_| 0)),
            Call::Fetch => self.accessed(self.guest.fetch(VirtAddr::new(first)).map(|_| 0)),
            Call::Fill => self.accessed(self.fill(first, second, third)),
            Call::Look => Outcome::List(self.list()),
            Call::Resident => Outcome::Value(self.private_pages()),
            _ => answered(abi::call(self, op)),
        }
    }

    fn accessed(&self, result: Result<u64, faultless_vm::AccessError>) -> Outcome {
        result.map_or_else(|error| abi::signal(&error), Outcome::Value)
    }

    fn fill(&self, start: u64, pages: u64, number: u64) -> Result<u64, faultless_vm::AccessError> {
        for page in 0..pages {
            let address = start.wrapping_add(page.wrapping_mul(PAGE));
            self.guest.store_byte(VirtAddr::new(address), byte(number.wrapping_add(page) as u8))?;
        }
        Ok(pages)
    }

    /// Returns the areas of the zones, with the digests of their pages.
    fn list(&self) -> Vec<AreaSeen> {
        let mut areas = Vec::new();
        for zone in Zone::ALL {
            let inside =
                self.areas().filter(|line| line.range.start().get() < zone.end && zone.start < line.range.end().get());
            areas.extend(inside.map(|line| self.seen(&line, zone)));
        }
        areas
    }

    /// Returns all areas, the fillers too.
    fn areas(&self) -> impl Iterator<Item = AreaLine> {
        let mut lines = Vec::new();
        self.guest.space().for_each_area(|line| lines.push(line));
        lines.into_iter()
    }

    /// Returns how many pages count as resident and are the zones' own: what the space counts, less pages of files and
    /// those of the filler that counts as data, which mlockall may have made.
    fn private_pages(&self) -> u64 {
        let space = self.guest.space();
        let is_other = |&address: &u64| {
            let entry = space.entry_at(VirtAddr::new(address));
            let is_inside = Zone::ALL.iter().any(|zone| (zone.start..zone.end).contains(&address));
            let is_own = || self.vm.memory().page(entry.pfn()).kind() == Kind::Anonymous;
            entry.holds_frame() && !(is_inside && is_own())
        };
        let filler = DATA_FILLER
            ..self
                .areas()
                .find(|line| line.range.start().get() == DATA_FILLER)
                .map_or(DATA_FILLER, |line| line.range.end().get());
        let zones = Zone::ALL.iter().map(|zone| zone.start..zone.end);
        let pages = zones.chain([filler]).flat_map(|range| range.step_by(PAGE as usize));
        space.resident_pages() - pages.filter(is_other).count() as u64
    }

    fn seen(&self, line: &AreaLine, zone: Zone) -> AreaSeen {
        let (start, end) = (line.range.start().get().max(zone.start), line.range.end().get().min(zone.end));
        let right = |flag, bit| if line.flags.contains(flag) { bit } else { 0 };
        let rights = right(AreaFlags::READ, 1) | right(AreaFlags::WRITE, 2) | right(AreaFlags::EXEC, 4);
        let behind = match line.identity {
            None if line.is_reference => Behind::Reference,
            None => Behind::Anonymous,
            Some(identity::READ_WRITE) => Behind::ReadWrite,
            Some(identity::EMPTY) => Behind::Empty,
            Some(_) => Behind::Shared,
        };
        let offset = if behind == Behind::Anonymous { 0 } else { line.page_offset.wrapping_mul(PAGE) };
        let digest = if rights == 0 { 0 } else { self.digest(start, end) };
        AreaSeen { start, end, rights, is_shared: line.flags.contains(AreaFlags::SHARED), offset, behind, digest }
    }

    fn digest(&self, start: u64, end: u64) -> u64 {
        let mut page = [0; PAGE as usize / 8];
        let mut sum = 0_u64;
        for address in (start..end).step_by(PAGE as usize) {
            let loaded = self.guest.load_words(VirtAddr::new(address), &mut page);
            let content = loaded.map(|_| digest(&page)).map_err(|error| abi::seen(&error));
            sum = sum.wrapping_add(AreaSeen::page_digest(address, content));
        }
        sum
    }
}

/// Says whether an outcome may be that of an operation that found no memory.
fn is_refused(op: &Op, outcome: &Outcome) -> bool {
    match outcome {
        Outcome::Errno(errno) => [libc::ENOMEM, libc::EAGAIN].contains(errno),
        Outcome::Signal(seen) => seen.signo == libc::SIGKILL,
        // It answers where the heap ends, whatever was asked.
        Outcome::Value(value) => op.call == Call::Brk && *value != op.args[0],
        _ => false,
    }
}

fn answered(answer: CallResult) -> Outcome {
    answer.map_or_else(Outcome::Errno, Outcome::Value)
}
