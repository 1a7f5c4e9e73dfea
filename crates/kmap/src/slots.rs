//! Slots with a count each, behind one lock.
//!
//! # Guarantee
//! A frame has at most one slot of a set. A slot's count is 0 if its entry is clear and no CPU remembers another one, 1
//! if the entry is kept for the next who wants the frame, and one more for each holder.
//!
//! # How a slot is used again
//! A search goes on from where the last one ended. Slots of count 1 are idle: their entry may be cleared, but CPUs
//! remember it until they are flushed. The ways differ in when that is:
//! ```text
//! AtWrap     the search comes round: clear all idle entries, flush everything, the lock being held (Linux 2.4)
//! Unlocked   the same, but the lock is dropped while CPUs are flushed; others share it with what is left
//! ByHalves   the search enters one half: the idle slots of the other are cleared and flushed, without the lock
//! OneByOne   the search meets an idle slot: its entry is cleared, and that one slot is flushed on all CPUs
//! ```
//! Where every slot is held, a task sleeps until one is released.
//!
//! | race | why it is sound |
//! |---|---|
//! | a frame is wanted while its slot waits for a flush | the slot is not found for it any more: it gets another one; the old one's count is `FLUSHING` until the flush is over |
//! | a search while slots are being flushed | takes those of count 0 alone; if there are none, it waits for the flush like for a release |
//! | a release while somebody falls asleep | the word that he sleeps on is changed under the lock, after he counted himself there |
//! | two searches come round at once (Unlocked, ByHalves) | one flush at a time: the second clears nothing, and takes what is free or waits. The end of the first would free what the second cleared after its begin |
//! | a task comes to another CPU beside a flush of its process's (`PerProcess`) | the process's CPUs are read under the lock. Who touched a slot that is idle was among them before, and released it under the lock |

use alloc::boxed::Box;
use core::ops::{Deref, DerefMut, Range};
use faultless_platform::{Atomic, AtomicInteger, CachePadded, CpuSet, Ordering, Platform};
use faultless_sync::{LockClass, SpinMutex, SpinMutexGuard};

use crate::audit::Wrong;
use crate::broken::{self, Broken};
use crate::{Counters, Shape, Windows};

/// When idle slots are flushed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reuse {
    AtWrap,
    Unlocked,
    ByHalves,
    OneByOne,
}

/// A count that says: cleared, and remembered by CPUs until a flush that is under way is over.
const FLUSHING: u32 = u32::MAX;

/// Who takes the lock to map, by Linux's name.
const KMAP_HIGH: &str = "kmap_high";
/// Who takes it to unmap.
const KUNMAP_HIGH: &str = "kunmap_high";

/// The lock's part. Atomics, because each access is one to a line that CPUs take from each other; the lock orders them.
struct State<P: Platform> {
    /// What lockmeter keeps in the lock's word: on the lock's line, too.
    meter: P::AtomicU32,
    table: Box<Table<P>>,
}

/// Slots and their frames.
struct Table<P: Platform> {
    /// Where the last search ended.
    last: usize,
    /// The slot plus one of each frame.
    slot_of: Box<[P::AtomicU32]>,
    /// The frame behind each slot.
    frame_of: Box<[P::AtomicU32]>,
    counts: Box<[P::AtomicU32]>,
    nr_sleepers: usize,
    /// Whether a flush is under way without the lock.
    is_flushing: bool,
}

/// What a search ended with.
enum Search {
    Found(usize),
    /// These were cleared, and are to be flushed without the lock.
    Flush(Range<usize>),
    /// This one was cleared, and is the caller's when it is flushed.
    FlushOne(usize),
    Nothing,
}

/// A set of slots: `first` and those behind it.
pub(crate) struct Slots<P: Platform, C: LockClass> {
    state: CachePadded<SpinMutex<P, State<P>, C>>,
    is_metered: bool,
    /// Changes with every release that somebody waits for.
    released: P::AtomicU32,
    first: usize,
    reuse: Reuse,
}

/// Reads a cell of those who exclude each other.
pub(crate) fn get<A: Atomic<Value = u32>>(cell: &A) -> u32 {
    // Relaxed: under the lock, or the CPU's own.
    cell.load(Ordering::Relaxed)
}

/// Writes a cell of those who exclude each other.
pub(crate) fn set<A: Atomic<Value = u32>>(cell: &A, value: u32) {
    // Relaxed: under the lock, or the CPU's own.
    cell.store(value, Ordering::Relaxed);
}

impl<P: Platform> Table<P> {
    /// Takes an idle slot from its frame.
    fn clear(&self, windows: &Windows<P>, first: usize, place: usize) {
        set(&self.slot_of[get(&self.frame_of[place]) as usize], 0);
        windows.clear((first + place) as u32);
    }

