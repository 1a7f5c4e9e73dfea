//! Nothing in the library calls the process's allocator (I5): an allocator may be the caller.

use faultless_refpage::{Fallback, Options, RefPage, Registry};
use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::os::fd::AsFd;

struct Watched;

thread_local! {
    static FORBIDDEN: Cell<bool> = const { Cell::new(false) };
}

// SAFETY: passes everything to the system's allocator.
unsafe impl GlobalAlloc for Watched {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        if FORBIDDEN.get() {
            // No panic: that would allocate.
            std::process::abort();
        }
        // SAFETY: the caller's promise.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: the caller's promise.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Watched = Watched;
static REGISTRY: Registry = Registry::new();

#[test]
fn no_call_allocates() {
    FORBIDDEN.set(true);
    for content in [&[1_u8][..], &[1; 12], &[2; 5000]] {
        let pages = Options::new().fallback(Fallback::Fill).create(content).unwrap();
        let mut mapping = pages.map(3 << 20).unwrap();
        mapping[5] = 0;
        mapping.reset(1..9000).unwrap();
        mapping.resize(9 << 20).unwrap();
        let shared = pages.share().unwrap();
        drop(RefPage::attach(content, shared.as_fd()).unwrap().map(1 << 20).unwrap());
        let raw = pages.map_raw(1 << 20, 1 << 22).unwrap();
        REGISTRY.insert(&raw).unwrap();
        let raw = REGISTRY.remove(raw.address()).unwrap();
        // SAFETY: the mapping is this test's alone.
        unsafe {
            pages.refresh_raw(&raw, 0..raw.len()).unwrap();
            pages.unmap_raw(raw);
        }
        assert!(pages.map(0).is_err());
    }
    // A filled mapping, since this pattern meets the page too late.
    assert!(RefPage::new(&[3; 4099]).unwrap().map(20 << 20).is_ok());
    FORBIDDEN.set(false);
}
