//! Calls as windows in time, and the moment in each at which a replay executes it.
//!
//! # Guarantee
//! The chosen moment lies between the thread's neighbouring events. Faults and calls whose recorded order with a call
//! is not certain are marked; whatever is not marked keeps its recorded order.
//!
//! # Protocol
//! A call takes effect somewhere between its enter and its exit, and the clocks of two CPUs differ by up to the
//! header's clock error. What takes memory away is executed at the enter, what gives memory at the exit; unless another
//! thread's fault in the window shows otherwise:
//! ```text
//! A  enter munmap(p) ................. exit      A  enter mmap -> p ............. exit
//! B              fault p                         B                    fault p
//!    executed             here                      executed      here
//! ```
//! A call that needs free room comes after whoever had the room before. That thread's faults there are certain:
//! ```text
//! A  enter mmap ................................................... exit -> p
//! B               mmap -> p    fault p    munmap(p)
//! ```

use std::ops::Range;

use faultless_abi::{MapFlags, Prot, RemapFlags, advice_of};
use faultless_trace::{Call, CallEnter, EventKind, Fault, ThreadIndex, Trace};
use faultless_vm::Advice;
use rustc_hash::FxHashMap;

use super::around::mapped_by_tables_of;
use super::decode::{goes_round, is_error, was_killed};
use super::ids::{EventIndex, NONE, SpaceIndex};
use super::likened::{Likened, likened};
use super::races::Races;
use super::regions::{PAGE, page_ceil, page_floor};
use super::space_users::SpaceUsers;
use super::under_way::UnderWay;

/// A moment: the place of an event, and below that room for what happens between two events.
pub type Moment = u64;

/// Bits below an event's place: so many calls may follow one another between two events.
const MOMENT_BITS: u32 = 24;

/// Returns the moment of an event.
pub fn at(event: EventIndex) -> Moment {
    u64::from(event) << MOMENT_BITS
}

/// One call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Window {
    /// The enter's event.
    pub enter: EventIndex,
    /// The exit's event, if the call returned.
    pub exit: Option<EventIndex>,
    /// What it returned.
    pub result: Option<i64>,
    /// The mapping that the kernel told of inside it.
    pub mapped: Option<EventIndex>,
    /// When a replay executes it.
    pub moment: Moment,
    /// When it would be executed at the latest.
    pub latest: Moment,
}

/// Ranges of addresses by the events that leave something open there.
pub type RangesByEvent = FxHashMap<EventIndex, Vec<Range<u64>>>;

/// All calls of a trace.
#[derive(Debug, Default)]
pub struct Windows {
    /// By enter's event.
    pub calls: FxHashMap<EventIndex, Window>,
    /// Mappings told of inside a call, which belong to it.
    pub is_inside: FxHashMap<EventIndex, EventIndex>,
    /// Exits without an enter; only where records were lost.
    pub orphans: Vec<EventIndex>,
    /// By exit's event: the enter's.
    enter_of: FxHashMap<EventIndex, EventIndex>,
    /// Calls that are mmap or munmap in all but name.
    likened: Likened,
    /// Events without a certain order.
    pub uncertain: Bits,
    /// What faults touched that may come before a call or behind it: by the call's enter.
    pub beside_calls: RangesByEvent,
    /// Where a call of another thread beside a fork makes pages come or go: by the fork's event and the call's enter.
    pub beside_forks: RangesByEvent,
    /// Where calls of two threads meet, or a fork and a call that changes areas.
    pub contests: RangesByEvent,
}

/// A set of events.
#[derive(Debug, Default)]
pub struct Bits(Vec<u64>);

impl Bits {
    pub(super) fn insert(&mut self, event: EventIndex) {
        let word = event as usize / 64;
        if self.0.len() <= word {
            self.0.resize(word + 1, 0);
        }
        self.0[word] |= 1 << (event % 64);
    }

    /// Returns whether the event is in the set.
    pub fn contains(&self, event: EventIndex) -> bool {
        self.0.get(event as usize / 64).is_some_and(|word| word & (1 << (event % 64)) != 0)
    }
}

