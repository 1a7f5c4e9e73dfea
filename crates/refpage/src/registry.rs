//! Which addresses are the start of a mapping of ours: what a caller that holds only a pointer asks.
//!
//! # Guarantee
//! A mapping is found from its `insert` to its `remove`, from every thread and in forked children,
//! without a lock; an address that was never inserted is never found, whoever it belongs to.
//!
//! # Shape
//! A tree of three levels over the number of the 4 KiB page, 12 bits each, so 48 bits of address:
//!
//! ```text
//! root (static) -> branch (32 KiB) -> leaf (64 KiB): pages and kind | tile length
//! ```
//!
//! The lowest and the highest address that were ever inserted are kept beside it: most addresses that
//! are asked about belong to others, and lie elsewhere.
//!
//! Nodes are mapped when first needed and never freed; of each, only the pages in use cost memory.
//!
//! # Invariants
//! - I10 A node that was published stays mapped for the process's life.
//! - I11 A slot's second word is written before its first becomes non-zero, by the mapping's owner.

use crate::raw::{Kind, RawMapping};
use crate::{Error, sys};
use std::ptr;
use std::sync::atomic::{AtomicPtr, AtomicU64, AtomicUsize, Ordering};

const BITS: usize = 12;
const FANOUT: usize = 1 << BITS;
const PAGE_SHIFT: usize = 12;
/// The low bits of a slot's first word, which hold the kind; the rest holds the length in pages.
const KIND_BITS: u32 = 2;

struct Slot {
    pages_and_kind: AtomicU64,
    tile_len: AtomicU64,
}

struct Leaf([Slot; FANOUT]);
struct Branch([AtomicPtr<Leaf>; FANOUT]);

/// The process's mappings by their first address.
#[derive(Debug)]
pub struct Registry {
    root: [AtomicPtr<Branch>; FANOUT],
    lowest: AtomicUsize,
    highest: AtomicUsize,
}

impl Default for Registry {
    fn default() -> Registry {
        Registry::new()
    }
}

impl Registry {
    /// Returns an empty registry, fit for a static.
    pub const fn new() -> Registry {
        let root = [const { AtomicPtr::new(ptr::null_mut()) }; FANOUT];
        Registry { root, lowest: AtomicUsize::new(usize::MAX), highest: AtomicUsize::new(0) }
    }

    /// Adds a mapping.
    pub fn insert(&self, raw: &RawMapping) -> Result<(), Error> {
        let no_memory = Error::OutOfMemory { len: size_of::<Leaf>() };
        let [first, second, third] = digits(raw.address.addr()).ok_or(no_memory)?;
        let branch = node(&self.root[first]).ok_or(no_memory)?;
        let leaf = node(&branch.0[second]).ok_or(no_memory)?;
        let slot = &leaf.0[third];
        // Relaxed: who has the address got it from a thread that had done this.
        self.lowest.fetch_min(raw.address.addr(), Ordering::Relaxed);
        self.highest.fetch_max(raw.address.addr(), Ordering::Relaxed);
        // Relaxed: published by the first word (I11).
        slot.tile_len.store(raw.tile_len as u64, Ordering::Relaxed);
        // ORDER: Release pairs with the Acquire in `find`.
        slot.pages_and_kind.store(pack(raw), Ordering::Release);
        Ok(())
    }

    /// Returns the mapping that begins at an address.
    pub fn find(&self, address: *mut u8) -> Option<RawMapping> {
        let slot = self.slot(address.addr())?;
        // ORDER: Acquire pairs with the Release in `insert`.
        unpack(address, slot.pages_and_kind.load(Ordering::Acquire), slot)
    }

    /// Removes and returns the mapping that begins at an address; of several callers one gets it.
    pub fn remove(&self, address: *mut u8) -> Option<RawMapping> {
        let slot = self.slot(address.addr())?;
        // ORDER: Acquire pairs with the Release in `insert`. The address is handed out again only
        // after the range was unmapped, which orders the next `insert` behind.
        unpack(address, slot.pages_and_kind.swap(0, Ordering::Acquire), slot)
    }

