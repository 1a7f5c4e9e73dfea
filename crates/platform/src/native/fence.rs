//! Fences as the processor does them fastest.
//!
//! # Guarantee
//! [`fence`] orders what `core::sync::atomic::fence` orders. On x86-64 a sequentially consistent one is a locked
//! read-modify-write of the own stack instead of `mfence`, which also waits for stores that are not cached: it takes
//! less than half the time (14 to 18 against 34 to 48 ns, three runs, on an Intel Xeon virtual machine that was busy;
//! Linux's `smp_mb` has done so since 2017, its commit 450cbdd0125c). Frames are cached memory; non-temporal stores are
//! fenced by whoever makes them.

use core::sync::atomic::{self, Ordering};

/// As `core::sync::atomic::fence`.
#[inline(always)]
// ORDER: the caller's; it names the pair.
pub(super) fn fence(order: Ordering) {
    #[cfg(faultless_tsan)]
    return as_read_modify_write(order);
    #[cfg(all(target_arch = "x86_64", not(miri), not(faultless_tsan)))]
    if order == Ordering::SeqCst {
        // SAFETY: changes nothing in memory: the word at the stack's top keeps its value, and is this thread's own.
        unsafe { core::arch::asm!("lock or dword ptr [rsp], 0") };
        return;
    }
    #[cfg(not(faultless_tsan))]
    // ORDER: the caller's.
    atomic::fence(order);
}

/// As a sequentially consistent [`fence`], behind a read-modify-write. On x86-64 those are locked instructions, over
/// which neither loads nor stores move (Intel's manual, volume 3, 8.2.3.9), so only the compiler is told.
#[inline(always)]
pub(super) fn fence_after_rmw() {
    // ORDER: the caller's; it names the pair.
    #[cfg(all(target_arch = "x86_64", not(miri), not(faultless_tsan)))]
    atomic::compiler_fence(Ordering::SeqCst);
    #[cfg(not(all(target_arch = "x86_64", not(miri), not(faultless_tsan))))]
    fence(Ordering::SeqCst);
}

/// A fence as ThreadSanitizer understands one (`--cfg faultless_tsan`, `.ci/sanitize`): it follows what
/// read-modify-writes hand on, and knows no fences. All go through one word, so that it sees more order than there is,
/// and misses races for that. It does not see what an acquire fence takes over from a release without a fence; see
/// `atomics` for the one that matters.
#[cfg(faultless_tsan)]
// ORDER: the caller's.
fn as_read_modify_write(_order: Ordering) {
    static ALL: atomic::AtomicU32 = atomic::AtomicU32::new(0);
    // ORDER: SeqCst as the strongest fence; weaker ones are taken for it, too.
    ALL.fetch_add(1, Ordering::SeqCst);
}
