//! A plan that begins in the midst of running processes: the state from which its steps go on.
//!
//! # Guarantee
//! Every space that lives when the snapshot was complete is restored by one step before any event is replayed, and
//! every thread that lives then is started in its space. Nothing is restored that the recording does not tell.
//! A process that was joined later stands there from the first step on, as it was when it had been looked at.
//!
//! # Protocol
//! The snapshot was read while the processes ran. Its parts are brought to one moment, the end of its last window, by
//! applying every event up to then, in order (`faultless_trace::snapshot` draws it). An event that a part already holds
//! is applied once more, which changes nothing: each decides the state of what it touches. Only a move does not,
//! because its target gets what its source held: where the snapshot found the source gone already, the target stays as
//! it was found, and pages found at the target stay too.
//!
//! The processes that were joined together have one such moment; each that was joined later has its own, and so have
//! the children that it makes until then.
//!
//! # What is not known
//! Whether an entry could be written, and what a page held. So a page of the snapshot is marked until its first event,
//! and that event may differ ([`Class::Inherited`](super::classes::Class::Inherited)).

use std::ops::Range;

use faultless_abi::{MapFlags, Prot};
use faultless_trace::{
    Access, Area, CallEnter, Event, EventKind, Fault, Mapped, PageState, SpaceState, ThreadIndex, Trace,
};
use faultless_vm::{Advice, PageLock};
use rustc_hash::FxHashSet;

use super::Action;
use super::build::{Builder, empty_space};
use super::calls::{backing_on, reach, told_range, told_result};
use super::decode::is_error;
use super::edges::Wait;
use super::ids::{EventIndex, NONE, SpaceIndex};
use super::memory_calls::{Mapping, MemoryCall, Place};
use super::pages::{Content, Page};
use super::regions::{Backing, PAGE, Region, Root, Traits};
use super::space::{Space, copies_on_write, filled};
use super::space_users::UserChange;
pub use super::steps::Restoration;
use super::windows::{Moment, at, span};

/// The count of steps at which restored pages became what they are: before every step, after no fork.
const SINCE: u32 = 1;

/// When the looks at the processes were over.
struct Looks {
    /// By thread, the first event behind the look at its process.
    first_behind: Vec<EventIndex>,
}

impl Looks {
    fn of(trace: &Trace) -> Self {
        let first_behind =
            |ended_ns: u64| trace.events.partition_point(|event| event.time_ns <= ended_ns) as EventIndex;
        let mut looks = Self { first_behind: vec![first_behind(trace.snapshot.ended_ns()); trace.threads.len()] };
        for space in trace.snapshot.spaces.iter().filter(|space| space.is_late()) {
            let first = first_behind(space.ended_ns());
            space.threads.iter().for_each(|&thread| looks.first_behind[thread as usize] = first);
        }
        looks
    }

    /// Returns whether an event came before the look at its process was over; then a child that it makes has the same
    /// look.
    fn are_before(&mut self, trace: &Trace, event: EventIndex, moment: Moment) -> bool {
        let Event { thread, kind, .. } = trace.events[event as usize];
        let first = self.first_behind[thread as usize];
        let is_before = moment < at(first);
        if let EventKind::Clone(clone) = kind
            && is_before
        {
            self.first_behind[clone.child as usize] = first;
        }
        is_before
    }
}

/// Which thread uses which space while the events up to the snapshot's end are applied.
struct Homes {
    of: Vec<Option<SpaceIndex>>,
    /// Threads without a known beginning that got a space of their own.
    adopted: FxHashSet<ThreadIndex>,
}