impl Windows {
    /// Finds the calls of a trace and decides when each is executed.
    pub fn of(trace: &Trace, space_users: &SpaceUsers, races: &Races<'_>) -> Self {
        let mut windows = Self::default();
        windows.pair(trace);
        windows.likened = likened(trace, |enter| (windows.calls[&enter].result, windows.calls[&enter].mapped));
        let decided = Scout::new(trace, space_users, &windows).decide_all(races);
        let (mut uncertain, mut beside_calls) = (Bits::default(), RangesByEvent::default());
        for Decided { window, uncertain: others, touched } in decided {
            others.into_iter().for_each(|event| uncertain.insert(event));
            if !touched.is_empty() {
                beside_calls.insert(window.enter, touched);
            }
            windows.calls.insert(window.enter, window);
        }
        let scout = Scout::new(trace, space_users, &windows);
        let mut contests = scout.contests();
        let beside_forks = scout.doubt_forks(races, &mut uncertain, &mut contests);
        Self { uncertain, beside_calls, beside_forks, contests, ..windows }
    }

    fn pair(&mut self, trace: &Trace) {
        let mut open: Vec<EventIndex> = vec![NONE; trace.threads.len()];
        for (place, event) in trace.events.iter().enumerate() {
            let (place, open) = (place as EventIndex, &mut open[event.thread as usize]);
            match event.kind {
                EventKind::CallEnter(_) => {
                    *open = place;
                    let window = Window {
                        enter: place,
                        exit: None,
                        result: None,
                        mapped: None,
                        moment: at(place),
                        latest: at(place),
                    };
                    self.calls.insert(place, window);
                }
                EventKind::CallExit(exit) => self.close(std::mem::replace(open, NONE), place, exit.result),
                EventKind::Mapped(_) if *open != NONE => self.note_mapped(*open, place),
                EventKind::Exec | EventKind::Exit => *open = NONE,
                _ => {}
            }
        }
    }

    /// Returns the call that begins at an event, as mmap or munmap if it does the same, and what it returned.
    pub fn call_at(&self, trace: &Trace, event: EventIndex) -> Option<(CallEnter, Option<i64>)> {
        let EventKind::CallEnter(enter) = trace.events[event as usize].kind else { return None };
        let likened = self.likened.get(&event).map(|&(enter, result)| (enter, Some(result)));
        likened.or_else(|| Some((enter, self.calls.get(&event)?.result)))
    }

    fn close(&mut self, enter: EventIndex, exit: EventIndex, result: i64) {
        match self.calls.get_mut(&enter) {
            Some(window) => {
                *window = Window { exit: Some(exit), result: Some(result), ..*window };
                self.enter_of.insert(exit, enter);
            }
            None => self.orphans.push(exit),
        }
    }

    /// Lets a call be executed later.
    pub fn postpone(&mut self, enter: EventIndex, moment: Moment) {
        if let Some(window) = self.calls.get_mut(&enter) {
            window.moment = moment;
        }
    }

    fn note_mapped(&mut self, enter: EventIndex, mapped: EventIndex) {
        self.is_inside.insert(mapped, enter);
        if let Some(window) = self.calls.get_mut(&enter) {
            window.mapped = Some(mapped);
        }
    }
}

/// What a call does to ranges of addresses.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Reach {
    /// Memory is taken away, or rights on it.
    pub takes: Range<u64>,
    /// Memory is given, or rights on it.
    pub gives: Range<u64>,
    /// Pages are made, or made anew: they may be absent for a moment.
    pub makes: Range<u64>,
}

