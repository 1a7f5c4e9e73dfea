//! Where a recorded program's addresses go in a real process, which has memory of its own already.
//!
//! # Guarantee
//! Every address that the plan touches or names has a place of its own in a part of the process that is free; addresses
//! that lie less than a gibibyte apart keep their distance, and all keep their place within a gibibyte, so that page
//! tables are shared as they were. What no user address is stays as it is, for the kernel to refuse.

use std::ops::Range;

use faultless_vm::USER_END;

use faultless_plan::memory_calls::{MemoryCall, Place};
use faultless_plan::{Action, Plan};

/// The part of a process that is free: above programs, below the C library's mappings.
const ARENA: Range<u64> = 0x5800_0000_0000..0x7d00_0000_0000;
const GIB: u64 = 1 << 30;
/// Addresses below stay as they are: no process has memory there, and the kernel gives none.
const LOWEST: u64 = 0x1_0000;

/// A run of recorded addresses, and where it goes.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Run {
    recorded: Range<u64>,
    start: u64,
}

/// All of them, in order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Relocation {
    runs: Vec<Run>,
}

/// The plan's addresses don't fit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct TooLarge {
    pub(super) bytes: u64,
}

impl Relocation {
    /// Finds a place for all addresses of a plan.
    pub(super) fn new(plan: &Plan) -> Result<Self, TooLarge> {
        let restored = plan.restorations.iter().flat_map(|restoration| &restoration.memory_calls);
        let memory_calls = plan.calls.iter().map(|call| &call.memory_call).chain(restored);
        let mut ranges: Vec<Range<u64>> = memory_calls.flat_map(ranges).collect();
        let steps = plan.programs.iter().flat_map(|program| &program.steps);
        ranges.extend(steps.filter_map(|step| match step.action {
            Action::Access(touch) => around(touch.address, 1),
            _ => None,
        }));
        Self::of(ranges)
    }

    fn of(mut ranges: Vec<Range<u64>>) -> Result<Self, TooLarge> {
        ranges.sort_by_key(|range| range.start);
        let mut merged: Vec<Range<u64>> = Vec::new();
        for range in ranges {
            match merged.last_mut() {
                Some(last) if range.start <= last.end => last.end = last.end.max(range.end),
                _ => merged.push(range),
            }
        }
        let mut relocation = Self::default();
        let mut start = ARENA.start;
        for recorded in merged {
            let end = start + (recorded.end - recorded.start);
            if end > ARENA.end {
                return Err(TooLarge { bytes: end - ARENA.start });
            }
            relocation.runs.push(Run { recorded, start });
            // A gibibyte between, where nothing is.
            start = end + GIB;
        }
        Ok(relocation)
    }

    /// Returns where a recorded address is.
    pub(super) fn place(&self, address: u64) -> u64 {
        if address < LOWEST {
            return address;
        }
        let at = self.runs.partition_point(|run| run.recorded.end <= address);
        match self.runs.get(at) {
            Some(run) if run.recorded.start <= address => address - run.recorded.start + run.start,
            _ => address,
        }
    }

    /// Returns which recorded address a result stands for.
    pub(super) fn recorded(&self, result: i64) -> i64 {
        let address = result.cast_unsigned();
        let holds = |run: &&Run| (run.start..run.start + len(&run.recorded)).contains(&address);
        let run = self.runs.iter().find(holds);
        run.map_or(result, |run| (address - run.start + run.recorded.start).cast_signed())
    }

    /// Returns the parts of the process that the program uses.
    pub(super) fn windows(&self) -> impl Iterator<Item = Range<u64>> + '_ {
        self.runs.iter().map(|run| run.start..run.start + len(&run.recorded))
    }
}

fn len(range: &Range<u64>) -> u64 {
    range.end - range.start
}

/// Returns whole gibibytes around a range, with room for a stack to grow; nothing if no user address is in it.
fn around(start: u64, len: u64) -> Option<Range<u64>> {
    if !(LOWEST..USER_END).contains(&start) {
        return None;
    }
    let end = start.checked_add(len.max(1)).unwrap_or(start + 1).min(USER_END);
    Some(start.saturating_sub(GIB / 16) / GIB * GIB..end.next_multiple_of(GIB))
}

fn ranges(memory_call: &MemoryCall) -> Vec<Range<u64>> {
    let found = match *memory_call {
        MemoryCall::Map(mapping) => match mapping.place {
            Place::Fixed(start) | Place::FixedIfFree(start) | Place::Searched { placed: start, .. } => {
                vec![around(start, mapping.len)]
            }
            // Refused: whatever its length, only its begin must be ours.
            Place::Refused { hint } => vec![around(hint, 1)],
        },
        MemoryCall::Unmap { start, len }
        | MemoryCall::Protect { start, len, .. }
        | MemoryCall::Advise { start, len, .. }
        | MemoryCall::Lock { start, len, .. }
        | MemoryCall::Ask { start, len }
        | MemoryCall::WriteBack { start, len } => vec![around(start, len)],
        MemoryCall::Remap { old, old_len, new_len, target, .. } => {
            vec![around(old, old_len.max(new_len.min(ARENA.end))), around(target, new_len)]
        }
        MemoryCall::Break { requested, before, .. } => vec![around(before, 1), around(requested, 1)],
        MemoryCall::LockAll { .. } | MemoryCall::Nothing => vec![],
    };
    found.into_iter().flatten().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_move_and_come_back_and_neighbours_stay_neighbours() {
        let recorded = [0x40_0000, 0x5555_5555_4000, 0x7ffe_1234_5000, 0x7ffe_1234_6000];
        let ranges = recorded.iter().filter_map(|&start| around(start, 0x2000)).collect();
        let relocation = Relocation::of(ranges).expect("they fit");
        for address in recorded {
            let place = relocation.place(address);
            assert!(ARENA.contains(&place), "{address:#x} went to {place:#x}");
            assert_eq!(place % GIB, address % GIB);
            assert_eq!(relocation.recorded(place.cast_signed()), address.cast_signed());
        }
        assert_eq!(relocation.place(recorded[3]) - relocation.place(recorded[2]), 0x1000);
        assert_eq!(
            (relocation.place(0x10), relocation.place(u64::MAX), relocation.recorded(-22)),
            (0x10, u64::MAX, -22)
        );
    }

    #[test]
    fn what_does_not_fit_is_said() {
        let whole = around(LOWEST, USER_END).expect("user memory");
        assert!(Relocation::of(vec![whole]).is_err());
    }
}
