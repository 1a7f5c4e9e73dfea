//! What a device sees of a machine's memory, by the traits of `vm-memory`.
//!
//! # Guarantee
//! A page that a window has shown stays in its frame until the window is dropped: reads are of what processors store,
//! and processors see what is written. What was written reaches a migration, also while the window is open.
//!
//! A window serves one request, or a few: it only ever pins more. It belongs to a thread with a CPU slot.

use crate::formats::Hardware;
use crate::machine::{Cpu, Machine};
use faultless_platform::PAGE_BYTES;
use faultless_vm::{PAGE, Pin, PinKind, VirtAddr};
use std::cell::RefCell;
use std::collections::btree_map::{BTreeMap, Entry};
use vm_memory::guest_memory::{Error, GuestMemorySliceIterator};
use vm_memory::{
    GuestAddress, GuestMemory, GuestMemoryRegion, GuestMemoryRegionBytes, GuestRegionCollection, GuestUsize,
    Permissions, VolatileSlice,
};

type Pins<'vm, H> = BTreeMap<(u64, bool), Pin<'vm, Cpu<H>>>;

/// A device's view; see the module.
pub struct Window<'m, 'vm, H: Hardware> {
    machine: &'m Machine<'vm, H>,
    /// By page, and whether it may be written; never taken out.
    pins: RefCell<Pins<'vm, H>>,
}

impl<'m, 'vm, H: Hardware> Window<'m, 'vm, H> {
    /// Opens a window on a machine's memory.
    pub fn new(machine: &'m Machine<'vm, H>) -> Self {
        Self { machine, pins: RefCell::default() }
    }

    /// Returns the first byte of a page, pinned.
    fn page(&self, page: u64, is_write: bool) -> Result<*mut u8, Error> {
        let pin = match self.pins.borrow_mut().entry((page, is_write)) {
            Entry::Occupied(pin) => pin.get().frame(),
            Entry::Vacant(place) => {
                // A page that is read becomes the machine's own, so that later stores go to the same frame.
                let kind = if is_write { PinKind::Write } else { PinKind::LongTermRead };
                let refused = |_| Error::InvalidGuestAddress(GuestAddress(page));
                let pin = self.machine.space.pin(VirtAddr::new(page), kind).map_err(refused)?;
                if is_write {
                    *self.machine.devices().open.entry(page).or_default() += 1;
                }
                place.insert(pin).frame()
            }
        };
        Ok(self.machine.space.memory().frame(pin))
    }
}

impl<H: Hardware> Drop for Window<'_, '_, H> {
    fn drop(&mut self) {
        let mut devices = self.machine.devices();
        for &(page, _) in self.pins.borrow().keys().filter(|(_, is_write)| *is_write) {
            if let Some(count) = devices.open.get_mut(&page) {
                *count -= 1;
            }
            devices.closed.insert(page);
        }
        devices.open.retain(|_, count| *count > 0);
    }
}

impl<H: Hardware> GuestMemory for Window<'_, '_, H> {
    type PhysicalMemory = GuestRegionCollection<NoRegion>;
    type Bitmap = ();

    fn check_range(&self, addr: GuestAddress, count: usize, _access: Permissions) -> bool {
        let Some(end) = addr.0.checked_add(count as u64) else { return false };
        let mut at = addr.0;
        // Ranges that touch are one.
        while let Some(range) = self.machine.ram.iter().find(|range| range.contains(&at)).filter(|_| at < end) {
            at = range.end;
        }
        at >= end
    }

    fn get_slices<'a>(
        &'a self,
        addr: GuestAddress,
        count: usize,
        access: Permissions,
    ) -> Result<impl GuestMemorySliceIterator<'a, vm_memory::bitmap::BS<'a, ()>>, Error> {
        if !self.check_range(addr, count, access) {
            return Err(Error::InvalidGuestAddress(addr));
        }
        Ok(Slices { window: self, at: addr.0, left: count, is_write: access.has_write() })
    }
}

/// The pieces of a range, a page each at most.
struct Slices<'a, 'm, 'vm, H: Hardware> {
    window: &'a Window<'m, 'vm, H>,
    at: u64,
    left: usize,
    is_write: bool,
}

impl<'a, H: Hardware> Iterator for Slices<'a, '_, '_, H> {
    type Item = Result<VolatileSlice<'a, ()>, Error>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.left == 0 {
            return None;
        }
        let place = (self.at % PAGE) as usize;
        let len = self.left.min(PAGE_BYTES - place);
        let page = self.window.page(self.at - place as u64, self.is_write);
        (self.at, self.left) = (self.at + len as u64, if page.is_ok() { self.left - len } else { 0 });
        // SAFETY: the bytes are in a page that the window has pinned, and holds for `'a`; guests access it atomically.
        Some(page.map(|page| unsafe { VolatileSlice::new(page.add(place), len) }))
    }
}

impl<H: Hardware> std::iter::FusedIterator for Slices<'_, '_, '_, H> {}
impl<'a, H: Hardware> GuestMemorySliceIterator<'a, ()> for Slices<'a, '_, '_, H> {}

/// There is none: pages lie where the library has put them.
#[derive(Debug)]
pub enum NoRegion {}

impl GuestMemoryRegion for NoRegion {
    type B = ();
    fn len(&self) -> GuestUsize {
        match *self {}
    }
    fn start_addr(&self) -> GuestAddress {
        match *self {}
    }
    fn bitmap(&self) {
        match *self {}
    }
}

impl GuestMemoryRegionBytes for NoRegion {}