impl Reach {
    /// Returns what a call reaches, its result and the break before it being known.
    pub fn of(enter: &CallEnter, result: i64, old_break: Option<u64>) -> Self {
        let [start, len, third, ..] = enter.args;
        let old = span(start, len);
        match enter.call {
            call if was_killed(call, result) => Self::default(),
            Call::Mprotect | Call::PkeyMprotect if goes_round(start, len) => Self::default(),
            Call::Mprotect | Call::PkeyMprotect if Prot::from_bits_retain(third).contains(Prot::WRITE) => {
                Self::giving(old)
            }
            Call::Mprotect | Call::PkeyMprotect => Self::taking(old),
            Call::Madvise if drops(third) || advice_of(third as u32) == Some(Advice::GuardInstall) => Self::taking(old),
            Call::Madvise if advice_of(third as u32) == Some(Advice::GuardRemove) => Self::giving(old),
            Call::Madvise if fills(third) => Self { makes: old, ..Self::default() },
            _ if is_error(result) => Self::default(),
            Call::Munmap => Self::taking(old),
            Call::Mmap => Self::giving(span(result as u64, len)),
            Call::Mremap => Self::of_remap(old, span(result as u64, third)),
            Call::Brk => old_break.map_or(Self::default(), |old_break| Self::of_break(old_break, result as u64)),
            _ => Self::default(),
        }
    }

    /// What stays where it is, is neither taken nor given.
    fn of_remap(old: Range<u64>, new: Range<u64>) -> Self {
        match (new.start == old.start, new.end < old.end) {
            (false, _) => Self { takes: old, gives: new, ..Self::default() },
            (true, true) => Self::taking(new.end..old.end),
            (true, false) => Self::giving(old.end..new.end),
        }
    }

    fn of_break(old: u64, new: u64) -> Self {
        let (old, new) = (page_ceil(old), page_ceil(new));
        if new > old { Self::giving(old..new) } else { Self::taking(new..old) }
    }

    fn taking(takes: Range<u64>) -> Self {
        Self { takes, ..Self::default() }
    }

    fn giving(gives: Range<u64>) -> Self {
        Self { gives, ..Self::default() }
    }

    /// Returns all that it reaches.
    pub fn ranges(&self) -> [&Range<u64>; 3] {
        [&self.takes, &self.gives, &self.makes]
    }

    fn touches(&self, address: u64) -> bool {
        self.ranges().into_iter().any(|range| range.contains(&address))
    }

    /// Returns whether a fault that brings its neighbours may map some of what the call reaches.
    fn touches_table_of(&self, page: u64) -> bool {
        let table = mapped_by_tables_of(&(page / PAGE..page / PAGE + 1));
        self.ranges().into_iter().any(|range| range.start < table.end && table.start < range.end)
    }
}

/// Returns whether the advice takes pages away.
pub fn drops(advice: u64) -> bool {
    use Advice::{DontNeed, DontNeedLocked, Free, Remove};
    matches!(advice_of(advice as u32), Some(DontNeed | Free | Remove | DontNeedLocked))
}

/// Returns whether the advice makes or removes guards.
pub fn guards(advice: u64) -> bool {
    matches!(advice_of(advice as u32), Some(Advice::GuardInstall | Advice::GuardRemove))
}

/// Returns whether a call takes whatever room is free, if it needs any.
pub fn needs_room(enter: &CallEnter) -> bool {
    match enter.call {
        Call::Mmap => !MapFlags::from_bits_retain(enter.args[3]).contains(MapFlags::FIXED),
        Call::Mremap => !RemapFlags::from_bits_retain(enter.args[3]).contains(RemapFlags::FIXED),
        _ => false,
    }
}

/// Returns whether the advice makes pages.
pub fn fills(advice: u64) -> bool {
    matches!(advice_of(advice as u32), Some(Advice::PopulateRead | Advice::PopulateWrite))
}

/// Returns the pages' bytes that a start and a length name.
pub fn span(start: u64, len: u64) -> Range<u64> {
    page_floor(start)..page_ceil(start.saturating_add(len).min(u64::MAX - PAGE))
}

/// What the calls decided so far leave behind.
#[derive(Debug, Default)]
struct SoFar {
    /// Each space's break.
    breaks: FxHashMap<SpaceIndex, u64>,
    /// Each thread's last moment.
    moments: FxHashMap<ThreadIndex, Moment>,
}

