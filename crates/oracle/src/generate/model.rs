//! What the generator believes is mapped, so that most of its arguments mean something.
//!
//! # Guarantee
//! None: it is a guess, and nothing is compared with it. It follows the calls closely enough that `predict` is right
//! nearly always; what it does not follow, as joining and cutting of areas by their history, is left to chance.

use std::ops::Range;

use crate::kernel::{Bounds, Call, FILE_BYTES, File, HEAP_START, Op, PAGE, Sequence, WINDOW, WINDOW_BYTES};

use super::draw::Draw;

/// Pages of the window.
pub(super) const NR_PAGES: u64 = WINDOW_BYTES / PAGE;

/// Pages that stay free below a stack.
pub(super) const STACK_GAP: u64 = 256;

/// What is believed to be mapped in a range of pages of the window.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Piece {
    pub(super) pages: Range<u64>,
    pub(super) prot: u64,
    /// What is behind it; `None` for anonymous memory.
    pub(super) file: File,
    /// Page of the file.
    pub(super) offset: u64,
    pub(super) traits: u32,
}

/// What a piece may be besides.
pub(super) mod traits {
    pub(in super::super) const SHARED: u32 = 1;
    pub(in super::super) const GROWS: u32 = 2;
    pub(in super::super) const LOCKED: u32 = 4;
    pub(in super::super) const SEALED: u32 = 8;
    pub(in super::super) const GUARDED: u32 = 16;
    pub(in super::super) const NOT_FORKED: u32 = 32;
    pub(in super::super) const DROPPABLE: u32 = 64;
}

impl Piece {
    pub(super) fn is(&self, wanted: u32) -> bool {
        self.traits & wanted == wanted
    }

    fn offset_of(&self, page: u64) -> u64 {
        if self.file == File::None { 0 } else { self.offset + (page - self.pages.start) }
    }

    fn part(&self, pages: Range<u64>) -> Self {
        let start = pages.start.max(self.pages.start);
        Self { offset: self.offset_of(start), pages: start..pages.end.min(self.pages.end), ..self.clone() }
    }

    fn is_continued_by(&self, next: &Self) -> bool {
        self.pages.end == next.pages.start
            && (self.prot, self.file, self.traits) == (next.prot, next.file, next.traits)
            && self.offset_of(next.pages.start) == next.offset
    }
}

/// All that is believed.
#[derive(Clone, Debug)]
pub(super) struct Model {
    /// Ascending, apart.
    pub(super) pieces: Vec<Piece>,
    pub(super) bounds: Bounds,
    pub(super) is_root: bool,
    /// Lengths of `rw` and `empty`.
    sizes: [u64; 2],
    heap_end: u64,
    locks_all: bool,
    /// What parents believe, and where their children's operations end.
    parents: Vec<(Vec<Piece>, usize)>,
}

/// Returns the address of a page of the window.
pub(super) fn address(page: u64) -> u64 {
    WINDOW.wrapping_add(page.wrapping_mul(PAGE))
}

/// Returns the page of an address of the window.
pub(super) fn page(address: u64) -> Option<u64> {
    (WINDOW..WINDOW + WINDOW_BYTES).contains(&address).then(|| (address - WINDOW) / PAGE)
}

/// Returns the pages of a range that begins in the window, cut at its end.
pub(super) fn pages(start: u64, len: u64) -> Option<Range<u64>> {
    let start = page(start)?;
    Some(start..start.saturating_add(len.div_ceil(PAGE)).min(NR_PAGES))
}

fn has(flags: u64, flag: i32) -> bool {
    flags & flag as u64 != 0
}

/// Says whether a mapping's flags make it one that may be dropped.
pub(super) fn is_droppable(flags: u64) -> bool {
    flags & 0xf == libc::MAP_DROPPABLE as u64
}

impl Model {
    /// Returns what is believed at the beginning of a sequence.
    pub(super) fn new(sequence: &Sequence) -> Self {
        Self {
            pieces: Vec::new(),
            bounds: sequence.bounds,
            is_root: sequence.user.is_root(),
            sizes: [FILE_BYTES, 0],
            heap_end: HEAP_START,
            locks_all: false,
            parents: Vec::new(),
        }
    }

