//! The rights of a process's mappings, as far as mapping records tell: the ground for guessing what a fault wanted.
//!
//! # Guarantee
//! A later mapping hides an earlier one where both lie; unmapping is not seen, so a guess may rest on what is gone.

use std::collections::BTreeMap;

use faultless_trace::{Fault, Mapped, SpaceState};

/// Mapped ranges by their first address: end and rights.
#[derive(Clone, Debug, Default)]
pub(crate) struct Rights {
    ranges: BTreeMap<u64, (u64, u32)>,
}

impl Rights {
    /// Returns the rights of what stood in a process's memory.
    pub(crate) fn of(space: &SpaceState) -> Self {
        Self { ranges: space.areas.iter().map(|area| (area.start, (area.end, area.prot))).collect() }
    }

    /// Notes a mapping.
    pub(crate) fn map(&mut self, mapped: &Mapped) {
        let (start, end) = (mapped.start, mapped.start.saturating_add(mapped.len_bytes));
        self.clear(start, end);
        self.ranges.insert(start, (end, mapped.prot));
    }

    /// Guesses the error code of a user fault: a fetch if the instruction lies in the page, a write if the page may be
    /// written or is not known (a stack that grew), a read otherwise.
    pub(crate) fn guess(&self, address: u64, ip: u64) -> u32 {
        let prot = self.ranges.range(..=address).next_back().filter(|(_, (end, _))| address < *end);
        let is_writable = prot.is_none_or(|(_, (_, prot))| prot & libc::PROT_WRITE as u32 != 0);
        if address >> 12 == ip >> 12 {
            Fault::USER | Fault::FETCH
        } else if is_writable {
            Fault::USER | Fault::WRITE
        } else {
            Fault::USER
        }
    }

    /// Cuts out what lies in a range.
    fn clear(&mut self, start: u64, end: u64) {
        let touched: Vec<_> = self
            .ranges
            .range(..end)
            .rev()
            .take_while(|(_, (to, _))| *to > start)
            .map(|(&from, &to)| (from, to))
            .collect();
        for (from, (to, prot)) in touched {
            self.ranges.remove(&from);
            if from < start {
                self.ranges.insert(from, (start, prot));
            }
            if to > end {
                self.ranges.insert(end, (to, prot));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn map(rights: &mut Rights, pages: std::ops::Range<u64>, prot: i32) {
        let (start, len_bytes) = (pages.start << 12, (pages.end - pages.start) << 12);
        rights.map(&Mapped { start, len_bytes, file_offset: 0, prot: prot as u32, flags: 0, file: None });
    }

    #[test]
    fn a_hole_cut_into_a_mapping_leaves_both_ends() {
        let mut rights = Rights::default();
        map(&mut rights, 10..20, libc::PROT_READ);
        map(&mut rights, 13..15, libc::PROT_READ | libc::PROT_WRITE);
        let guessed: Vec<_> = (9..21).map(|page| rights.guess(page << 12, 0)).collect();
        let (read, write) = (Fault::USER, Fault::USER | Fault::WRITE);
        let expected = [write, read, read, read, write, write, read, read, read, read, read, write];
        assert_eq!(guessed, expected);
    }

    #[test]
    fn an_instruction_in_its_own_page_is_a_fetch() {
        let mut rights = Rights::default();
        map(&mut rights, 10..20, libc::PROT_READ | libc::PROT_EXEC);
        assert_eq!(rights.guess(10 << 12, (10 << 12) + 7), Fault::USER | Fault::FETCH);
        assert_eq!(rights.guess(10 << 12, 11 << 12), Fault::USER);
    }
}