/// A call with its moment, and others' faults that may come before it or behind it.
struct Decided {
    window: Window,
    /// Those on its memory, for the sake of which they are uncertain.
    uncertain: Vec<EventIndex>,
    /// The pages of these, and of those that may map neighbours there.
    touched: Vec<Range<u64>>,
}

impl From<Window> for Decided {
    fn from(window: Window) -> Self {
        Self { window, uncertain: Vec::new(), touched: Vec::new() }
    }
}

/// Looks at what surrounds a call.
pub(super) struct Scout<'a> {
    pub(super) trace: &'a Trace,
    pub(super) space_users: &'a SpaceUsers,
    pub(super) windows: &'a Windows,
}

impl<'a> Scout<'a> {
    fn new(trace: &'a Trace, space_users: &'a SpaceUsers, windows: &'a Windows) -> Self {
        Self { trace, space_users, windows }
    }

    fn decide_all(&self, races: &Races<'_>) -> Vec<Decided> {
        let mut enters: Vec<EventIndex> = self.windows.calls.keys().copied().collect();
        enters.sort_unstable();
        let mut so_far = SoFar::default();
        let heaps = self.trace.snapshot.spaces.iter().zip(0..).filter(|(state, _)| state.heap.start != 0);
        so_far.breaks.extend(heaps.map(|(state, space)| (space, state.heap.end)));
        let mut under_way = self.faults_under_way(races);
        enters.iter().map(|enter| self.decide(self.windows.calls[enter], &mut so_far, &mut under_way)).collect()
    }

