//! Calls of two threads about the same memory at the same time: which came first is not known.
//!
//! # Guarantee
//! Where two calls overlap in time and in memory, and the outcome depends on their order, both are marked with the
//! common range, and so is a fork beside a call that changes what is mapped. From then on a replay's space may be
//! another there than the recorded one, until a call maps or unmaps that memory whatever was there before.
//! ```text
//! A   enter mprotect(p, PROT_READ) ....... exit
//! B         enter munmap(p) ................... exit    A: 0 or ENOMEM
//! ```

use std::ops::Range;

use faultless_abi::{MapFlags, RemapFlags};
use faultless_trace::{Call, CallEnter};

use super::decode::is_error;
use super::ids::EventIndex;
use super::under_way::UnderWay;
use super::windows::{RangesByEvent, Scout, drops, fills, guards, needs_room, span};

/// What a call does to its ranges, as far as it matters in which order it comes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Effect {
    /// It maps, unmaps or moves.
    Maps,
    /// It unmaps, and nothing else.
    Unmaps,
    /// It sets these rights.
    Protects(u64),
    /// It drops pages.
    Drops,
    /// It puts guards there, or takes them away.
    Guards(u64),
    /// It locks memory, or lets it go.
    Locks(bool),
    /// It makes pages, if rights and guards let it.
    Fills,
    /// Its result says what is mapped.
    Asks,
}

impl Effect {
    fn of(enter: &CallEnter) -> Option<Self> {
        match enter.call {
            Call::Mmap | Call::Mremap => Some(Self::Maps),
            Call::Munmap => Some(Self::Unmaps),
            Call::Mprotect | Call::PkeyMprotect => Some(Self::Protects(enter.args[2])),
            Call::Madvise if drops(enter.args[2]) => Some(Self::Drops),
            Call::Madvise if guards(enter.args[2]) => Some(Self::Guards(enter.args[2])),
            Call::Madvise if fills(enter.args[2]) => Some(Self::Fills),
            Call::Madvise => Some(Self::Asks),
            Call::Mlock | Call::Mlock2 | Call::Munlock => Some(Self::Locks(enter.call != Call::Munlock)),
            Call::Msync | Call::Mincore => Some(Self::Asks),
            _ => None,
        }
    }

    /// Returns whether the order of the two makes no difference.
    fn commutes_with(self, other: Self) -> bool {
        use Effect::{Asks, Drops, Fills, Guards, Locks, Maps, Protects, Unmaps};
        match (self, other) {
            (Maps, _) | (_, Maps) => false,
            (Unmaps, Unmaps) => true,
            (Unmaps, _) | (_, Unmaps) => false,
            (Protects(one), Protects(two)) | (Guards(one), Guards(two)) => one == two,
            (Locks(one), Locks(two)) => one == two,
            (Guards(_), Drops | Asks) | (Drops | Asks, Guards(_)) => false,
            // What is locked can't be dropped or guarded; what is barred or guarded can't be filled.
            (Locks(_), Drops | Guards(_) | Protects(_)) | (Drops | Guards(_) | Protects(_), Locks(_)) => false,
            (Fills, Drops | Guards(_) | Protects(_)) | (Drops | Guards(_) | Protects(_), Fills) => false,
            (Protects(_) | Drops | Asks | Guards(_) | Locks(_) | Fills, _) => true,
        }
    }
}

/// Returns the ranges that a call reaches, or asked for if it was refused.
pub fn ranges_of(enter: &CallEnter, result: i64) -> Vec<Range<u64>> {
    let [start, len, third, fourth, fifth, _] = enter.args;
    let ranges = match enter.call {
        Call::Mmap if !is_error(result) => vec![span(result as u64, len)],
        Call::Mmap if MapFlags::from_bits_retain(fourth).is_fixed() => vec![span(start, len)],
        Call::Mmap => Vec::new(),
        // Of no length it duplicates what is there.
        Call::Mremap if !is_error(result) => vec![span(start, len.max(1)), span(result as u64, third)],
        Call::Mremap if RemapFlags::from_bits_retain(fourth).contains(RemapFlags::FIXED) => {
            vec![span(start, len.max(1)), span(fifth, third)]
        }
        Call::Mremap => vec![span(start, len.max(1))],
        _ if Effect::of(enter).is_some() => vec![span(start, len)],
        _ => Vec::new(),
    };
    ranges.into_iter().filter(|range| range.start < range.end).collect()
}

/// Returns what a call gets that takes whatever room is free, so that nobody else knows of it beforehand.
fn room_of(enter: &CallEnter, result: i64) -> Option<Range<u64>> {
    let is_named = enter.call == Call::Mmap && MapFlags::from_bits_retain(enter.args[3]).is_fixed();
    // The last of its ranges is where the memory is behind it.
    ranges_of(enter, result).pop().filter(|_| needs_room(enter) && !is_named && !is_error(result))
}

impl Scout<'_> {
    /// Finds the calls that meet.
    pub(super) fn contests(&self) -> RangesByEvent {
        let mut enters: Vec<EventIndex> = self.windows.calls.keys().copied().filter(|&e| self.is_shared(e)).collect();
        enters.sort_unstable();
        let mut open = UnderWay::new(self.trace, self.space_users, |event| self.call_end_ns(event));
        let mut contests = RangesByEvent::default();
        for enter in enters {
            let others: Vec<EventIndex> = open.at(enter).collect();
            for other in others {
                for range in self.contested(enter, other) {
                    contests.entry(enter).or_default().push(range.clone());
                    contests.entry(other).or_default().push(range);
                }
            }
        }
        contests
    }

    fn contested(&self, one: EventIndex, other: EventIndex) -> Vec<Range<u64>> {
        let known = |event: EventIndex| {
            let (enter, result) = self.call(event)?;
            Some((enter, result, Effect::of(&enter)?))
        };
        let Some(((one, one_result, effect), (other, other_result, others))) = known(one).zip(known(other)) else {
            return Vec::new();
        };
        if effect.commutes_with(others) {
            return Vec::new();
        }
        // Who got free room came behind whoever had it, and before whoever was told of it; but not before whoever
        // guessed the address, and was refused.
        let room_beside = |enter, result, others| room_of(enter, result).filter(|_| !is_error(others));
        let rooms = [room_beside(&one, one_result, other_result), room_beside(&other, other_result, one_result)];
        let is_in = |range: &Range<u64>, room: &Range<u64>| room.start <= range.start && range.end <= room.end;
        let is_room = |range: &Range<u64>| rooms.iter().flatten().any(|room| is_in(range, room));
        let (ones, others) = (ranges_of(&one, one_result), ranges_of(&other, other_result));
        let pairs = ones.iter().flat_map(|a| others.iter().map(move |b| a.start.max(b.start)..a.end.min(b.end)));
        pairs.filter(|range| range.start < range.end && !is_room(range)).collect()
    }

    /// Returns whether a call beside a fork leaves open what the child has mapped, and not only which pages are there.
    pub(super) fn changes_areas(&self, enter: &CallEnter) -> bool {
        !matches!(Effect::of(enter), None | Some(Effect::Drops | Effect::Asks | Effect::Fills | Effect::Locks(_)))
    }
}
