//! Proof that the core needs no std, and a sketch of what an embedder writes.
//!
//! # Guarantee
//! This library has a panic handler of its own. If any core crate pulled std in, the compiler would report a duplicate
//! lang item, and the build would fail. It uses all four: a platform of one CPU, a lock, frames, an address space.
#![no_std]

mod solo;

use core::alloc::{GlobalAlloc, Layout};
use core::ptr::NonNull;
use core::sync::atomic::{AtomicUsize, Ordering};
use faultless_abi::Calls;
use faultless_phys::{Memory, Options};
use faultless_platform::CachePadded;
use faultless_sync::{Rwsem, SpinMutex};
use faultless_vm::design::SpfV11;
use faultless_vm::{Guest, Limits, VirtAddr, Vm};
use solo::Solo;

const HEAP_BYTES: usize = 1 << 20;

/// What the core allocates at set-up, and only there, comes from here.
struct Bump {
    heap: CachePadded<core::cell::UnsafeCell<[u8; HEAP_BYTES]>>,
    used: AtomicUsize,
}

// SAFETY: each byte is handed out once.
unsafe impl Sync for Bump {}

// SAFETY: blocks lie inside the heap, are aligned, and don't overlap.
unsafe impl GlobalAlloc for Bump {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let base = self.heap.get().cast::<u8>();
        let start = self.used.load(Ordering::Relaxed);
        let start = start + base.wrapping_add(start).align_offset(layout.align());
        if start + layout.size() > HEAP_BYTES {
            return core::ptr::null_mut();
        }
        self.used.store(start + layout.size(), Ordering::Relaxed);
        base.wrapping_add(start)
    }

    unsafe fn dealloc(&self, _block: *mut u8, _layout: Layout) {}
}

#[global_allocator]
static HEAP: Bump =
    Bump { heap: CachePadded::new(core::cell::UnsafeCell::new([0; HEAP_BYTES])), used: AtomicUsize::new(0) };

#[panic_handler]
fn panic(_: &core::panic::PanicInfo<'_>) -> ! {
    loop {}
}

/// Maps a page over `len_bytes` of zeroed memory at `region`, stores a value and reads it back; 0 if anything fails.
///
/// # Safety
/// The region is zeroed, aligned to 4096, and nobody else's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn faultless_proof(region: *mut u8, len_bytes: usize) -> u64 {
    let Some(region) = NonNull::new(region) else { return 0 };
    // SAFETY: the caller's promise.
    unsafe { store_and_load(region, len_bytes) }.unwrap_or(0)
}

/// # Safety
/// As for [`faultless_proof`].
unsafe fn store_and_load(region: NonNull<u8>, len_bytes: usize) -> Option<u64> {
    let calls = SpinMutex::<Solo, u64>::new(0);
    *calls.lock() += 1;
    // SAFETY: the caller's promise.
    let memory = unsafe { Memory::<Solo>::new(region, len_bytes, 1, Options::default()) }.ok()?;
    let vm = Vm::<Solo, SpfV11<Rwsem<Solo>>>::new(memory).ok()?;
    let space = vm.create_space(Limits::default()).ok()?;
    // mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0)
    let address = Calls::new(&space).mmap([0, 4096, 3, 0x22, u64::MAX, 0], None).ok()?;
    let guest = Guest::new(&space);
    let address = VirtAddr::new(address);
    guest.store(address, 42).ok()?;
    guest.load(address).ok().map(|(value, _)| value)
}
