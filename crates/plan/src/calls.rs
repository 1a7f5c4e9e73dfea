//! From recorded calls and mappings to the plan's map calls.
//!
//! # Guarantee
//! Every call of the recording is executed, imposed or counted as skipped; and it waits for what it conflicts with.

use std::ops::Range;

use faultless_abi::{Errno, MapFlags, Prot};
use faultless_trace::{Call, CallEnter, EventKind, Mapped, Thread, ThreadIndex};
use faultless_vm::{LockAll, PageLock};

use super::build::Builder;
use super::contests::ranges_of;
use super::decode::{Decoded, Recorded, is_error};
use super::edges::Wait;
use super::ids::{EventIndex, NONE, ObjectIndex, SpaceIndex};
use super::memory_calls::{Mapping, MemoryCall, Place, Reason, Verdict};
use super::regions::{Backing, PAGE, Region, Sharing, Traits, page_ceil};
use super::space_users::UserChange;
use super::windows::{fills, span};
use super::{Action, CallPlan, ObjectPlan};

/// Linux's `max_map_count`, where the trace does not tell.
const USUAL_AREAS: u64 = 65_530;

impl Builder<'_> {
    /// Plans a call.
    pub(super) fn call(&mut self, place: EventIndex, enter: CallEnter) {
        let (mut memory_call, mut verdict) = self.decode_call(place, enter);
        let (result, space) = (self.came_to(place, verdict), self.space_of(place));
        if enter.call == Call::Clone {
            self.spaces[space as usize].fork_failed_at = self.now;
        }
        if self.is_cut_off(place) {
            verdict = Verdict::Imposed(Reason::InFlight);
        }
        let is_contested = self.is_contested(place);
        if let (true, Verdict::Compared(expected)) = (is_contested, verdict) {
            verdict = Verdict::Either(expected);
            let maps = matches!(memory_call, MemoryCall::Map(_) | MemoryCall::Unmap { .. } | MemoryCall::Remap { .. });
            if is_error(expected) && maps {
                // What the replay might do in its place would show nowhere.
                memory_call = MemoryCall::Nothing;
            }
        }
        self.count_verdict(verdict);
        self.note_contest(place, space);
        self.perform(place, CallPlan { call: Some(enter.call), memory_call, verdict }, result);
        if let Some(whole) = mapped_whole(&memory_call, result) {
            self.spaces[space as usize].unlike.remove(whole);
        }
        self.note_unseen(place, &enter, &memory_call);
        if is_contested {
            self.settle_contest(place, &memory_call, result);
        } else if let Some(whole) = mapped_whole(&memory_call, result) {
            self.spaces[space as usize].contested.remove(whole);
        }
    }

    /// Returns whether the call's memory may be other than it was when it was recorded.
    fn is_contested(&self, place: EventIndex) -> bool {
        let contested = &self.spaces[self.space_of(place) as usize].contested;
        let is_known = || self.ranges_at(place).iter().any(|range| contested.overlaps(range));
        self.windows.contests.contains_key(&place) || !contested.is_empty() && is_known()
    }

    /// Returns the ranges that the call reaches, or asked for.
    fn ranges_at(&self, place: EventIndex) -> Vec<Range<u64>> {
        let call = self.windows.call_at(self.trace, place);
        call.map_or_else(Vec::new, |(enter, result)| ranges_of(&enter, result.unwrap_or_default()))
    }

    /// Notes what is contested after a call whose memory was: all of it, but what it mapped or unmapped whatever was
    /// there; and what it meets another call about.
    fn settle_contest(&mut self, place: EventIndex, memory_call: &MemoryCall, result: i64) {
        let space = self.space_of(place);
        match mapped_whole(memory_call, result) {
            Some(whole) => self.spaces[space as usize].contested.remove(whole),
            None => self.ranges_at(place).into_iter().for_each(|range| self.contest(space, range)),
        }
        self.note_contest(place, space);
    }

    /// Notes what an event leaves open in a space.
    pub(super) fn note_contest(&mut self, event: EventIndex, space: SpaceIndex) {
        let ranges = self.windows.contests.get(&event).cloned().unwrap_or_default();
        ranges.into_iter().for_each(|range| self.contest(space, range));
    }

    fn contest(&mut self, space: SpaceIndex, range: Range<u64>) {
        let state = &mut self.spaces[space as usize];
        let objects = state.regions.overlapping(range.clone()).filter_map(|region| match region.backing {
            Backing::Object { object, .. } => Some(object),
            Backing::Anonymous => None,
        });
        self.uncertain_objects.extend(objects);
        state.contested.insert(range);
    }

    /// Returns whether the recording ended while a thread was inside the call.
    fn is_cut_off(&self, place: EventIndex) -> bool {
        let thread = self.trace.events[place as usize].thread;
        self.windows.calls[&place].exit.is_none()
            && self.space_users.endings.iter().any(|&(ending, _)| ending == thread)
    }

    /// Decides what a replay does for a call, the space being as it was before.
    pub(super) fn decode_call(&mut self, place: EventIndex, enter: CallEnter) -> Decoded {
        let space = self.space_of(place);
        self.pending.note_made(self.trace.events[place as usize].thread, place);
        let window = self.windows.calls[&place];
        let result = window.result;
        let is_refused = result.is_some_and(is_error);
        let told = window.mapped.and_then(|event| self.mapped_at(event));
        let mapped = told.filter(|mapped| tells(mapped, &enter, result));
        let object = self.object_behind(&enter, mapped.as_ref());
        let state = &self.spaces[space as usize];
        let (regions, program_break, future_lock) = (&state.regions, state.program_break, state.future_lock);
        let is_break_rounded = state.is_break_rounded;
        let first_guard = match enter.call {
            Call::Madvise | Call::Mlock | Call::Mlock2 if is_refused => {
                state.first_guard(&span(enter.args[0], enter.args[1]))
            }
            _ => None,
        };
        let max_areas = self.trace.header.limits.max_map_count.unwrap_or(USUAL_AREAS);
        let is_whole = !self.is_blind && self.windows.orphans.is_empty();
        let is_beside_others = is_refused && self.is_beside_others(place);
        let recorded = Recorded {
            enter,
            result,
            mapped,
            told,
            object,
            regions,
            meets_guard: first_guard.is_some(),
            future_lock,
            program_break,
            is_break_rounded,
            lock_bytes: self.trace.header.limits.memlock_bytes,
            max_areas,
            is_whole,
            is_beside_others,
        };
        let decoded = recorded.decode();
        self.note_locks(space, &enter, result);
        if enter.call == Call::Mseal && result == Some(0) {
            let sealed = span(enter.args[0], enter.args[1]);
            self.spaces[space as usize].regions.change(sealed, |region| region.traits |= Traits::SEALED);
        }
        self.note_cut_short(space, &enter, result, &decoded);
        self.note_tracing(place, &enter, result);
        decoded
    }

    /// Filling that ended behind a file's end, by advice or for a lock, has made some of the pages before, nobody knows
    /// which.
    fn note_cut_short(&mut self, space: SpaceIndex, enter: &CallEnter, result: Option<i64>, decoded: &Decoded) {
        let [start, len, advice, ..] = enter.args;
        let is_advice = enter.call == Call::Madvise && fills(advice) && result == Some(Errno::EFAULT.raw());
        // Locks that wait for pages to come fill nothing.
        let is_lock = matches!(enter.call, Call::Mlock | Call::Mlock2) && (enter.call == Call::Mlock || advice == 0);
        let range = match *decoded {
            (MemoryCall::Lock { lock: PageLock::LockOnFault, .. }, Verdict::Either(_)) if is_lock => {
                span(start, len.saturating_add(start % PAGE))
            }
            _ if is_advice => span(start, len),
            _ => return,
        };
        let may_fill = |region: &mut Region| {
            let is_known = is_advice && region.backing == Backing::Anonymous;
            region.traits |= if is_known { Traits::empty() } else { Traits::FILLED };
        };
        self.spaces[space as usize].regions.change(range, may_fill);
    }

    fn mapped_at(&self, event: EventIndex) -> Option<Mapped> {
        match self.trace.events[event as usize].kind {
            EventKind::Mapped(mapped) => Some(mapped),
            _ => None,
        }
    }

    /// Returns the object behind a new mapping; shared memory that the kernel tells nothing of gets a new one.
    fn object_behind(&mut self, enter: &CallEnter, mapped: Option<&Mapped>) -> Option<ObjectIndex> {
        let is_file = |file: &u32| self.trace.files[*file as usize].path != "/dev/zero" || is_shared_map(enter);
        let told = mapped.and_then(|mapped| mapped.file).filter(is_file);
        let is_object =
            enter.call != Call::Mmap || is_shared_map(enter) || !map_flags(enter).contains(MapFlags::ANONYMOUS);
        let is_zero = mapped.is_some_and(|mapped| mapped.file.is_some()) && told.is_none();
        if told.is_some() || !is_object || is_zero {
            return told;
        }
        let is_memory = map_flags(enter).contains(MapFlags::ANONYMOUS);
        self.plan.objects.push(ObjectPlan { is_memory, ..ObjectPlan::default() });
        Some(self.plan.objects.len() as ObjectIndex - 1)
    }

    fn count_verdict(&mut self, verdict: Verdict) {
        match verdict {
            Verdict::Compared(_) | Verdict::Either(_) => self.plan.totals.calls += 1,
            Verdict::Imposed(reason) => *self.plan.totals.imposed.entry(reason).or_default() += 1,
            Verdict::NotModelled(name) => self.skip(name, 1),
        }
    }

    /// Returns what a call came to for the map: what a replay's is compared with, which is where io_setup's ring is and
    /// not the 0 that it returns.
    pub(super) fn came_to(&self, place: EventIndex, verdict: Verdict) -> i64 {
        match verdict {
            Verdict::Compared(expected) | Verdict::Either(expected) => expected,
            _ => self.windows.calls[&place].result.unwrap_or(-1),
        }
    }

    /// Makes the step for a call, and lets the space follow.
    fn perform(&mut self, place: EventIndex, call: CallPlan, result: i64) {
        let (thread, space) = (self.trace.events[place as usize].thread, self.space_of(place));
        let reach = reach(&call.memory_call, result);
        self.await_conflicts(space, &reach);
        self.await_break(space, &call.memory_call);
        self.plan.calls.push(call);
        let step = self.push(place, thread, Action::Call(self.plan.calls.len() as u32 - 1));
        self.plan.demand.areas += u64::from(matches!(
            call.memory_call,
            MemoryCall::Map(_) | MemoryCall::Protect { .. } | MemoryCall::Remap { .. }
        ));
        self.note_object(&call.memory_call);
        self.doubt_beside_forks(place, space);
        self.follow(place, &call.memory_call, result, &reach);
        if self.is_shared(space) {
            let state = &mut self.spaces[space as usize];
            reach.into_iter().for_each(|range| state.order.calls.note(range, step));
            state.order.note(step);
            if matches!(call.memory_call, MemoryCall::Break { .. }) {
                state.order.last_break = Some(step);
            }
        }
    }

    /// Lets the space follow a call. What others' faults made, or mapped beside their own, that may have come before it
    /// or behind it, may be there afterwards.
    pub(super) fn follow(&mut self, place: EventIndex, memory_call: &MemoryCall, result: i64, reach: &[Range<u64>]) {
        let (space, now) = (self.space_of(place), self.now);
        let is_shared = self.is_shared(space);
        let state = &mut self.spaces[space as usize];
        let touched = self.windows.beside_calls.get(&place).map_or(&[][..], Vec::as_slice);
        let covered = reach.iter().filter(|_| is_shared).flat_map(|range| state.around.covered_since(range, place));
        let covered: Vec<_> = covered.chain(touched.iter().cloned()).collect();
        state.apply(memory_call, result, now);
        state.cover_tables(covered, now);
        for (object, bytes) in state.filled.drain(..).filter(|(_, bytes)| !bytes.is_empty()) {
            self.filled_objects.entry(object).or_default().insert(bytes);
        }
        let is_reached = |page: &&Range<u64>| reach.iter().any(|range| range.contains(&page.start));
        touched.iter().filter(is_reached).for_each(|page| state.leave_open(page));
    }

    /// A break's new place depends on the one before, whatever lies between the two.
    fn await_break(&mut self, space: SpaceIndex, memory_call: &MemoryCall) {
        if matches!(memory_call, MemoryCall::Break { .. }) {
            self.waits.extend(self.spaces[space as usize].order.last_break);
        }
    }

    /// Collects every step that touched the ranges last.
    fn await_conflicts(&mut self, space: SpaceIndex, reach: &[Range<u64>]) {
        if !self.is_shared(space) {
            return;
        }
        let state = &self.spaces[space as usize];
        let waits = &mut self.waits;
        waits.extend(state.order.barrier);
        for range in reach {
            state.order.calls.visit(range, |wait| waits.push(wait));
            state.pages.visit(range.start / PAGE..range.end.div_ceil(PAGE), |_, page| {
                waits.extend((page.event != NONE).then_some(Wait { thread: page.thread, step: page.step }));
            });
        }
    }

    pub(super) fn note_object(&mut self, memory_call: &MemoryCall) {
        let MemoryCall::Map(mapping) = memory_call else { return };
        if let Place::Fixed(start) | Place::FixedIfFree(start) | Place::Searched { placed: start, .. } = mapping.place {
            self.plan.lowest_mapped = self.plan.lowest_mapped.min(start);
        }
        let Backing::Object { object, sharing, .. } = mapping.backing else { return };
        let plan = &mut self.plan.objects[object as usize];
        plan.nr_maps += 1;
        // Rights may be added later, so a shared mapping counts whether it allows stores or not.
        plan.has_stores |= sharing == Sharing::Shared;
    }

    fn note_locks(&mut self, space: SpaceIndex, enter: &CallEnter, result: Option<i64>) {
        let future_lock = &mut self.spaces[space as usize].future_lock;
        match enter.call {
            Call::Mlockall if result == Some(0) => {
                let what = LockAll::from_bits_truncate(enter.args[0] as u32);
                let lock = if what.contains(LockAll::ON_FAULT) { PageLock::LockOnFault } else { PageLock::Lock };
                *future_lock = what.contains(LockAll::FUTURE).then_some(lock);
            }
            Call::Munlockall => *future_lock = None,
            _ => {}
        }
    }

    /// Follows whose memory another process reaches into: the caller's (`PTRACE_TRACEME`), or that of the thread or
    /// process that it names.
    fn note_tracing(&mut self, place: EventIndex, enter: &CallEnter, result: Option<i64>) {
        const TRACEME: u64 = 0;
        let reaches = matches!(enter.call, Call::Ptrace | Call::ProcessVmReadv | Call::ProcessVmWritev);
        if !reaches || result.is_none_or(is_error) {
            return;
        }
        let caller = self.trace.events[place as usize].thread;
        let is_meant = |place: ThreadIndex, thread: &Thread| match (enter.call, enter.args) {
            (Call::Ptrace, [TRACEME, ..]) => place == caller,
            (Call::Ptrace, [_, named, ..]) => u64::from(thread.tid) == named,
            (_, [named, ..]) => u64::from(thread.pid) == named,
        };
        for (place, _) in (0..).zip(&self.trace.threads).filter(|&(place, thread)| is_meant(place, thread)) {
            self.is_traced[place as usize] = true;
        }
    }

    /// Plans a mapping that the kernel made by itself: a new program's segments, its stack.
    pub(super) fn told(&mut self, place: EventIndex, mapped: Mapped) {
        let space = self.space_of(place);
        let memory_calls = self.told_memory_calls(space, &mapped);
        if memory_calls.is_empty() {
            let thread = self.trace.events[place as usize].thread;
            self.push(place, thread, Action::Pass);
        }
        for (memory_call, traits) in memory_calls {
            let (verdict, range) = (Verdict::Compared(told_result(&memory_call)), told_range(&memory_call));
            self.perform(place, CallPlan { call: None, memory_call, verdict }, told_result(&memory_call));
            self.spaces[space as usize].regions.change(range, |region| region.traits |= traits);
        }
    }

    pub(super) fn told_memory_calls(&mut self, space: SpaceIndex, mapped: &Mapped) -> Vec<(MemoryCall, Traits)> {
        let state = &mut self.spaces[space as usize];
        let is_stack = std::mem::take(&mut state.awaits_stack) && mapped.file.is_none();
        let range = mapped.start..mapped.start + mapped.len_bytes;
        let is_growth = |region: &&Region| region.end == range.end && region.traits.contains(Traits::GROWS_DOWN);
        if !is_stack && state.regions.find(range.end.saturating_sub(1)).as_ref().is_some_and(is_growth) {
            return Vec::new();
        }
        let traits = match mapped.file {
            None if is_stack => Traits::GROWS_DOWN | Traits::ARGUMENTS,
            None if mapped.prot & 2 == 0 => Traits::SPECIAL,
            _ => Traits::empty(),
        };
        // A call that was under way when a process was joined may be told of merged with what was there before.
        let is_partial = self.is_blind || !self.trace.snapshot.is_empty();
        let parts = if is_partial { self.new_parts(space, mapped) } else { vec![(range, Change::Replace)] };
        parts.into_iter().map(|(range, change)| (call_of_told(mapped, range, change, is_stack), traits)).collect()
    }

    /// Returns what of a mapping is new, where it may be told as merged with what was there before.
    fn new_parts(&self, space: SpaceIndex, mapped: &Mapped) -> Vec<(Range<u64>, Change)> {
        let range = mapped.start..mapped.start + mapped.len_bytes;
        let (mut parts, mut reached) = (Vec::new(), range.start);
        for region in self.spaces[space as usize].regions.overlapping(range.clone()) {
            let (start, end) = (region.start.max(range.start), region.end.min(range.end));
            parts.extend((start > reached).then_some((reached..start, Change::Replace)));
            parts.extend(change_of(region, mapped, start).map(|change| (start..end, change)));
            reached = end;
        }
        parts.extend((range.end > reached).then_some((reached..range.end, Change::Replace)));
        parts
    }

    /// Notes what a fork or an exec means for what comes next in the new space.
    pub(super) fn expect_stack(&mut self, change: UserChange) {
        if let UserChange::Renew { new, .. } = change {
            self.spaces[new as usize].awaits_stack = true;
        }
    }
}