    /// Follows the faults that may not be over.
    pub(super) fn faults_under_way(&self, races: &'a Races<'a>) -> UnderWay<'a, impl Fn(EventIndex) -> Option<u64>> {
        let trace = self.trace;
        let is_fault = move |event: EventIndex| matches!(trace.events[event as usize].kind, EventKind::Fault(_));
        UnderWay::new(trace, self.space_users, move |event| is_fault(event).then(|| races.end_ns(event)))
    }

    fn decide(
        &self,
        window: Window,
        so_far: &mut SoFar,
        under_way: &mut UnderWay<'_, impl Fn(EventIndex) -> Option<u64>>,
    ) -> Decided {
        let (Some(exit), Some((enter, result))) = (window.exit, self.call(window.enter)) else { return window.into() };
        let space = self.space_users.space_of[window.enter as usize];
        let reach = Reach::of(&enter, result, so_far.breaks.get(&space).copied());
        if enter.call == Call::Brk && !was_killed(enter.call, result) {
            so_far.breaks.insert(space, result as u64);
        }
        let default = if reach.takes.is_empty() { at(exit) } else { at(window.enter) };
        if !self.is_shared(window.enter) || reach == Reach::default() {
            let (_, latest) = self.room(&(window.enter..exit));
            let lock = self.is_shared(window.enter).then(|| self.lock_moment(&enter, &(window.enter..exit), result));
            // As below.
            let floor = so_far.moments.get(&self.thread(window.enter)).copied().unwrap_or_default();
            let default = lock.flatten().map_or(default, |moment| moment.max(at(window.enter)).max(floor));
            return Window { moment: default, latest: latest.max(default), ..window }.into();
        }
        let others = self.others_inside(window.enter, exit, &reach);
        // Not before the thread's previous call, which may have been moved towards this one.
        let floor = so_far.moments.entry(self.thread(window.enter)).or_default();
        *floor = self.moment(&others, &reach, default, window.enter..exit).max(*floor);
        let moment = *floor;
        let (_, latest) = self.room(&(window.enter..exit));
        let taken = self.taken_for(&enter, &(window.enter..exit), &reach);
        let uncertain = others.into_iter().filter(|&(event, fault)| !self.is_before(event, &fault, &taken));
        let mut uncertain: Vec<EventIndex> = uncertain.map(|(event, _)| event).collect();
        let page_of = |event: EventIndex| match self.trace.events[event as usize].kind {
            EventKind::Fault(fault) => Some(page_floor(fault.address)),
            _ => None,
        };
        let mut touched: Vec<_> = uncertain.iter().filter_map(|&event| page_of(event)).collect();
        for (event, page) in under_way.at(window.enter).filter_map(|event| Some((event, page_of(event)?))) {
            uncertain.extend(reach.touches(page).then_some(event));
            touched.extend(reach.touches_table_of(page).then_some(page));
        }
        let touched = touched.into_iter().map(|page| page..page + PAGE).collect();
        Decided { window: Window { moment, latest: latest.max(moment), ..window }, uncertain, touched }
    }

    /// Returns what other threads unmapped in the window of a call that needs free room and got some there, or within
    /// the clock error before it, each with the event at which it began.
    fn taken_for(&self, enter: &CallEnter, window: &Range<EventIndex>, reach: &Reach) -> Vec<(EventIndex, Range<u64>)> {
        if !needs_room(enter) || reach.gives.is_empty() {
            return Vec::new();
        }
        let thread = self.thread(window.start);
        let enters = self.first_near(window.start)..window.end;
        let neighbours = enters.filter(|&event| self.is_neighbour(event, thread, window.start));
        neighbours.filter_map(|event| Some((event, self.unmapped_by(event)?))).collect()
    }

    /// Returns whether a fault surely came before one of these unmapped its page: the room was not free yet then.
    fn is_before(&self, fault: EventIndex, Fault { address, .. }: &Fault, taken: &[(EventIndex, Range<u64>)]) -> bool {
        let time_ns = |event: EventIndex| self.trace.events[event as usize].time_ns;
        let is_apart = |event: EventIndex| time_ns(fault) + self.trace.header.clock_error_ns < time_ns(event);
        let is_ordered = |event: EventIndex| self.thread(fault) == self.thread(event) || is_apart(event);
        taken.iter().any(|(event, range)| fault < *event && range.contains(address) && is_ordered(*event))
    }

    /// Returns what a call that begins at an event takes away by unmapping or moving it.
    fn unmapped_by(&self, event: EventIndex) -> Option<Range<u64>> {
        let (enter, result) = self.call(event)?;
        matches!(enter.call, Call::Munmap | Call::Mremap).then(|| Reach::of(&enter, result, None).takes)
    }

    /// Returns the call that begins at an event and what it returned, 0 if it never did.
    pub(super) fn call(&self, event: EventIndex) -> Option<(CallEnter, i64)> {
        let (enter, result) = self.windows.call_at(self.trace, event)?;
        Some((enter, result.unwrap_or_default()))
    }

    /// Returns the moment that suits the other threads' events in the window, as far as one moment can.
    fn moment(
        &self,
        others: &[(EventIndex, Fault)],
        reach: &Reach,
        default: Moment,
        window: Range<EventIndex>,
    ) -> Moment {
        let regiven = self.regiven(&window, reach);
        let taken_before = self.taken_before(&window, reach);
        let is_given = |event: EventIndex, fault: &Fault| {
            taken_before.is_none_or(|taken| event > taken) && reach.gives.contains(&fault.address)
        };
        let is_taken = |fault: &Fault| reach.takes.contains(&fault.address);
        let given = others.iter().find(|(event, fault)| is_given(*event, fault));
        let given = given.map(|&(event, _)| at(event).saturating_sub(1));
        let taken =
            others.iter().rfind(|(event, fault)| *event < regiven && is_taken(fault)).map(|&(event, _)| at(event) + 1);
        let wanted = given.map_or(default, |latest| default.min(latest)).max(taken.unwrap_or(0));
        let wanted = wanted.max(taken_before.map_or(0, |taken| at(taken) + 1));
        let (earliest, latest) = self.room(&window);
        wanted.clamp(earliest, latest.max(earliest))
    }

    /// Returns the first exit in the window, or within the clock error behind it, by which another thread got memory
    /// that this call took away.
    fn regiven(&self, window: &Range<EventIndex>, reach: &Reach) -> EventIndex {
        let thread = self.thread(window.start);
        let is_regiven = |exit: EventIndex| {
            let Some(&enter) = self.windows.enter_of.get(&exit) else { return false };
            let Some((enter, result)) = self.call(enter) else { return false };
            let gives = Reach::of(&enter, result, None).gives;
            gives.start < reach.takes.end && reach.takes.start < gives.end
        };
        let mut exits = window.start..=self.last_near(window.end);
        exits.find(|&event| self.is_neighbour(event, thread, window.start) && is_regiven(event)).unwrap_or(NONE)
    }

    /// Returns the last enter in the window, or within the clock error before it, by which another thread took memory
    /// away that this call gave: what was touched there before was that thread's, and this call came later.
    fn taken_before(&self, window: &Range<EventIndex>, reach: &Reach) -> Option<EventIndex> {
        let thread = self.thread(window.start);
        let is_taken = |event: EventIndex| {
            let takes = self.unmapped_by(event).unwrap_or_default();
            takes.start < reach.gives.end && reach.gives.start < takes.end
        };
        let mut enters = (self.first_near(window.start)..window.end).rev();
        enters.find(|&event| self.is_neighbour(event, thread, window.start) && is_taken(event))
    }

    /// Returns whether the event is another thread's, in the space of the event `of`.
    pub(super) fn is_neighbour(&self, event: EventIndex, thread: ThreadIndex, of: EventIndex) -> bool {
        self.thread(event) != thread
            && self.space_users.space_of[event as usize] == self.space_users.space_of[of as usize]
    }

    /// Returns the first and the last moment between the thread's event before the window and its event after it.
    fn room(&self, window: &Range<EventIndex>) -> (Moment, Moment) {
        let thread = self.thread(window.start);
        let before = self.near(window.start, Direction::Back).take_while(|&event| self.thread(event) != thread).last();
        let after = self.near(window.end, Direction::Forth).take_while(|&event| self.thread(event) != thread).last();
        (at(before.unwrap_or(window.start)).saturating_sub(1), at(after.unwrap_or(window.end)) + 1)
    }

    pub(super) fn thread(&self, event: EventIndex) -> ThreadIndex {
        self.trace.events[event as usize].thread
    }

    /// Visits the events within the clock error of one, going away from it.
    pub(super) fn near(&self, event: EventIndex, direction: Direction) -> impl Iterator<Item = EventIndex> + '_ {
        let (time_ns, error_ns) = (self.trace.events[event as usize].time_ns, self.trace.header.clock_error_ns);
        let next = move |from: EventIndex| match direction {
            Direction::Back => from.checked_sub(1),
            Direction::Forth => Some(from + 1).filter(|&event| (event as usize) < self.trace.events.len()),
        };
        std::iter::successors(next(event), move |&from| next(from))
            .take_while(move |&other| self.trace.events[other as usize].time_ns.abs_diff(time_ns) <= error_ns)
    }

    /// Returns the first event within the clock error before one.
    fn first_near(&self, event: EventIndex) -> EventIndex {
        self.near(event, Direction::Back).last().unwrap_or(event)
    }

    /// Returns the last event within the clock error behind one.
    fn last_near(&self, event: EventIndex) -> EventIndex {
        self.near(event, Direction::Forth).last().unwrap_or(event)
    }

    /// Collects the faults of other threads of the space that the call reaches, inside its window or near its edges.
    fn others_inside(&self, enter: EventIndex, exit: EventIndex, reach: &Reach) -> Vec<(EventIndex, Fault)> {
        let fault = |event: EventIndex| match self.trace.events[event as usize].kind {
            EventKind::Fault(fault) if reach.touches(fault.address) => Some((event, fault)),
            _ => None,
        };
        let all = self.first_near(enter)..=self.last_near(exit);
        let others = all.filter(|&event| self.is_neighbour(event, self.thread(enter), enter));
        others.filter_map(fault).collect()
    }

    pub(super) fn is_shared(&self, event: EventIndex) -> bool {
        self.space_users.spaces[self.space_users.space_of[event as usize] as usize].most_users > 1
    }
}

/// Which way to look.
#[derive(Clone, Copy, Debug)]
pub(super) enum Direction {
    Back,
    Forth,
}