    fn slot(&self, address: usize) -> Option<&Slot> {
        // Relaxed: as in `insert`.
        let (lowest, highest) = (self.lowest.load(Ordering::Relaxed), self.highest.load(Ordering::Relaxed));
        if address < lowest || address > highest {
            return None;
        }
        let [first, second, third] = digits(address)?;
        let branch = existing(&self.root[first])?;
        let leaf = existing(&branch.0[second])?;
        Some(&leaf.0[third])
    }
}

/// Returns the address's place on each level, or nothing where no mapping can begin.
fn digits(address: usize) -> Option<[usize; 3]> {
    let page = address >> PAGE_SHIFT;
    let is_start = address.is_multiple_of(1 << PAGE_SHIFT) && page >> (3 * BITS) == 0;
    let digit = |level: usize| (page >> (level * BITS)) % FANOUT;
    is_start.then(|| [digit(2), digit(1), digit(0)])
}

fn pack(raw: &RawMapping) -> u64 {
    let kind = match raw.kind {
        Kind::Tiled => 1,
        Kind::Filled => 2,
        Kind::Zero => 3,
    };
    ((raw.len >> PAGE_SHIFT) as u64) << KIND_BITS | kind
}

fn unpack(address: *mut u8, word: u64, slot: &Slot) -> Option<RawMapping> {
    let kind = match word & ((1 << KIND_BITS) - 1) {
        1 => Kind::Tiled,
        2 => Kind::Filled,
        3 => Kind::Zero,
        _ => return None,
    };
    // Relaxed: ordered by the first word (I11).
    let tile_len = slot.tile_len.load(Ordering::Relaxed) as usize;
    Some(RawMapping { address, len: ((word >> KIND_BITS) as usize) << PAGE_SHIFT, kind, tile_len })
}

fn existing<T>(link: &AtomicPtr<T>) -> Option<&'static T> {
    // ORDER: Acquire pairs with the AcqRel in `node`.
    // SAFETY: I10.
    unsafe { link.load(Ordering::Acquire).as_ref() }
}

fn node<T>(link: &AtomicPtr<T>) -> Option<&'static T> {
    existing(link).or_else(|| make_node(link))
}

#[cold]
fn make_node<T>(link: &AtomicPtr<T>) -> Option<&'static T> {
    let len = sys::round_to_pages(size_of::<T>())?;
    let fresh = sys::map_anonymous(len).ok()?.cast::<T>();
    // ORDER: AcqRel pairs with the Acquire in `existing` and with the winner's own exchange.
    match link.compare_exchange(ptr::null_mut(), fresh, Ordering::AcqRel, Ordering::Acquire) {
        // SAFETY: I10; all bytes zero is an empty node.
        Ok(_) => unsafe { fresh.as_ref() },
        Err(winner) => {
            // SAFETY: nobody has seen our node.
            unsafe { sys::unmap(fresh.cast(), len) };
            // SAFETY: I10.
            unsafe { winner.as_ref() }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mapping(address: usize) -> RawMapping {
        let address = ptr::without_provenance_mut(address);
        RawMapping { address, len: 3 << 20, kind: Kind::Tiled, tile_len: 256 << 10 }
    }

    #[test]
    fn a_mapping_is_found_until_it_is_removed_and_removed_once() {
        let registry = Registry::new();
        let raw = mapping(0x7fff_1234_5000);
        assert_eq!(registry.find(raw.address), None);
        registry.insert(&raw).unwrap();
        assert_eq!(registry.find(raw.address), Some(raw));
        assert_eq!(registry.find(raw.address.wrapping_add(4096)), None);
        assert_eq!(registry.remove(raw.address), Some(raw));
        assert_eq!(registry.remove(raw.address), None);
    }

    #[test]
    fn foreign_addresses_are_never_found() {
        let registry = Registry::new();
        registry.insert(&mapping(0x10_0000)).unwrap();
        for address in [0, 1, 0x10_0010, 0x20_0000, usize::MAX, usize::MAX & !4095, 1 << 48] {
            assert_eq!(registry.find(ptr::without_provenance_mut(address)), None, "{address:#x}");
        }
        assert!(registry.insert(&mapping(1 << 50)).is_err());
    }
}
