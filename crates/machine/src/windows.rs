//! Kernel maps that are real: on this machine a slot is a window of the process's own address space, and high memory
//! has no address but while it is mapped.
//!
//! # Guarantee
//! * [`RealWindows`]: while a slot is held its address leads to its frame, by the host's own tables; from its last
//!   release on an access gets `SIGSEGV`, also under schemes that keep idle maps. So a use after release is seen at
//!   once, whatever the model of a CPU's TLB would say.
//! * [`RealMemory`]: a virtual memory's frames of high memory are there, at the addresses that it knows them by, while
//!   somebody maps them; whoever reaches for one's bytes without a map gets `SIGSEGV`.
//!
//! Nobody should measure them: each hold takes the host's own lock of address spaces.
//!
//! ```
//! use std::sync::Arc;
//! use faultless_kmap::{KernelMaps, Shape, Task, own::Local};
//! use faultless_machine::windows::RealWindows;
//! use faultless_platform::native::{Machine, Native};
//!
//! let shape = Shape { nr_frames: 100, nr_slots: 16, ..Shape::default() };
//! let windows = Arc::new(RealWindows::of::<Native, Local<Native>>(&shape).expect("the host has room"));
//! Machine::new(1).attach(|| {
//!     let maps = KernelMaps::<Native, Local<Native>>::with_holders(&shape, Some(windows));
//!     let task = Task::new(0, 0);
//!     let page = maps.map(&task, 42);
//!     assert!(page.address().is_some());
//! });
//! ```

use std::io::Error;
use std::ptr::NonNull;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use faultless_kmap::audit::Holders;
use faultless_kmap::{Scheme, Shape};
use faultless_platform::native::HostWindows;
use faultless_platform::watched::{Happening, HighMemory, Sink};
use faultless_platform::{HighZone, Holds, PAGE_BYTES, Platform};

use crate::high::{Counted, Maps};

/// Frames of a file of memory, and a window of the address space for each slot.
#[derive(Debug)]
pub struct RealWindows {
    windows: HostWindows,
    /// The frame of each slot, and how many hold it.
    held: Mutex<Vec<(u32, u32)>>,
}

impl RealWindows {
    /// Returns windows for the slots of a scheme, and frames, all zeros.
    pub fn of<P: Platform, S: Scheme<P>>(shape: &Shape) -> Result<Self, Error> {
        let nr_slots = S::nr_slots(shape);
        let windows = HostWindows::new(shape.nr_frames as u32, nr_slots as u32)?;
        Ok(Self { windows, held: Mutex::new(vec![(0, 0); nr_slots]) })
    }

    fn held(&self) -> MutexGuard<'_, Vec<(u32, u32)>> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Holders for RealWindows {
    fn hold(&self, slot: u32, pfn: u32) {
        let mut held = self.held();
        let (frame, nr_holders) = &mut held[slot as usize];
        assert!(*nr_holders == 0 || *frame == pfn, "slot {slot} is held for frame {frame}, and given to {pfn}");
        if *nr_holders == 0 {
            self.windows.map(slot, pfn).unwrap_or_else(|error| panic!("slot {slot} is not mapped: {error}"));
        }
        (*frame, *nr_holders) = (pfn, *nr_holders + 1);
    }

    fn release(&self, slot: u32) {
        let nr_holders = &mut self.held()[slot as usize].1;
        *nr_holders =
            nr_holders.checked_sub(1).unwrap_or_else(|| panic!("slot {slot} is released, and nobody holds it"));
        if *nr_holders == 0 {
            self.windows.unmap(slot).unwrap_or_else(|error| panic!("slot {slot} is not unmapped: {error}"));
        }
    }

    fn address(&self, slot: u32) -> Option<NonNull<u8>> {
        Some(self.windows.address(slot))
    }
}

