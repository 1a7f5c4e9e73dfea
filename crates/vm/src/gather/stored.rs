//! Numbers of frames, kept in frames of their own until they are needed once more.
//!
//! # Guarantee
//! What was put in is visited once, and costs no memory after that. Where there is no frame to keep numbers in, nothing
//! is put in. Nothing here sleeps.

use crate::addr::PAGE;
use crate::frames;
use crate::system::System;
use core::mem::MaybeUninit;
use faultless_phys::{FrameSource, Pfn};
use faultless_platform::Access;

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
        P::touch(place.cast(), size_of_val(run), Access::Write);
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
                P::touch(place.cast(), size_of::<[Pfn; RUN]>(), Access::Read);
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
