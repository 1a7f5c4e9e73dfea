//! What an operation of each workload writes to lines that other CPUs use: of threads of one process, and of processes.
//! The counts depend on the code's path, so the tests compare them with the documents' tables.

mod apart;
mod together;

use std::alloc::{GlobalAlloc, Layout, System};

const HEAP: u64 = 0x5555_0000_0000;

/// Returns a document's row of a workload: the numbers in its cells.
fn documented(document: &str, workload: &str) -> Vec<f64> {
    let start = format!("| `{workload}` |");
    let cells = document.lines().find_map(|line| line.strip_prefix(&start));
    let cells = cells.map(|cells| cells.split('|').filter_map(|cell| cell.trim().parse().ok()).collect());
    cells.unwrap_or_default()
}

/// Puts each object on lines of its own: which of them share one is then decided by their types, not by the host.
struct OwnLines;

const fn on_own_lines(layout: Layout) -> Layout {
    match Layout::from_size_align(layout.size(), if layout.align() < 64 { 64 } else { layout.align() }) {
        Ok(layout) => layout.pad_to_align(),
        Err(_) => layout,
    }
}

// SAFETY: every layout is changed in the same way when memory is taken and when it is given back; it only becomes
// larger.
unsafe impl GlobalAlloc for OwnLines {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: passed on as promised.
        unsafe { System.alloc(on_own_lines(layout)) }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        // SAFETY: passed on as promised.
        unsafe { System.dealloc(memory, on_own_lines(layout)) };
    }
}

#[global_allocator]
static ALLOCATOR: OwnLines = OwnLines;
