//! Arguments that mean something, and some that don't.

use std::ops::Range;

use crate::kernel::{Call, File, HEAP_START, Op, PAGE, WINDOW, WINDOW_BYTES};

use super::draw::Draw;
use super::model::{Model, STACK_GAP, address, traits};

/// Places in the window, in pages, where a sequence works. The first lies across the border of two page tables.
pub(super) const SITES: [Range<u64>; 4] = [500..524, 0..16, 560..600, 690..1010];

/// Draws the arguments of a call.
pub(super) struct Arguments<'a> {
    pub(super) draw: &'a mut Draw,
    pub(super) model: &'a Model,
    pub(super) site: Range<u64>,
}

impl Arguments<'_> {
    /// Returns an operation.
    pub(super) fn op(&mut self, call: Call) -> Op {
        match call {
            Call::Mmap => self.mmap(),
            Call::Mremap => self.mremap(),
            Call::Mprotect => {
                let (start, len) = self.range(false);
                let prot = self.prot();
                let grows = if self.draw.chance(30) { libc::PROT_GROWSDOWN as u64 } else { 0 };
                Op::new(call, &[start, len, prot | grows])
            }
            Call::Madvise => self.madvise(),
            Call::Mincore => self.ranged(call, 30, &[0, 0, 0, 0, 0, 0, 0, 0, 0, 1]),
            Call::Msync => self.ranged(call, 100, &[1, 4, 4, 2, 6, 0, 3, 5, 8]),
            Call::Mlock2 => self.ranged(call, 30, &[0, 1, 1, 1, 1, 1, 2]),
            Call::Mseal => self.ranged(call, 30, &[0, 0, 0, 0, 0, 0, 1]),
            Call::Munmap | Call::Mlock | Call::Munlock => self.ranged(call, 40, &[]),
            Call::RemapFilePages => self.remap_file_pages(),
            Call::Mlockall => {
                // Making all pages that there are, the process's own too, costs much.
                let flags =
                    self.draw.weighted(&[(1, 1), (3, 1), (2, 5), (6, 5), (5, 2), (7, 2), (4, 1), (0, 1), (8, 1)]);
                Op::new(call, &[flags])
            }
            Call::Brk => self.brk(),
            Call::Fork | Call::Vfork | Call::Snapshot => {
                let nr_ops = self.draw.within(1..6);
                Op::new(call, &[nr_ops])
            }
            Call::Load | Call::Fetch => {
                let at = self.place();
                Op::new(call, &[at])
            }
            Call::Store => {
                let (at, value) = (self.place(), self.draw.below(256));
                Op::new(call, &[at, value])
            }
            Call::Fill => self.fill(),
            Call::Output | Call::Discard => {
                let (at, len) = self.buffer();
                Op::new(call, &[at, len])
            }
            Call::Input => {
                let ((at, len), value) = (self.buffer(), self.draw.below(256));
                Op::new(call, &[at, len, value])
            }
            Call::Truncate => self.truncate(),
            Call::Munlockall | Call::Look | Call::Resident => Op::new(call, &[]),
        }
    }

    /// A range, and one of some numbers; so many times of a thousand the range may leave what is mapped.
    fn ranged(&mut self, call: Call, wild: u64, last: &[u64]) -> Op {
        let is_wild = self.draw.chance(wild);
        let (start, len) = self.range(is_wild);
        match last.is_empty() {
            true => Op::new(call, &[start, len]),
            false => Op::new(call, &[start, len, self.draw.one(last)]),
        }
    }

    /// Returns first address and length, in pages, of a range: most often inside what is mapped.
    fn range(&mut self, is_wild: bool) -> (u64, u64) {
        let pages = match self.model.piece(self.draw) {
            Some(piece) if !is_wild && self.draw.chance(850) => self.part(piece.pages),
            _ => self.anywhere(),
        };
        let len = (pages.end - pages.start) * PAGE;
        // Lengths are rounded up.
        let less = if self.draw.chance(60) { self.draw.below(PAGE) } else { 0 };
        (address(pages.start), len - less)
    }

    fn part(&mut self, pages: Range<u64>) -> Range<u64> {
        let len = pages.end - pages.start;
        let cut = pages.start + self.draw.below(len);
        match self.draw.below(10) {
            0..3 => pages,
            3..5 => pages.start..cut + 1,
            5..7 => cut..pages.end,
            7..9 => cut..cut + 1 + self.draw.below((pages.end - cut).min(3)),
            _ => pages.start.saturating_sub(1)..(pages.end + 2).min(WINDOW_BYTES / PAGE),
        }
    }

    fn anywhere(&mut self) -> Range<u64> {
        let start = self.draw.within(self.site.clone());
        let most = (WINDOW_BYTES / PAGE - start).min(12);
        start..start + 1 + self.draw.below(most)
    }

    fn prot(&mut self) -> u64 {
        self.draw.weighted(&[(3, 50), (1, 20), (0, 10), (5, 7), (7, 5), (2, 4), (4, 4), (6, 2), (9, 2), (11, 2)])
    }

    /// Returns an address, most often of something mapped; often near the middle or the end of a page.
    fn place(&mut self) -> u64 {
        let (pages, grows) = match self.model.piece(self.draw) {
            Some(piece) if self.draw.chance(900) => (piece.pages.clone(), piece.is(traits::GROWS)),
            _ => (self.site.start..self.site.end, false),
        };
        let page = match self.draw.below(12) {
            0..5 if grows => self.lowest_growth(pages.start) + self.draw.below(3),
            // Just below, where a stack would grow, and just behind.
            0 => pages.start.saturating_sub(1 + self.draw.below(4)),
            1 => pages.end.min(WINDOW_BYTES / PAGE - 1),
            _ => self.draw.within(pages),
        };
        let offset = self.draw.one(&[0, 0, 8, 0x7ff, 0x800, 0xff0]);
        address(page) + offset
    }

    /// Returns the page below the lowest one that a stack above may grow to: the gap's last, or beyond the limit.
    fn lowest_growth(&self, stack: u64) -> u64 {
        let below = self.model.overlapping(0..stack).map(|piece| piece.pages.end).last().unwrap_or(0);
        let most = self.model.bounds.stack.unwrap_or(u64::MAX) / PAGE;
        (below + STACK_GAP).max(stack.saturating_sub(most)).clamp(1, WINDOW_BYTES / PAGE - 3) - 1
    }

    fn mmap(&mut self) -> Op {
        let (pages, prot) = (self.new_range(), self.prot());
        let private = libc::MAP_PRIVATE as u64;
        let shared = libc::MAP_SHARED as u64;
        let kind = self.draw.weighted(&[(private, 70), (shared, 28), (libc::MAP_SHARED_VALIDATE as u64, 2)]);
        let file = self.draw.weighted(&[
            (File::None, 72),
            (File::ReadWrite, 16),
            (File::Reference, 14),
            (File::ReadOnly, 6),
            (File::Empty, 4),
            (File::WriteOnly, 1),
        ]);
        // Of anonymous memory alone.
        let is_droppable = file == File::None && kind == private && self.draw.chance(120);
        let kind = if is_droppable { libc::MAP_DROPPABLE as u64 } else { kind };
        let anonymous = if file == File::None { libc::MAP_ANONYMOUS as u64 } else { 0 };
        let (start, fixed) = self.placement(pages.start);
        let offset = if file == File::None { 0 } else { self.draw.below(7) * PAGE };
        let flags = kind | anonymous | fixed | self.extras(kind == private && file == File::None);
        Op::new(Call::Mmap, &[start, (pages.end - pages.start) * PAGE, prot, flags, file as u64, offset])
    }

    /// Returns pages for a mapping: often beside what is there.
    fn new_range(&mut self) -> Range<u64> {
        let any = self.anywhere();
        let len = any.end - any.start;
        let start = match self.model.piece(self.draw) {
            Some(piece) if self.draw.chance(250) => piece.pages.end,
            Some(piece) if self.draw.chance(200) => piece.pages.start.saturating_sub(len),
            _ => any.start,
        };
        start.min(WINDOW_BYTES / PAGE - len)..(start + len).min(WINDOW_BYTES / PAGE)
    }

    fn placement(&mut self, page: u64) -> (u64, u64) {
        let (fixed, new) = (libc::MAP_FIXED as u64, libc::MAP_FIXED_NOREPLACE as u64);
        match self.draw.below(100) {
            0..84 => (address(page), fixed),
            84..88 => (address(page), new),
            88 => (address(page), fixed | new),
            89..94 => (0, 0),
            94..98 => (address(page) + self.draw.below(PAGE), 0),
            _ => (self.draw.one(&[0, PAGE, 0x3000, 0xf000]), fixed),
        }
    }

    fn extras(&mut self, may_grow: bool) -> u64 {
        let mut flags = 0;
        for (flag, thousandths) in [
            (libc::MAP_POPULATE, 50),
            (libc::MAP_LOCKED, 30),
            (libc::MAP_NORESERVE, 60),
            (libc::MAP_STACK, 10),
            (libc::MAP_NONBLOCK, 10),
            (libc::MAP_DENYWRITE, 10),
            (libc::MAP_EXECUTABLE, 10),
        ] {
            if self.draw.chance(thousandths) {
                flags |= flag as u64;
            }
        }
        let growing = if self.site == SITES[3] { 350 } else { 30 };
        if may_grow && self.draw.chance(growing) {
            flags |= libc::MAP_GROWSDOWN as u64;
        }
        flags
    }

    fn mremap(&mut self) -> Op {
        let (start, len) = self.range(false);
        let pages = len.div_ceil(PAGE);
        let new_pages = match self.draw.below(10) {
            0..4 => pages,
            4..7 => pages + 1 + self.draw.below(5),
            7..9 => (pages / 2).max(1),
            _ => 1,
        };
        let (moves, fixed, keeps) =
            (libc::MREMAP_MAYMOVE as u64, libc::MREMAP_FIXED as u64, libc::MREMAP_DONTUNMAP as u64);
        let flags = self.draw.weighted(&[
            (0, 20),
            (moves, 30),
            (moves | fixed, 35),
            (moves | keeps, 8),
            (moves | fixed | keeps, 7),
        ]);
        let new_pages = if flags & keeps != 0 && self.draw.chance(900) { pages } else { new_pages };
        let target = if flags & (fixed | keeps) == 0 { 0 } else { address(self.new_range().start) };
        // A place to keep clear of is no place to go to.
        let target = if flags & fixed == 0 && self.draw.chance(500) { 0 } else { target };
        let old_len = if self.draw.chance(40) { 0 } else { len };
        let cut = if self.draw.chance(40) { self.draw.below(PAGE) } else { 0 };
        Op::new(Call::Mremap, &[start, old_len, new_pages * PAGE - cut, flags, target])
    }

    fn madvise(&mut self) -> Op {
        let (start, len) = self.range(false);
        let advice = self.draw.weighted(&[
            (4, 26),
            (24, 4),
            (8, 8),
            (9, 6),
            (3, 3),
            (22, 5),
            (23, 6),
            (10, 4),
            (11, 3),
            (18, 5),
            (19, 3),
            (20, 2),
            (21, 2),
            (12, 2),
            (13, 2),
            (0, 1),
            (1, 2),
            (2, 2),
            (16, 2),
            (17, 2),
            (102, 7),
            (103, 5),
        ]);
        Op::new(Call::Madvise, &[start, len, advice])
    }

    fn brk(&mut self) -> Op {
        let at = match self.draw.below(10) {
            0 => 0,
            1 => HEAP_START - 1 - self.draw.below(3 * PAGE),
            2..8 => HEAP_START + self.draw.below(12 * PAGE),
            _ => HEAP_START + self.draw.below(400) * PAGE,
        };
        Op::new(Call::Brk, &[at])
    }

    fn fill(&mut self) -> Op {
        let (start, len) = self.range(false);
        let (pages, value) = (len.div_ceil(PAGE).min(40), self.draw.below(256));
        let offset = self.draw.one(&[0, 0, 0x10, 0x801]);
        Op::new(Call::Fill, &[start + offset, pages, value])
    }

    fn buffer(&mut self) -> (u64, u64) {
        let at = self.place();
        (at, self.draw.one(&[1, 8, 100, 0x800, 0x1000, 0x1000, 0x2000, 0]))
    }

    fn truncate(&mut self) -> Op {
        let file =
            self.draw.weighted(&[(File::ReadWrite, 60), (File::Empty, 25), (File::WriteOnly, 8), (File::ReadOnly, 4)]);
        let len = self.draw.one(&[0, 1, 0x800, PAGE, PAGE + 1, 3 * PAGE, 3 * PAGE + 0x123, 5 * PAGE, 8 * PAGE]);
        Op::new(Call::Truncate, &[file as u64, len])
    }

    fn remap_file_pages(&mut self) -> Op {
        let shared: Vec<_> = self.model.pieces.iter().filter(|piece| piece.is(traits::SHARED)).cloned().collect();
        let (start, len) = match shared.is_empty() {
            true => self.range(false),
            false => {
                let piece = &shared[self.draw.below(shared.len() as u64) as usize];
                let pages = self.part(piece.pages.clone());
                (address(pages.start), (pages.end - pages.start) * PAGE)
            }
        };
        let prot = self.draw.weighted(&[(0, 90), (1, 10)]);
        let flags = self.draw.weighted(&[(0, 80), (libc::MAP_NONBLOCK as u64, 15), (1, 5)]);
        let pgoff = self.draw.below(8);
        Op::new(Call::RemapFilePages, &[start, len, prot, pgoff, flags])
    }

    /// Breaks one argument of an operation.
    pub(super) fn spoil(&mut self, op: &mut Op) {
        let nr = op.call.arguments().len() as u64;
        if nr == 0 {
            return;
        }
        let place = self.draw.below(nr.min(4)) as usize;
        op.args[place] = match self.draw.below(6) {
            0 => op.args[place] + 1,
            1 => 0,
            2 => op.args[place] ^ (1 << self.draw.below(32)),
            3 => WINDOW + self.draw.below(WINDOW_BYTES),
            4 => u64::MAX - self.draw.below(2) * 0xfff,
            _ => self.draw.below(8) * PAGE,
        };
    }
}