impl Builder<'_> {
    /// Applies the events that came before their processes were looked at, and makes the steps that restore what stood
    /// then; returns the other events. `order` is sorted.
    pub(super) fn begin_joined(&mut self, order: Vec<(Moment, EventIndex)>) -> Vec<(Moment, EventIndex)> {
        if self.trace.snapshot.is_empty() {
            return order;
        }
        let mut looks = Looks::of(self.trace);
        self.now = SINCE;
        let mut homes = self.settle_snapshot();
        let mut rest = Vec::with_capacity(order.len());
        for (moment, event) in order {
            if looks.are_before(self.trace, event, moment) {
                self.apply_event(event, &mut homes);
                let is_fault = matches!(self.trace.events[event as usize].kind, EventKind::Fault(_));
                self.plan.totals.applied += 1;
                self.plan.totals.faults_applied += u64::from(is_fault);
            } else {
                rest.push((moment, event));
            }
        }
        self.restore_all(&homes);
        rest
    }

    fn settle_snapshot(&mut self) -> Homes {
        let mut of = vec![None; self.trace.threads.len()];
        let trace = self.trace;
        for (place, state) in trace.snapshot.spaces.iter().enumerate() {
            state.threads.iter().for_each(|&thread| of[thread as usize] = Some(place as SpaceIndex));
            self.spaces[place] = self.space_of_snapshot(state);
        }
        Homes { of, adopted: FxHashSet::default() }
    }

    fn space_of_snapshot(&self, state: &SpaceState) -> Space {
        let mut space = empty_space(self.trace);
        for area in &state.areas {
            let region = region_of(area, &self.trace.files);
            space.regions.insert(region);
            for run in &area.runs {
                let content = content_of(run.state, &region);
                let page = standing(content);
                space.pages.update(run.range().start / PAGE..run.range().end / PAGE, |kept| *kept = page);
            }
        }
        if state.heap.start != 0 {
            space.heap_start = Some(state.heap.start);
            space.program_break = Some(state.heap.end);
            space.is_break_rounded = true;
        }
        space
    }

    fn apply_event(&mut self, place: EventIndex, homes: &mut Homes) {
        let event = self.trace.events[place as usize];
        if let Some(&space) = self.space_users.adoptions.get(&place) {
            homes.of[event.thread as usize] = Some(space);
            homes.adopted.insert(event.thread);
        }
        match event.kind {
            EventKind::Fault(fault) => self.apply_fault(place, fault),
            EventKind::CallEnter(enter) => self.apply_call(place, enter),
            EventKind::Mapped(_) if self.windows.is_inside.contains_key(&place) => {}
            EventKind::Mapped(mapped) => self.apply_told(place, &mapped),
            EventKind::Clone(_) | EventKind::Exec | EventKind::Exit => {
                self.apply_user_change(place, event.thread, homes)
            }
            _ => {}
        }
    }

    fn apply_fault(&mut self, place: EventIndex, fault: Fault) {
        let space = self.space_of(place);
        let Some(region) = self.region_at(place, fault.address) else { return };
        let state = &mut self.spaces[space as usize];
        if !region.allows(fault.access()) {
            return;
        }
        let page = state.page(fault.address, Some(&region));
        if page.content == Content::Guard {
            return;
        }
        let is_own = fault.access() == Access::Write && copies_on_write(&region);
        let content = filled(page.content, region.backing, is_own);
        if is_own {
            state.regions.give_root(fault.address, Root::Present);
        }
        let (since, number) = (self.now, fault.address / PAGE);
        state.pages.set(number, Page { content, since, is_inherited: true, lets_stores_in: true, ..Page::default() });
        if content == Content::Object {
            let pages = number..number + 1;
            let area = state.area_of(&region, &pages);
            state.around.cover_filled(pages, fault.access() == Access::Write, &area, since);
        }
    }

    fn apply_call(&mut self, place: EventIndex, enter: CallEnter) {
        let space = self.space_of(place);
        let (memory_call, verdict) = self.decode_call(place, enter);
        let result = self.came_to(place, verdict);
        if let MemoryCall::Break { before, is_first: true, .. } = memory_call {
            self.spaces[space as usize].heap_start = Some(before);
        }
        match memory_call {
            MemoryCall::Remap { old, old_len, new_len, .. } if !is_error(result) && result as u64 != old => {
                self.apply_move(space, &memory_call, span(old, old_len.max(1)), span(result as u64, new_len));
            }
            _ => self.follow(place, &memory_call, result, &reach(&memory_call, result)),
        }
    }

    /// Applies a move, of which the snapshot may have seen the source, the target or both.
    fn apply_move(&mut self, space: SpaceIndex, memory_call: &MemoryCall, old: Range<u64>, new: Range<u64>) {
        let now = self.now;
        let state = &mut self.spaces[space as usize];
        let is_empty = |state: &Space, range: &Range<u64>| state.regions.overlapping(range.clone()).next().is_none();
        let mut found = Vec::new();
        state.pages.visit(new.start / PAGE..new.end / PAGE, |number, page| found.push((number, *page)));
        match (is_empty(state, &old), is_empty(state, &new)) {
            (false, _) => {
                state.apply(memory_call, new.start as i64, now);
                for (number, page) in found {
                    if state.pages.get(number).content == Content::Absent {
                        state.pages.set(number, page);
                    }
                }
            }
            (true, false) => {}
            // Neither was seen: it moved past the list while that was read. Most of what moves is a heap's.
            (true, true) => state.regions.insert(unseen(new)),
        }
    }

    fn apply_told(&mut self, place: EventIndex, mapped: &Mapped) {
        let (space, now) = (self.space_of(place), self.now);
        for (memory_call, traits) in self.told_memory_calls(space, mapped) {
            let state = &mut self.spaces[space as usize];
            state.apply(&memory_call, told_result(&memory_call), now);
            state.regions.change(told_range(&memory_call), |region| region.traits |= traits);
        }
    }

    fn apply_user_change(&mut self, place: EventIndex, thread: ThreadIndex, homes: &mut Homes) {
        let Some(&change) = self.space_users.changes.get(&place) else { return };
        match change {
            UserChange::Fork { child, space, .. } => {
                let parent = self.space_of(place);
                self.now += 1;
                self.spaces[space as usize] = self.spaces[parent as usize].fork(self.now, place);
                self.now += 1;
                homes.of[child as usize] = Some(space);
            }
            UserChange::Spawn { child, is_vfork } => {
                homes.of[child as usize] = Some(self.space_of(place));
                if is_vfork {
                    self.vfork_child[thread as usize] = child;
                }
            }
            UserChange::Renew { new, .. } => {
                homes.of[thread as usize] = Some(new);
                self.end_vfork(thread);
            }
            UserChange::Leave(_) => {
                homes.of[thread as usize] = None;
                self.end_vfork(thread);
            }
        }
        self.expect_stack(change);
    }

    fn end_vfork(&mut self, child: ThreadIndex) {
        self.vfork_child.iter_mut().filter(|waited| **waited == child).for_each(|waited| *waited = NONE);
    }

    /// Makes the steps that restore every living space and start the threads in it.
    fn restore_all(&mut self, homes: &Homes) {
        let mut living: Vec<SpaceIndex> = homes.of.iter().flatten().copied().collect();
        living.sort_unstable();
        living.dedup();
        let after = self.trace.events.len() as EventIndex;
        let dwellers = |space: SpaceIndex| {
            let threads = homes.of.iter().enumerate();
            threads.filter(move |(_, home)| **home == Some(space)).map(|(thread, _)| thread as ThreadIndex)
        };
        let mut restored = Vec::new();
        for &space in &living {
            let Some(first) = dwellers(space).next() else { continue };
            self.level(space);
            let restoration = self.restoration(space);
            restoration.memory_calls.iter().for_each(|memory_call| self.note_object(memory_call));
            self.plan.demand.areas += restoration.memory_calls.len() as u64;
            self.plan.restorations.push(restoration);
            let place = self.plan.restorations.len() as u32 - 1;
            restored.push((first, self.push(after, first, Action::Restore(place))));
        }
        let all: Vec<Wait> = restored.iter().map(|&(_, step)| step).collect();
        for (space, &(first, _)) in living.iter().zip(&restored) {
            self.waits.extend(&all);
            let mut maker = self.push(after, first, Action::Pass);
            for child in dwellers(*space).skip(1) {
                maker = self.push(after, first, Action::Spawn { child });
                self.plan.programs[child as usize].home = Some(*space);
                self.inherit(child, maker);
            }
            self.spaces[*space as usize].order.note(maker);
        }
        self.space_users.roots.retain(|root| !homes.adopted.contains(root));
        self.space_users.roots.extend(restored.iter().map(|&(first, _)| first));
    }

    /// Lets all that is known of a space be from before the first step.
    fn level(&mut self, space: SpaceIndex) {
        let state = &self.spaces[space as usize];
        let mut known = Vec::new();
        for region in state.regions.iter() {
            state.pages.visit(region.start / PAGE..region.end / PAGE, |number, _| {
                let Page { content, is_doubtful, .. } = state.page(number * PAGE, Some(region));
                known.push((number, content, is_doubtful));
            });
        }
        let state = &mut self.spaces[space as usize];
        state.pages.clear(0..u64::MAX / PAGE);
        let (mut own, mut of_objects) = (0, 0);
        for (number, content, is_doubtful) in known {
            own += u64::from(content.is_mapped());
            of_objects += u64::from(content == Content::Object);
            state.pages.set(number, Page { is_doubtful, ..standing(content) });
        }
        state.regions.change(0..u64::MAX, |region| region.fresh_since = 0);
        state.forked_at = 0;
        state.resident.add(own);
        state.resident.made += own;
        self.plan.demand.object_pages += of_objects;
    }

    fn restoration(&self, space: SpaceIndex) -> Restoration {
        let state = &self.spaces[space as usize];
        let mut memory_calls = Vec::new();
        if let Some((before, requested)) = state.heap_start.zip(state.program_break) {
            memory_calls.push(MemoryCall::Break { requested, before, is_first: true });
        }
        state.regions.iter().for_each(|region| restore_region(state, region, &mut memory_calls));
        Restoration { space, memory_calls }
    }
}

