//! Waiting in slices, and giving the CPU away between two of them.

use faultless_platform::Processor;

/// How long a spinner waits before it looks at what no atomic of ours tells it: whether it should yield, whether an
/// owner runs.
///
/// Conditions of a wait may read atomics alone, so such hints are read between two slices. A tenth of what a
/// sleep and its wake-up cost.
pub(crate) const SLICE_NS: u64 = 2_000;

/// Lets a thread that waits for a slot have ours; we get in line behind it.
///
/// The caller holds no spin lock, is in no RCU read section, has interrupts on, and keeps no per-CPU reference.
pub(crate) fn give_way<P: Processor>() {
    if P::should_yield() {
        P::leave();
        P::enter();
    }
}