/// What a told mapping does to what was there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Change {
    Replace,
    Protect,
}

fn change_of(region: &Region, mapped: &Mapped, start: u64) -> Option<Change> {
    let expected = backing_of(mapped).advanced(start - mapped.start);
    let is_same = region.backing.advanced(start - region.start) == expected;
    let has_rights = region.prot == Prot::from_bits_retain(mapped.prot.into()) & Prot::RIGHTS;
    match (is_same, has_rights) {
        (true, true) => None,
        (true, false) => Some(Change::Protect),
        (false, _) => Some(Change::Replace),
    }
}

fn backing_of(mapped: &Mapped) -> Backing {
    backing_on(mapped.file, mapped.file_offset, told_flags(mapped).contains(MapFlags::SHARED))
}

/// Returns what stands behind memory that maps a file from `offset` on, or nothing.
pub(super) fn backing_on(file: Option<ObjectIndex>, offset: u64, is_shared: bool) -> Backing {
    let sharing = if is_shared { Sharing::Shared } else { Sharing::Private };
    file.map_or(Backing::Anonymous, |object| Backing::Object { object, offset, sharing })
}

fn call_of_told(mapped: &Mapped, range: Range<u64>, change: Change, is_stack: bool) -> MemoryCall {
    let (len, prot) = (range.end - range.start, Prot::from_bits_retain(mapped.prot.into()));
    if change == Change::Protect {
        return MemoryCall::Protect { start: range.start, len, prot };
    }
    let backing = backing_of(mapped).advanced(range.start - mapped.start);
    let kind = match backing {
        Backing::Anonymous => MapFlags::PRIVATE | MapFlags::ANONYMOUS,
        Backing::Object { .. } => told_flags(mapped) & MapFlags::TYPE,
    };
    let grows = if is_stack { MapFlags::GROWSDOWN } else { MapFlags::empty() };
    let flags = kind | MapFlags::FIXED | grows;
    MemoryCall::Map(Mapping { place: Place::Fixed(range.start), len, prot, flags, backing, is_locked_on_fault: false })
}