/// Adds what makes a region and its pages.
fn restore_region(state: &Space, region: &Region, memory_calls: &mut Vec<MemoryCall>) {
    let runs = runs_of(state, region);
    let (start, len) = (region.start, region.end - region.start);
    let has = |wanted: Content| runs.iter().any(|&(_, content)| content == wanted);
    let mut prot = region.prot;
    prot.set(Prot::READ, prot.contains(Prot::READ) || runs.iter().any(|(_, content)| content.is_mapped()));
    prot.set(Prot::WRITE, prot.contains(Prot::WRITE) || has(Content::Own));
    let place = Place::Fixed(start);
    let flags = map_flags(region);
    memory_calls.push(MemoryCall::Map(Mapping {
        place,
        len,
        prot,
        flags,
        backing: region.backing,
        is_locked_on_fault: false,
    }));
    for (range, content) in &runs {
        let advice = match content {
            Content::Own => Advice::PopulateWrite,
            Content::Guard => Advice::GuardInstall,
            _ => Advice::PopulateRead,
        };
        memory_calls.push(MemoryCall::advise(range.start, range.end - range.start, advice));
    }
    if prot != region.prot {
        memory_calls.push(MemoryCall::Protect { start, len, prot: region.prot });
    }
    let advised = [(Traits::DONT_FORK, Advice::DontFork), (Traits::WIPE_ON_FORK, Advice::WipeOnFork)];
    let advised = advised.iter().filter(|(wanted, _)| region.traits.contains(*wanted));
    memory_calls.extend(advised.map(|&(_, advice)| MemoryCall::advise(start, len, advice)));
    let present = runs.iter().filter(|(_, content)| content.is_mapped());
    let nr_present: u64 = present.map(|(range, _)| range.end - range.start).sum();
    if region.traits.contains(Traits::LOCKED) {
        // Locking at once makes what is missing, and fails where it can't.
        let is_whole = nr_present == len && !region.prot.is_empty();
        let lock = if is_whole { PageLock::Lock } else { PageLock::LockOnFault };
        memory_calls.push(MemoryCall::Lock { start, len, lock });
    }
}

