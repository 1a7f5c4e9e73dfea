//! Numbers of frames, kept in frames of their own until they are needed once more.
//!
//! # Guarantee
//! What was put in is visited once, and costs no memory after that. Where there is no frame to keep numbers in, nothing
//! is put in. Nothing here sleeps.

use crate::addr::PAGE;
use crate::system::System;
use crate::translations::frames;
use core::mem::MaybeUninit;
use faultless_phys::{FrameSource, Pfn};
use faultless_platform::TouchKind;

/// How many numbers are put in at a time.
pub(super) const RUN: usize = 256;
/// Runs that a frame has room for.
const RUNS_A_FRAME: usize = PAGE as usize / size_of::<[Pfn; RUN]>();
/// Most frames that are used for numbers: those of as many pages as Linux frees at a time (`MAX_GATHER_BATCH_COUNT`,
/// 10,000 pages).
const MOST_FRAMES: usize = 10;
/// Most runs.
const MOST_RUNS: usize = MOST_FRAMES * RUNS_A_FRAME;

/// Runs of numbers.
pub(super) struct Stored {
    /// The frame that was filled last; linked through the frames' metadata.
    last: Option<Pfn>,
    nr_runs: usize,
}

impl Stored {
    /// Holds nothing.
    pub(super) const NOTHING: Self = Self { last: None, nr_runs: 0 };

    /// Says whether it holds nothing.
    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.nr_runs == 0
    }

    /// Keeps a run; says whether it could.
    #[cold]
    pub(super) fn keep<P: System>(&mut self, memory: &P::Frames, run: &[Pfn; RUN]) -> bool {
        if self.nr_runs == MOST_RUNS {
            return false;
        }
        if self.nr_runs.is_multiple_of(RUNS_A_FRAME) {
            let Ok(frame) = memory.try_alloc() else { return false };
            frames::set_link(memory, frame, self.last);
            self.last = Some(frame);
        }
        let Some(frame) = self.last else { return false };
        let place = place::<P>(memory, frame, self.nr_runs % RUNS_A_FRAME);
        P::touch(place.cast(), size_of_val(run), TouchKind::Write);
        // SAFETY: the frame is ours alone, and has room for so many runs.
        unsafe { place.write(MaybeUninit::new(*run)) };
        self.nr_runs += 1;
        true
    }

    /// Takes all numbers out, a run at a time.
    #[cold]
    pub(super) fn drain<P: System>(&mut self, memory: &P::Frames, visit: &mut dyn FnMut(&[Pfn; RUN])) {
        let mut nr_runs = core::mem::take(&mut self.nr_runs);
        while let Some(frame) = self.last {
            let first = (nr_runs - 1) / RUNS_A_FRAME * RUNS_A_FRAME;
            for run in 0..nr_runs - first {
                let place = place::<P>(memory, frame, run);
                P::touch(place.cast(), size_of::<[Pfn; RUN]>(), TouchKind::Read);
                // SAFETY: a run was written there.
                visit(unsafe { (*place).assume_init_ref() });
            }
            nr_runs = first;
            self.last = frames::link(memory, frame);
            // SAFETY: taken by `keep`, and used by nobody else.
            unsafe { memory.free(frame) };
        }
    }
}

/// Returns where a frame keeps one of its runs.
fn place<P: System>(memory: &P::Frames, frame: Pfn, run: usize) -> *mut MaybeUninit<[Pfn; RUN]> {
    debug_assert!(run < RUNS_A_FRAME);
    // SAFETY: inside the frame, which is aligned to its size.
    unsafe { memory.frame(frame).cast::<MaybeUninit<[Pfn; RUN]>>().add(run) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use faultless_phys::{Memory, Options};
    use faultless_platform::native::{HostRegion, Machine, Native};
    use std::vec::Vec;

    fn with_memory(test: impl FnOnce(&Memory<Native>)) {
        let region = HostRegion::reserve(1 << 20).expect("the host has room");
        let machine = Machine::new(1);
        // SAFETY: the region is zeroed, ours alone, and outlives the memory.
        let memory = unsafe { Memory::new(region.base(), region.len_bytes(), 1, Options::default()) }.expect("room");
        machine.attach(|| test(&memory));
    }

    fn run(number: usize) -> [Pfn; RUN] {
        core::array::from_fn(|place| Pfn::new((number * RUN + place) as u32))
    }

    /// Returns which runs come out, sorted.
    fn drained(stored: &mut Stored, memory: &Memory<Native>) -> Vec<usize> {
        let mut numbers = Vec::new();
        stored.drain::<Native>(memory, &mut |out| {
            let number = out[0].index() / RUN;
            assert_eq!(*out, run(number), "a run comes out as it was put in");
            numbers.push(number);
        });
        numbers.sort_unstable();
        numbers
    }

    #[test]
    fn each_run_comes_out_once_and_costs_nothing_after_that() {
        with_memory(|memory| {
            let nr_free = memory.nr_free();
            let mut stored = Stored::NOTHING;
            for nr_runs in [0, 1, 3, 4, 5, 8, 9, MOST_RUNS, 2] {
                for number in 0..nr_runs {
                    assert!(stored.keep::<Native>(memory, &run(number)));
                }
                assert_eq!(nr_free - memory.nr_free(), nr_runs.div_ceil(RUNS_A_FRAME));
                assert_eq!(drained(&mut stored, memory), (0..nr_runs).collect::<Vec<_>>());
                assert_eq!(memory.nr_free(), nr_free, "of {nr_runs} runs");
            }
        });
    }

    #[test]
    fn no_more_is_kept_than_linux_collects() {
        with_memory(|memory| {
            let mut stored = Stored::NOTHING;
            let nr_kept = (0..2 * MOST_RUNS).take_while(|&number| stored.keep::<Native>(memory, &run(number))).count();
            assert_eq!((nr_kept, nr_kept * RUN), (MOST_RUNS, 10_240));
            assert_eq!(drained(&mut stored, memory).len(), MOST_RUNS);
        });
    }

    #[test]
    fn nothing_is_kept_without_a_frame_and_what_was_kept_stays() {
        with_memory(|memory| {
            let mut stored = Stored::NOTHING;
            assert!(stored.keep::<Native>(memory, &run(0)));
            let taken: Vec<Pfn> = core::iter::from_fn(|| memory.try_alloc().ok()).collect();
            for number in 1..RUNS_A_FRAME {
                assert!(stored.keep::<Native>(memory, &run(number)), "there is room in the frame");
            }
            assert!(!stored.keep::<Native>(memory, &run(RUNS_A_FRAME)));
            assert_eq!(drained(&mut stored, memory), [0, 1, 2, 3]);
            // SAFETY: taken above, and used by nobody.
            taken.into_iter().for_each(|frame| unsafe { memory.free(frame) });
            assert!(stored.keep::<Native>(memory, &run(7)));
            assert_eq!(drained(&mut stored, memory), [7]);
        });
    }
}