pub(super) fn told_result(memory_call: &MemoryCall) -> i64 {
    match memory_call {
        MemoryCall::Map(Mapping { place: Place::Fixed(start), .. }) => *start as i64,
        _ => 0,
    }
}

pub(super) fn told_range(memory_call: &MemoryCall) -> Range<u64> {
    match *memory_call {
        MemoryCall::Map(Mapping { place: Place::Fixed(start), len, .. }) | MemoryCall::Protect { start, len, .. } => {
            span(start, len)
        }
        _ => 0..0,
    }
}

/// Returns whether what the kernel told inside a call is about what the call made.
fn tells(mapped: &Mapped, enter: &CallEnter, result: Option<i64>) -> bool {
    let Some(result) = result else { return false };
    let range = mapped.start..mapped.start + mapped.len_bytes;
    enter.call == Call::IoSetup || range.contains(&(result as u64))
}

fn is_shared_map(enter: &CallEnter) -> bool {
    enter.call != Call::Mmap || map_flags(enter).is_shared()
}

fn map_flags(enter: &CallEnter) -> MapFlags {
    MapFlags::from_bits_retain(enter.args[3])
}

fn told_flags(mapped: &Mapped) -> MapFlags {
    MapFlags::from_bits_retain(mapped.flags.into())
}