    /// Clears what is idle in a range; says whether anything was.
    fn clear_idle(&self, windows: &Windows<P>, first: usize, range: Range<usize>, left: u32) -> bool {
        let mut is_any = false;
        let is_idle = |count: u32| count == 1 || count == 2 && broken::is(Broken::PinnedReused);
        for place in range.filter(|&place| is_idle(get(&self.counts[place]))) {
            self.clear(windows, first, place);
            set(&self.counts[place], left);
            is_any = true;
        }
        is_any
    }

    /// Clears what is idle in a range, for a flush without the lock; says whether there is to be one. One at a time: a
    /// flush must not free at its end what was cleared after its begin.
    fn begins_flush(&mut self, windows: &Windows<P>, first: usize, range: Range<usize>) -> bool {
        let begins =
            (!self.is_flushing || broken::is(Broken::TwoFlushes)) && self.clear_idle(windows, first, range, FLUSHING);
        self.is_flushing |= begins;
        begins
    }

    fn search(&mut self, windows: &Windows<P>, first: usize, reuse: Reuse, cpus: &CpuSet) -> Search {
        let nr_slots = self.counts.len();
        let mut nr_left = nr_slots;
        while nr_left > 0 {
            self.last = (self.last + 1) % nr_slots;
            let half = nr_slots / 2;
            match reuse {
                Reuse::AtWrap if self.last == 0 => {
                    self.clear_idle(windows, first, 0..nr_slots, 0);
                    if !broken::is(Broken::NoFlush) {
                        windows.flush(cpus);
                    }
                    // What was passed by before may be free now.
                    nr_left = nr_slots;
                }
                Reuse::Unlocked if self.last == 0 && self.begins_flush(windows, first, 0..nr_slots) => {
                    return Search::Flush(0..nr_slots);
                }
                Reuse::ByHalves if self.last == 0 || self.last == half => {
                    let other = if self.last == 0 { half..nr_slots } else { 0..half };
                    if self.begins_flush(windows, first, other.clone()) {
                        // This slot is looked at again: it may be free.
                        self.last = (self.last + nr_slots - 1) % nr_slots;
                        return Search::Flush(other);
                    }
                }
                _ => {}
            }
            match get(&self.counts[self.last]) {
                0 => return Search::Found(self.last),
                _ if broken::is(Broken::CountUnchecked) => return Search::Found(self.last),
                1 if reuse == Reuse::OneByOne => {
                    self.clear(windows, first, self.last);
                    set(&self.counts[self.last], FLUSHING);
                    return Search::FlushOne(self.last);
                }
                _ => {}
            }
            nr_left -= 1;
        }
        Search::Nothing
    }
}

/// The slots, locked.
struct Locked<'a, P: Platform, C: LockClass> {
    guard: SpinMutexGuard<'a, P, State<P>, C>,
    is_metered: bool,
}

impl<P: Platform, C: LockClass> Deref for Locked<'_, P, C> {
    type Target = Table<P>;

    fn deref(&self) -> &Table<P> {
        &self.guard.table
    }
}

impl<P: Platform, C: LockClass> DerefMut for Locked<'_, P, C> {
    fn deref_mut(&mut self) -> &mut Table<P> {
        &mut self.guard.table
    }
}

impl<P: Platform, C: LockClass> Drop for Locked<'_, P, C> {
    fn drop(&mut self) {
        if self.is_metered {
            get(&self.guard.meter);
        }
    }
}

impl<P: Platform, C: LockClass> Slots<P, C> {
    /// Returns free slots, the first of which has the number `first`.
    pub(crate) fn new(first: usize, shape: &Shape, reuse: Reuse) -> Self {
        let (nr_slots, nr_frames) = (shape.nr_slots, shape.nr_frames);
        let cells = |nr| (0..nr).map(|_| P::AtomicU32::new(0)).collect();
        let table = Table {
            last: 0,
            slot_of: cells(nr_frames),
            frame_of: cells(nr_slots),
            counts: cells(nr_slots),
            nr_sleepers: 0,
            is_flushing: false,
        };
        let state = State { meter: P::AtomicU32::new(0), table: Box::new(table) };
        Self {
            state: CachePadded::new(SpinMutex::classed(state)),
            is_metered: shape.is_metered,
            released: P::AtomicU32::new(0),
            first,
            reuse,
        }
    }