    /// Returns one of the pieces.
    pub(super) fn piece(&self, draw: &mut Draw) -> Option<Piece> {
        if self.pieces.is_empty() {
            None
        } else {
            Some(self.pieces[draw.below(self.pieces.len() as u64) as usize].clone())
        }
    }

    /// Returns the piece that holds a page.
    pub(super) fn at(&self, page: u64) -> Option<&Piece> {
        let place = self.pieces.partition_point(|piece| piece.pages.end <= page);
        self.pieces.get(place).filter(|piece| piece.pages.start <= page)
    }

    /// Returns the pieces that overlap a range, ascending.
    pub(super) fn overlapping(&self, pages: Range<u64>) -> impl Iterator<Item = &Piece> {
        let first = self.pieces.partition_point(|piece| piece.pages.end <= pages.start);
        self.pieces[first..].iter().take_while(move |piece| piece.pages.start < pages.end)
    }

    /// Says whether a page of a piece lies in its file.
    pub(super) fn is_in_file(&self, piece: &Piece, page: u64) -> bool {
        let size = match piece.file {
            File::Empty => self.sizes[1],
            File::ReadWrite | File::ReadOnly | File::WriteOnly => self.sizes[0],
            File::None | File::Pipe | File::Closed | File::Reference => return true,
        };
        piece.offset_of(page) * PAGE < size
    }

    /// Returns the stack that would grow down to a page.
    pub(super) fn stack_above(&self, page: u64) -> Option<&Piece> {
        let place = self.pieces.partition_point(|piece| piece.pages.end <= page);
        let below = place.checked_sub(1).map_or(0, |below| self.pieces[below].pages.end + STACK_GAP);
        let above = self.pieces.get(place)?;
        let most = self.bounds.stack.unwrap_or(8 << 20) / PAGE;
        let fits = page >= below && page < above.pages.start && above.pages.end - page <= most;
        (fits && above.is(traits::GROWS)).then_some(above)
    }

    /// Returns how many pages count against RLIMIT_AS, RLIMIT_DATA and RLIMIT_MEMLOCK.
    pub(super) fn sums(&self) -> [u64; 3] {
        let mut sums = [0; 3];
        for piece in &self.pieces {
            let len = piece.pages.end - piece.pages.start;
            let is_data = piece.prot & 2 != 0 && piece.traits & (traits::SHARED | traits::GROWS) == 0;
            let counts = [true, is_data, piece.is(traits::LOCKED)];
            sums.iter_mut().zip(counts).filter(|(_, counts)| *counts).for_each(|(sum, _)| *sum += len);
        }
        sums
    }

    /// Returns where the kernel would put so many pages.
    pub(super) fn room(&self, nr_pages: u64) -> Option<u64> {
        let mut end = NR_PAGES;
        for piece in self.pieces.iter().rev() {
            if end >= piece.pages.end + nr_pages {
                break;
            }
            end = piece.pages.start.saturating_sub(if piece.is(traits::GROWS) { STACK_GAP } else { 0 });
        }
        end.checked_sub(nr_pages)
    }

    /// Learns from an operation, as if it succeeded; `place` is its own in the sequence.
    pub(super) fn learn(&mut self, op: &Op, place: usize) {
        let [first, second, third, fourth, ..] = op.args;
        match op.call {
            Call::Mmap => self.map(op),
            Call::Munmap => self.on(first, second, |_| false),
            Call::Mprotect => self.on(first, second, |piece| {
                piece.prot = third & 7;
                true
            }),
            Call::Mremap => self.remap(op),
            Call::Madvise => self.advise(first, second, third),
            Call::Mlock | Call::Mlock2 => self.mark(first, second, traits::LOCKED),
            Call::Munlock => self.unmark(first, second, traits::LOCKED),
            Call::Mlockall => self.lock_all(first),
            Call::Munlockall => {
                self.locks_all = false;
                self.unmark(WINDOW, WINDOW_BYTES, traits::LOCKED);
            }
            Call::Mseal => self.mark(first, second, traits::SEALED),
            Call::Brk => self.brk(first),
            Call::Truncate => self.sizes[usize::from(File::from_argument(first) == File::Empty)] = second,
            Call::RemapFilePages => self.on(first, second, |piece| {
                piece.offset = fourth;
                true
            }),
            Call::Fork => self.fork(place + 1 + first as usize),
            Call::Load | Call::Store | Call::Fill | Call::Input | Call::Output | Call::Fetch => self.grow(first),
            _ => {}
        }
    }

