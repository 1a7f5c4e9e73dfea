//! Kernel maps that are real: on this machine a slot is a window of the process's own address space.
//!
//! # Guarantee
//! While a slot is held its address leads to its frame, by the host's own tables; from its last release on an access
//! gets `SIGSEGV`, also under schemes that keep idle maps. So a use after release is seen at once, whatever the model
//! of a CPU's TLB would say. Nobody should measure it: each hold takes the host's own lock of address spaces.
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
use std::sync::{Mutex, MutexGuard, PoisonError};

use faultless_kmap::audit::Holders;
use faultless_kmap::{Scheme, Shape};
use faultless_platform::Platform;
use faultless_platform::native::HostWindows;

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
