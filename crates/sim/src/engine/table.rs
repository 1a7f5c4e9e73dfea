//! A table from pages to what is known of them.
//!
//! # Guarantee
//! What was put in stays; a look-up meets one line of the host's caches, or a neighbour of it, and one entry has a line
//! to itself if it has no more than 56 bytes.

pub(super) const PAGE_BITS: u32 = 12;

/// Returns a page's key: 0 is none's.
#[inline(always)]
pub(super) fn page_key(address: usize) -> u64 {
    (address >> PAGE_BITS) as u64 + 1
}

/// A key, 0 for none, and what is known of it.
#[derive(Clone, Copy, Default)]
#[repr(C, align(64))]
struct Slot<T> {
    key: u64,
    value: T,
}

/// A table from keys, which are never 0.
pub(super) struct Table<T> {
    slots: Vec<Slot<T>>,
    len: usize,
    /// How far a product is shifted to the right to become a place.
    shift: u32,
}

impl<T: Copy + Default> Table<T> {
    const FIRST_BITS: u32 = 8;

    pub(super) fn new() -> Self {
        Self { slots: vec![Slot::default(); 1 << Self::FIRST_BITS], len: 0, shift: 64 - Self::FIRST_BITS }
    }

    /// Returns a key's place, or the one where it would be put.
    #[inline(always)]
    fn probe(&self, key: u64) -> usize {
        let mask = self.slots.len() - 1;
        let mut place = (key.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> self.shift) as usize & mask;
        loop {
            let found = self.slots[place].key;
            if found == key || found == 0 {
                return place;
            }
            place = (place + 1) & mask;
        }
    }

    /// Returns what is known of a key.
    #[inline(always)]
    pub(super) fn get(&self, key: u64) -> Option<&T> {
        let slot = &self.slots[self.probe(key)];
        (slot.key == key).then_some(&slot.value)
    }

    /// As [`Table::get`], to change it.
    pub(super) fn get_mut(&mut self, key: u64) -> Option<&mut T> {
        let place = self.probe(key);
        let slot = &mut self.slots[place];
        (slot.key == key).then_some(&mut slot.value)
    }

    /// Returns the place of a key, which is put in if it is new; good until the next call.
    pub(super) fn place(&mut self, key: u64) -> usize {
        let place = self.probe(key);
        if self.slots[place].key == key {
            return place;
        }
        // Half full, so that most look-ups meet one slot.
        if self.len * 2 >= self.slots.len() {
            self.grow();
        }
        let place = self.probe(key);
        self.slots[place].key = key;
        self.len += 1;
        place
    }

    /// Returns what is known of the key at a place.
    #[inline(always)]
    pub(super) fn at(&mut self, place: usize) -> &mut T {
        &mut self.slots[place].value
    }

    fn grow(&mut self) {
        let larger = vec![Slot::default(); self.slots.len() * 2];
        let old = std::mem::replace(&mut self.slots, larger);
        self.shift -= 1;
        for slot in old.into_iter().filter(|slot| slot.key != 0) {
            let place = self.probe(slot.key);
            self.slots[place] = slot;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_put_in_is_found_again_however_large_the_table_became() {
        let mut table = Table::<u64>::new();
        for page in 0..5000_usize {
            let place = table.place(page_key(page << PAGE_BITS));
            *table.at(place) = page as u64;
        }
        assert!((0..5000_usize).all(|page| table.get(page_key((page << PAGE_BITS) + 4095)) == Some(&(page as u64))));
        assert_eq!(table.get(page_key(5000 << PAGE_BITS)), None);
        assert_eq!(size_of::<Slot<[u8; 56]>>(), 64);
    }

    /// What the host pays for an access does not grow with the number of CPUs: pages that stand in rows, as stacks and
    /// frames do, are nearly all found at the first place that is looked at.
    #[test]
    fn rows_of_pages_are_found_at_the_first_look() {
        let looks = |pages: &[usize]| {
            let mut table = Table::<u64>::new();
            for &page in pages {
                table.place(page_key(page << PAGE_BITS));
            }
            let mask = table.slots.len() - 1;
            let far = |slot: usize| {
                let key = table.slots[slot].key;
                let home = (key.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> table.shift) as usize;
                slot.wrapping_sub(home) & mask
            };
            let all: usize =
                (0..table.slots.len()).filter(|&slot| table.slots[slot].key != 0).map(|slot| 1 + far(slot)).sum();
            all as f64 / pages.len() as f64
        };
        let first = 0x7_f51d_4000;
        for (nr_cpus, stride) in [(1, 65), (8, 64), (48, 1024), (384, 65), (1024, 1)] {
            let stacks = (0..nr_cpus).flat_map(|cpu| (0..4).map(move |page| first + cpu * stride + page));
            let frames = (0..nr_cpus * 16).map(|frame| 0x7_e000_0000 + frame);
            let pages: Vec<usize> = stacks.chain(frames).collect();
            assert!(looks(&pages) < 1.5, "{nr_cpus} CPUs, {stride} pages apart: {}", looks(&pages));
        }
    }
}