    /// Comes back to the parents whose children have ended before the operation at `place`.
    pub(super) fn arrive(&mut self, place: usize) {
        while self.parents.last().is_some_and(|(_, end)| *end <= place) {
            if let Some((pieces, _)) = self.parents.pop() {
                self.pieces = pieces;
            }
        }
    }

    fn fork(&mut self, end: usize) {
        self.parents.push((self.pieces.clone(), end));
        self.pieces.retain(|piece| !piece.is(traits::NOT_FORKED));
        self.pieces.iter_mut().for_each(|piece| piece.traits &= !traits::LOCKED);
    }

    fn map(&mut self, op: &Op) {
        let [start, len, prot, flags, file, offset] = op.args;
        let nr_pages = len.div_ceil(PAGE);
        let is_fixed = has(flags, libc::MAP_FIXED) || has(flags, libc::MAP_FIXED_NOREPLACE);
        let hinted = page(start).filter(|&page| is_fixed || self.overlapping(page..page + nr_pages).next().is_none());
        let Some(first) = hinted.or_else(|| self.room(nr_pages).filter(|_| !is_fixed)) else { return };
        let file = if has(flags, libc::MAP_ANONYMOUS) { File::None } else { File::from_argument(file) };
        let is_droppable = is_droppable(flags);
        let is_locked = !is_droppable && (has(flags, libc::MAP_LOCKED) || self.locks_all);
        let traits = [
            (flags & 1 != 0, traits::SHARED),
            (has(flags, libc::MAP_GROWSDOWN), traits::GROWS),
            (is_locked, traits::LOCKED),
            (is_droppable, traits::DROPPABLE),
        ];
        let traits = traits.into_iter().filter(|(is, _)| *is).fold(0, |sum, (_, bit)| sum | bit);
        let pages = first..(first + nr_pages).min(NR_PAGES);
        self.put(Piece { pages, prot: prot & 7, file, offset: offset / PAGE, traits });
    }

    fn advise(&mut self, start: u64, len: u64, advice: u64) {
        match advice {
            102 => self.mark(start, len, traits::GUARDED),
            103 => self.unmark(start, len, traits::GUARDED),
            10 => self.mark(start, len, traits::NOT_FORKED),
            11 => self.unmark(start, len, traits::NOT_FORKED),
            _ => {}
        }
    }

    fn lock_all(&mut self, flags: u64) {
        self.locks_all = flags & 2 != 0;
        if flags & 1 != 0 {
            self.mark(WINDOW, WINDOW_BYTES, traits::LOCKED);
        }
    }

    fn brk(&mut self, end: u64) {
        let page_of = |address: u64| (address - WINDOW).div_ceil(PAGE);
        if !(HEAP_START..WINDOW + WINDOW_BYTES).contains(&end) {
            return;
        }
        let (old, new) = (page_of(self.heap_end), page_of(end));
        if new < old {
            self.on(address(new), (old - new) * PAGE, |_| false);
        } else if new > old {
            if self.overlapping(old..new + 1).next().is_some() {
                return;
            }
            let traits = if self.locks_all { traits::LOCKED } else { 0 };
            self.put(Piece { pages: old..new, prot: 3, file: File::None, offset: 0, traits });
        }
        self.heap_end = end;
    }

