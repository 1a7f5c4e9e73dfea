//! What the recording tells of each page: what stands behind it, and its last fault.
//!
//! # Guarantee
//! Only pages that faulted or that a call made are kept. A clone costs one reference for each 2 MiB that was touched,
//! and pages are copied when one side writes them: a fork is as cheap as the kernel's own.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use super::ids::{EventIndex, NONE, StepIndex};

const PAGES_IN_BLOCK: u64 = 512;

/// What stands behind a page, as far as the faults tell.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Content {
    /// Nothing is known to be mapped.
    #[default]
    Absent,
    /// The zero page: it was read, and never written.
    Zero,
    /// A frame of the space's own; since a fork maybe shared with the other side, until it is written.
    Own,
    /// A page of an object.
    Object,
    /// A guard: nothing is mapped, and no access is allowed.
    Guard,
}

impl Content {
    /// Returns whether a frame is mapped.
    pub fn is_mapped(self) -> bool {
        !matches!(self, Self::Absent | Self::Guard)
    }
}

/// One page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Page {
    /// What stands behind it.
    pub content: Content,
    /// Whether its last fault had no certain order, so that it may or may not be mapped.
    pub is_doubtful: bool,
    /// Whether it stood before the first event and had none since, so that what its entry allows is not known.
    pub is_inherited: bool,
    /// Whether its entry may let stores into a shared file: one went through it. The file hears of the first alone.
    pub lets_stores_in: bool,
    /// Whether a call has let stores in since its last fault: a CPU may still hold the entry as it was before.
    pub is_let_in: bool,
    /// Who faulted last.
    pub thread: u32,
    /// That thread's step.
    pub step: StepIndex,
    /// The fault's event; `NONE` for a page that never faulted.
    pub event: EventIndex,
    /// The last store's event; `NONE` if nothing was stored.
    pub store: EventIndex,
    /// When its content became what it is, in the plan's count of steps.
    pub since: u32,
}

impl Default for Page {
    fn default() -> Self {
        Self {
            content: Content::Absent,
            is_doubtful: false,
            is_inherited: false,
            lets_stores_in: false,
            is_let_in: false,
            thread: NONE,
            step: NONE,
            event: NONE,
            store: NONE,
            since: 0,
        }
    }
}

impl Page {
    /// Returns whether anything is known of it.
    fn is_known(&self) -> bool {
        self.event != NONE || self.content != Content::Absent || self.is_inherited || self.is_doubtful
    }
}

type Block = [Page; PAGES_IN_BLOCK as usize];

/// The pages of a space.
#[derive(Clone, Debug, Default)]
pub struct Pages {
    blocks: BTreeMap<u64, Arc<Block>>,
}

impl Pages {
    /// Returns the page, as one that never faulted if it is not kept.
    pub fn get(&self, page: u64) -> Page {
        self.blocks.get(&(page / PAGES_IN_BLOCK)).map_or(Page::default(), |block| block[place(page)])
    }

    /// Keeps a page.
    pub fn set(&mut self, page: u64, value: Page) {
        let block = self.blocks.entry(page / PAGES_IN_BLOCK).or_insert_with(|| Arc::new([Page::default(); 512]));
        Arc::make_mut(block)[place(page)] = value;
    }

    /// Changes every page of the range, known or not.
    pub fn update(&mut self, range: Range<u64>, mut update: impl FnMut(&mut Page)) {
        for number in blocks_of(&range) {
            let block = self.blocks.entry(number).or_insert_with(|| Arc::new([Page::default(); 512]));
            let pages = clipped(number, &range);
            let places = place(pages.start)..place(pages.end - 1) + 1;
            Arc::make_mut(block)[places].iter_mut().for_each(&mut update);
        }
    }

    /// Returns how many blocks of 2 MiB were touched.
    pub fn nr_blocks(&self) -> u64 {
        self.blocks.len() as u64
    }

    /// Visits the pages of the range of which something is known.
    pub fn visit(&self, range: Range<u64>, mut visit: impl FnMut(u64, &Page)) {
        for (&number, block) in self.blocks.range(blocks_of(&range)) {
            for page in clipped(number, &range) {
                let kept = &block[place(page)];
                if kept.is_known() {
                    visit(page, kept);
                }
            }
        }
    }

    /// Forgets the pages of the range; returns how many of them were mapped.
    pub fn clear(&mut self, range: Range<u64>) -> u64 {
        let mut mapped = 0;
        self.visit(range.clone(), |_, page| mapped += u64::from(page.content.is_mapped()));
        let numbers: Vec<u64> = self.blocks.range(blocks_of(&range)).map(|(&number, _)| number).collect();
        for number in numbers {
            self.clear_block(number, clipped(number, &range));
        }
        mapped
    }

    fn clear_block(&mut self, number: u64, pages: Range<u64>) {
        if pages.end - pages.start == PAGES_IN_BLOCK {
            self.blocks.remove(&number);
        } else if let Some(block) = self.blocks.get_mut(&number) {
            Arc::make_mut(block)[place(pages.start)..place(pages.end - 1) + 1].fill(Page::default());
        }
    }

    /// Moves the pages of the range so that the first is `target`.
    pub fn shift(&mut self, range: Range<u64>, target: u64) {
        let mut moved = Vec::new();
        self.visit(range.clone(), |page, kept| moved.push((page - range.start + target, *kept)));
        self.clear(range);
        moved.into_iter().for_each(|(page, kept)| self.set(page, kept));
    }
}

fn place(page: u64) -> usize {
    (page % PAGES_IN_BLOCK) as usize
}

fn blocks_of(range: &Range<u64>) -> Range<u64> {
    let first = range.start / PAGES_IN_BLOCK;
    first..range.end.div_ceil(PAGES_IN_BLOCK).max(first)
}

/// Returns the range's pages that lie in a block.
fn clipped(block: u64, range: &Range<u64>) -> Range<u64> {
    let first = block * PAGES_IN_BLOCK;
    range.start.max(first)..range.end.min(first + PAGES_IN_BLOCK)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn faulted(event: EventIndex) -> Page {
        Page { event, content: Content::Own, ..Page::default() }
    }

    fn events(pages: &Pages) -> Vec<(u64, EventIndex)> {
        let mut found = Vec::new();
        pages.visit(0..1 << 40, |page, kept| found.push((page, kept.event)));
        found
    }

    #[test]
    fn clearing_and_shifting_cross_blocks() {
        let mut pages = Pages::default();
        for page in [5, 511, 512, 1024, 5000] {
            pages.set(page, faulted(page as u32));
        }
        assert_eq!(pages.clear(511..1024), 2);
        assert_eq!(events(&pages), [(5, 5), (1024, 1024), (5000, 5000)]);
        pages.shift(5..1025, 4000);
        assert_eq!(events(&pages), [(4000, 5), (5000, 5000), (5019, 1024)]);
        assert_eq!(pages.clear(0..u64::MAX), 3);
        assert_eq!(pages.clear(7..7), 0);
        assert_eq!(pages.nr_blocks(), 0);
    }

    #[test]
    fn a_clone_does_not_see_later_changes() {
        let mut parent = Pages::default();
        parent.set(1, faulted(1));
        let child = parent.clone();
        parent.set(1, faulted(2));
        parent.set(2, faulted(3));
        assert_eq!(events(&child), [(1, 1)]);
        assert_eq!(events(&parent), [(1, 2), (2, 3)]);
    }
}