/// Returns the pages of a region that are there or guarded, those in a row together.
fn runs_of(state: &Space, region: &Region) -> Vec<(Range<u64>, Content)> {
    let mut runs: Vec<(Range<u64>, Content)> = Vec::new();
    state.pages.visit(region.start / PAGE..region.end / PAGE, |number, page| {
        let range = number * PAGE..(number + 1) * PAGE;
        match runs.last_mut() {
            _ if page.content == Content::Absent => {}
            Some((last, content)) if last.end == range.start && *content == page.content => last.end = range.end,
            _ => runs.push((range, page.content)),
        }
    });
    runs
}

fn map_flags(region: &Region) -> MapFlags {
    let kind = match region.backing {
        Backing::Anonymous => MapFlags::PRIVATE | MapFlags::ANONYMOUS,
        Backing::Object { .. } if copies_on_write(region) => MapFlags::PRIVATE,
        Backing::Object { .. } => MapFlags::SHARED,
    };
    let mut flags = kind | MapFlags::FIXED;
    flags.set(MapFlags::GROWSDOWN, region.traits.contains(Traits::GROWS_DOWN));
    flags.set(MapFlags::NORESERVE, region.traits.contains(Traits::NO_RESERVE));
    flags
}

/// Returns the region that an area of the snapshot is.
fn region_of(area: &Area, files: &[faultless_trace::File]) -> Region {
    let table = [
        (Area::GROWS_DOWN, Traits::GROWS_DOWN),
        (Area::LOCKED, Traits::LOCKED | Traits::FILLED),
        (Area::DONT_FORK, Traits::DONT_FORK),
        (Area::WIPE_ON_FORK, Traits::WIPE_ON_FORK),
        (Area::HUGE, Traits::HUGE),
        (Area::ACCOUNTED, Traits::ACCOUNTED),
        (Area::NO_RESERVE, Traits::NO_RESERVE),
        (Area::SPECIAL, Traits::SPECIAL),
        (Area::MERGEABLE, Traits::RECLAIMABLE),
    ];
    let is_set = |bit: u32| area.flags & bit != 0;
    let traits = table.iter().filter(|(bit, _)| is_set(*bit)).fold(Traits::empty(), |all, (_, traits)| all | *traits);
    // The kernel's own pages are no file's, whatever stands behind them.
    let file = area.file.filter(|file| !is_set(Area::SPECIAL) && (*file as usize) < files.len());
    let backing = backing_on(file, area.file_offset, is_set(Area::SHARED));
    let prot = Prot::from_bits_retain(area.prot.into()) & Prot::RIGHTS;
    let has_root = area.runs.iter().any(|run| matches!(run.state, PageState::Own | PageState::Guard));
    let root = if has_root { Root::Present } else { Root::Absent };
    Region { start: area.start, end: area.end, prot, backing, traits, fresh_since: 0, root }
}