    fn remap(&mut self, op: &Op) {
        let [start, old_len, new_len, flags, target, _] = op.args;
        let (Some(old), nr_new) = (pages(start, old_len.max(1)), new_len.div_ceil(PAGE)) else { return };
        let nr_old = old_len.div_ceil(PAGE);
        let moved: Vec<Piece> = self.overlapping(old.clone()).map(|piece| piece.part(old.clone())).collect();
        let Some(last) = moved.last().cloned() else { return };
        let grown = old.start + nr_old..old.start + nr_new;
        let is_free = grown.end <= NR_PAGES && self.overlapping(grown.clone()).next().is_none();
        let keeps = has(flags, libc::MREMAP_DONTUNMAP);
        let first = match () {
            () if has(flags, libc::MREMAP_FIXED) => page(target),
            () if nr_new <= nr_old && !keeps => {
                return self.on(address(old.start + nr_new), (nr_old - nr_new) * PAGE, |_| false);
            }
            () if is_free && !keeps => {
                return self.put(Piece { offset: last.offset_of(grown.start), pages: grown, ..last });
            }
            () => self.room(nr_new),
        };
        let Some(first) = first else { return };
        if !keeps && nr_old != 0 {
            self.on(start, old_len, |_| false);
        }
        for piece in moved {
            let begin = first + (piece.pages.start - old.start);
            let len = if piece.pages.end == old.end {
                nr_new.saturating_sub(piece.pages.start - old.start)
            } else {
                piece.pages.end - piece.pages.start
            };
            self.put(Piece { pages: begin..(begin + len).min(NR_PAGES), ..piece });
        }
    }

    fn grow(&mut self, at: u64) {
        let Some(page) = page(at).filter(|&page| self.at(page).is_none()) else { return };
        if let Some(stack) = self.stack_above(page).cloned() {
            self.put(Piece { pages: page..stack.pages.start, ..stack });
        }
    }

    fn mark(&mut self, start: u64, len: u64, bit: u32) {
        self.on(start, len, |piece| {
            piece.traits |= bit;
            true
        });
    }

    fn unmark(&mut self, start: u64, len: u64, bit: u32) {
        self.on(start, len, |piece| {
            piece.traits &= !bit;
            true
        });
    }

    /// Puts a piece in place of what was there.
    fn put(&mut self, piece: Piece) {
        if piece.pages.is_empty() {
            return;
        }
        self.on(address(piece.pages.start), (piece.pages.end - piece.pages.start) * PAGE, |_| false);
        let place = self.pieces.partition_point(|other| other.pages.end <= piece.pages.start);
        self.pieces.insert(place, piece);
        self.join(place.saturating_sub(1)..place + 2);
    }

    /// Changes the parts of pieces that lie in a range; those for which `change` says no go.
    fn on(&mut self, start: u64, len: u64, mut change: impl FnMut(&mut Piece) -> bool) {
        let Some(range) = pages(start, len).filter(|range| !range.is_empty()) else { return };
        let first = self.pieces.partition_point(|piece| piece.pages.end <= range.start);
        let last = first + self.pieces[first..].partition_point(|piece| piece.pages.start < range.end);
        let mut parts = Vec::with_capacity(last - first + 2);
        for piece in &self.pieces[first..last] {
            let mut inner = piece.part(range.clone());
            parts.push(piece.part(0..range.start));
            if change(&mut inner) {
                parts.push(inner);
            }
            parts.push(piece.part(range.end..NR_PAGES));
        }
        parts.retain(|part| part.pages.start < part.pages.end);
        let nr_parts = parts.len();
        self.pieces.splice(first..last, parts);
        self.join(first.saturating_sub(1)..first + nr_parts + 1);
    }

    /// Joins equal neighbours among some pieces.
    fn join(&mut self, places: Range<usize>) {
        for place in places.rev() {
            if place + 1 < self.pieces.len() && self.pieces[place].is_continued_by(&self.pieces[place + 1]) {
                self.pieces[place].pages.end = self.pieces[place + 1].pages.end;
                self.pieces.remove(place + 1);
            }
        }
    }
}