/// Returns the ranges that a call changes, or whose state its result tells.
pub(super) fn reach(memory_call: &MemoryCall, result: i64) -> Vec<Range<u64>> {
    match *memory_call {
        MemoryCall::Map(Mapping { place: Place::Refused { hint }, len, flags, .. }) if flags.is_fixed() => {
            vec![span(hint, len)]
        }
        MemoryCall::Map(Mapping { place: Place::Refused { .. }, .. }) | MemoryCall::Nothing => Vec::new(),
        MemoryCall::LockAll { .. } => std::iter::once(0..u64::MAX).collect(),
        MemoryCall::Lock { start, len, .. } => vec![span(start, len.saturating_add(start % PAGE))],
        MemoryCall::Map(Mapping { place: Place::FixedIfFree(start), len, .. }) => vec![span(start, len)],
        MemoryCall::Map(Mapping { len, .. }) => vec![span(result as u64, len)],
        // Advice that changes nothing tells whether anything is mapped there.
        MemoryCall::Unmap { start, len }
        | MemoryCall::Protect { start, len, .. }
        | MemoryCall::Ask { start, len }
        | MemoryCall::WriteBack { start, len }
        | MemoryCall::Advise { start, len, .. } => vec![span(start, len)],
        MemoryCall::Remap { old, old_len, new_len, target, .. } => {
            vec![span(old, old_len.max(new_len)), span(if target == 0 { old } else { target }, new_len)]
        }
        MemoryCall::Break { before, requested, .. } => {
            let (old, new) = (page_ceil(before), page_ceil(requested));
            std::iter::once(old.min(new)..old.max(new)).collect()
        }
    }
}

/// Returns what a call has mapped or unmapped, whatever was there before.
fn mapped_whole(memory_call: &MemoryCall, result: i64) -> Option<Range<u64>> {
    let range = match *memory_call {
        MemoryCall::Map(Mapping { place: Place::Fixed(start), len, .. }) if !is_error(result) => span(start, len),
        MemoryCall::Unmap { start, len } if result == 0 => span(start, len),
        _ => return None,
    };
    (range.start < range.end).then_some(range)
}