    /// Takes the lock.
    fn lock(&self, caller: &'static str) -> Locked<'_, P, C> {
        let guard = self.state.lock_in(caller);
        if self.is_metered {
            set(&guard.meter, 1);
        }
        Locked { guard, is_metered: self.is_metered }
    }

    /// Returns the frame's slot, with a holder more; `cpus` are those that may remember slots of this set.
    pub(crate) fn map(&self, windows: &Windows<P>, counters: &Counters<P>, pfn: u32, cpus: impl Fn() -> CpuSet) -> u32 {
        loop {
            let mut state = self.lock(KMAP_HIGH);
            let known = get(&state.slot_of[pfn as usize]);
            if let Some(place) = known.checked_sub(1) {
                let count = &state.counts[place as usize];
                set(count, get(count) + 1);
                counters.hits.add(1);
                return (self.first + place as usize) as u32;
            }
            match state.search(windows, self.first, self.reuse, &cpus()) {
                Search::Found(place) => return self.give(windows, &state, place, pfn),
                Search::Flush(range) => {
                    drop(state);
                    windows.flush(&cpus());
                    let mut state = self.lock(KMAP_HIGH);
                    state.is_flushing = false;
                    range.filter(|&place| get(&state.counts[place]) == FLUSHING).for_each(|place| {
                        set(&state.counts[place], 0);
                    });
                    self.wake(&mut state);
                }
                Search::FlushOne(place) => {
                    drop(state);
                    windows.flush_slot(&cpus(), (self.first + place) as u32);
                    let mut state = self.lock(KMAP_HIGH);
                    set(&state.counts[place], 0);
                    // Somebody may have mapped the frame meanwhile: then the slot is for the next.
                    if get(&state.slot_of[pfn as usize]) == 0 {
                        return self.give(windows, &state, place, pfn);
                    }
                    self.wake(&mut state);
                }
                Search::Nothing => {
                    state.nr_sleepers += 1;
                    // Relaxed: changed under the lock.
                    let seen = self.released.load(Ordering::Relaxed);
                    drop(state);
                    counters.sleeps.add(1);
                    P::park(&self.released, seen);
                    self.lock(KMAP_HIGH).nr_sleepers -= 1;
                }
            }
        }
    }

    fn give(&self, windows: &Windows<P>, state: &Table<P>, place: usize, pfn: u32) -> u32 {
        let slot = (self.first + place) as u32;
        set(&state.slot_of[pfn as usize], place as u32 + 1);
        set(&state.frame_of[place], pfn);
        set(&state.counts[place], 2);
        windows.set(slot, pfn);
        slot
    }

    /// Takes a holder off a slot.
    pub(crate) fn unmap(&self, slot: u32) {
        let mut state = self.lock(KUNMAP_HIGH);
        let count = &state.counts[slot as usize - self.first];
        let left = get(count) - 1;
        assert!((1..FLUSHING - 1).contains(&left), "slot {slot} is released by somebody who does not hold it");
        set(count, left);
        if left == 1 {
            self.wake(&mut state);
        }
    }

    /// Says what is wrong with a slot, if anything is.
    ///
    /// # Safety
    /// Nobody maps meanwhile.
    pub(crate) unsafe fn audit(&self, windows: &Windows<P>, nr_holders: &dyn Fn(u32) -> u32) -> Result<(), Wrong> {
        // SAFETY: the caller's promise.
        let is_remembered = |slot| unsafe { windows.is_remembered(slot) };
        let state = self.lock("audit");
        let wrong_at = |place: usize| {
            let (slot, count) = ((self.first + place) as u32, get(&state.counts[place]));
            let (frame, entry) = (get(&state.frame_of[place]), windows.entry(slot));
            let what = match count {
                0 | FLUSHING if entry.is_some() => "is mapped although it is free",
                0 if is_remembered(slot) => "is free, and a CPU remembers a frame",
                0 => return None,
                FLUSHING if !state.is_flushing => "waits for a flush that is over",
                FLUSHING => return None,
                _ if entry != Some(frame) => "is mapped to another frame than it is kept for",
                _ if get(&state.slot_of[frame as usize]) as usize != place + 1 => "is not the one of its frame",
                _ if count - 1 != nr_holders(slot) => "has a count that is not that of its holders",
                _ => return None,
            };
            Some(Wrong { slot, what })
        };
        (0..state.counts.len()).find_map(wrong_at).map_or(Ok(()), Err)
    }

    /// Wakes whoever waits for a slot.
    fn wake(&self, state: &mut Table<P>) {
        if state.nr_sleepers > 0 {
            // Relaxed: read under the lock, and by `park`, which compares it with what was read so.
            self.released.fetch_add(1, Ordering::Relaxed);
            P::unpark(&raw const self.released, usize::MAX);
        }
    }
}