/// Frames of a file of memory, of which those of high memory have a window each: the pages at the addresses by which a
/// virtual memory knows them. Maps are those of a scheme, and each opens its frame's window for everybody.
pub struct RealMemory {
    windows: HostWindows,
    nr_frames: u32,
    maps: Arc<dyn Maps>,
    /// How many hold each frame.
    held: Mutex<Vec<u32>>,
}

impl RealMemory {
    /// Returns memory of so many frames, all zeros; the first `nr_normal` of them always have their addresses. `maps`
    /// has its boundary there.
    pub fn new(nr_frames: u32, nr_normal: u32, maps: Arc<dyn Maps>) -> Result<Self, Error> {
        let windows = HostWindows::new(nr_frames, nr_frames)?;
        if nr_normal > 0 {
            windows.map_row(0, 0, nr_normal)?;
        }
        Ok(Self { windows, nr_frames, maps, held: Mutex::new(vec![0; nr_frames as usize]) })
    }

    /// Returns the first byte's address.
    pub fn base(&self) -> NonNull<u8> {
        self.windows.address(0)
    }

    /// Returns the length in bytes.
    pub fn len_bytes(&self) -> usize {
        self.nr_frames as usize * PAGE_BYTES
    }

    /// Returns the number of the frame that holds an address.
    fn number(&self, frame: *const u8) -> u32 {
        let offset = frame.addr().checked_sub(self.base().as_ptr().addr()).expect("a frame of this memory");
        (offset / PAGE_BYTES) as u32
    }

    /// Counts a holder of a frame, or one less; lets its window lead to it while there are any.
    fn hold(&self, frame: *const u8, change: impl FnOnce(u32) -> Option<u32>) {
        let number = self.number(frame);
        let mut held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
        let count = &mut held[number as usize];
        let before = *count;
        *count = change(before).unwrap_or_else(|| panic!("frame {number} is released, and {before} hold it"));
        let done = match (before, *count) {
            (0, _) => self.windows.map(number, number),
            (_, 0) => self.windows.unmap(number),
            _ => Ok(()),
        };
        done.unwrap_or_else(|error| panic!("the host did not change the window of frame {number}: {error}"));
    }
}

// SAFETY: a frame's window is open while anybody maps it; `HostWindows::frame` is another view of the same file, and is
// mapped all the time.
#[allow(unsafe_code, reason = "what it promises is said above")]
unsafe impl HighMemory for RealMemory {
    fn map(&self, frame: *const u8, holds: Holds) {
        self.maps.map(frame, holds);
        if self.maps.lacks_address(frame, holds) {
            self.hold(frame, |count| count.checked_add(1));
        }
    }

    fn unmap(&self, frame: *const u8, holds: Holds) {
        // Where somebody panics, the run has failed already, maybe in the middle of a map.
        if self.maps.lacks_address(frame, holds) && !std::thread::panicking() {
            self.hold(frame, |count| count.checked_sub(1));
        }
        self.maps.unmap(frame, holds);
    }

    fn outlasts_sleep(&self) -> bool {
        self.maps.outlasts_sleep()
    }

    fn zone(&self, address: *const u8, len_bytes: usize) -> Option<HighZone> {
        self.maps.zone(address, len_bytes)
    }

    fn lacks_address(&self, frame: *const u8, holds: Holds) -> bool {
        self.maps.lacks_address(frame, holds)
    }

    fn in_hardware(&self, frame: *mut u8) -> *mut u8 {
        self.windows.frame(self.number(frame)).as_ptr()
    }

    fn suspend(&self) {
        self.maps.suspend();
    }

    fn resume(&self) {
        self.maps.resume();
    }
}

impl Sink for RealMemory {
    fn note(&self, happening: &Happening) {
        self.maps.note(happening);
    }
}

impl Maps for RealMemory {
    fn begin(&self) {
        self.maps.begin();
    }

    fn end(&self) {
        self.maps.end();
    }

    fn counted(&self) -> Counted {
        self.maps.counted()
    }

    fn map_sleeps(&self) -> bool {
        self.maps.map_sleeps()
    }
}