/// Returns a page that stood before the first event. What its entry allows is not known; a guard allows nothing.
fn standing(content: Content) -> Page {
    let is_inherited = content != Content::Guard;
    Page { content, is_inherited, lets_stores_in: is_inherited, since: SINCE, ..Page::default() }
}

/// Returns what stands behind a page; what was swapped out is not there, and nobody knows what it is when it comes
/// back.
fn content_of(state: PageState, region: &Region) -> Content {
    match (state, region.backing) {
        (PageState::Swapped, _) => Content::Absent,
        (PageState::Guard, _) => Content::Guard,
        (PageState::Own, Backing::Object { .. }) if !copies_on_write(region) => Content::Object,
        (PageState::Own, _) => Content::Own,
        (PageState::Zero | PageState::File, Backing::Object { .. }) => Content::Object,
        (PageState::Zero | PageState::File, Backing::Anonymous) => Content::Zero,
    }
}

/// Returns the region of memory that nobody saw before it was moved.
fn unseen(range: Range<u64>) -> Region {
    Region {
        start: range.start,
        end: range.end,
        prot: Prot::READ | Prot::WRITE,
        backing: Backing::Anonymous,
        traits: Traits::ACCOUNTED,
        fresh_since: 0,
        root: Root::Present,
    }
}
