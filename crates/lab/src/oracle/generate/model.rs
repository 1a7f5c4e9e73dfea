//! What the generator believes is mapped, so that most of its arguments mean something.
//!
//! # Guarantee
//! None: it is a guess, kept simple, and nothing is compared with it.

use std::ops::Range;

use faultless_linux::oracle::{Call, Op, PAGE, WINDOW, WINDOW_BYTES};

use super::draw::Draw;

/// What is believed to be mapped in a range of pages of the window.
#[derive(Clone, Debug)]
pub(super) struct Piece {
    pub(super) pages: Range<u64>,
    pub(super) prot: u64,
    pub(super) is_shared: bool,
}

/// All that is believed.
#[derive(Clone, Debug, Default)]
pub(super) struct Model {
    pub(super) pieces: Vec<Piece>,
}

/// Returns the address of a page of the window.
pub(super) fn address(page: u64) -> u64 {
    WINDOW.wrapping_add(page.wrapping_mul(PAGE))
}

/// Returns the page of an address of the window.
fn page(address: u64) -> Option<u64> {
    (WINDOW..WINDOW + WINDOW_BYTES).contains(&address).then(|| (address - WINDOW) / PAGE)
}

impl Model {
    /// Returns one of the pieces.
    pub(super) fn piece(&self, draw: &mut Draw) -> Option<Piece> {
        if self.pieces.is_empty() {
            None
        } else {
            Some(self.pieces[draw.below(self.pieces.len() as u64) as usize].clone())
        }
    }

    /// Learns from an operation, as if it succeeded.
    pub(super) fn learn(&mut self, op: &Op) {
        let [first, second, third, fourth, fifth, _] = op.args;
        let Some(start) = page(first) else { return };
        let pages = start..start.saturating_add(second.div_ceil(PAGE)).min(WINDOW_BYTES / PAGE);
        match op.call {
            Call::Mmap if fourth & libc::MAP_FIXED as u64 != 0 => self.map(pages, third, fourth),
            Call::Munmap => self.remove(&pages),
            Call::Mprotect => self.protect(&pages, third),
            Call::Mremap => self.remap(pages, third.div_ceil(PAGE), fourth, fifth),
            _ => {}
        }
    }

    fn map(&mut self, pages: Range<u64>, prot: u64, flags: u64) {
        self.remove(&pages);
        self.pieces.push(Piece { pages, prot, is_shared: flags & 1 != 0 });
    }

    fn remove(&mut self, gone: &Range<u64>) {
        let mut rest = Vec::with_capacity(self.pieces.len() + 1);
        for piece in self.pieces.drain(..) {
            let parts =
                [piece.pages.start..piece.pages.end.min(gone.start), piece.pages.start.max(gone.end)..piece.pages.end];
            rest.extend(
                parts.into_iter().filter(|part| !part.is_empty()).map(|pages| Piece { pages, ..piece.clone() }),
            );
        }
        self.pieces = rest;
    }

    fn protect(&mut self, pages: &Range<u64>, prot: u64) {
        for piece in &mut self.pieces {
            if pages.start <= piece.pages.start && piece.pages.end <= pages.end {
                piece.prot = prot;
            }
        }
    }

    fn remap(&mut self, old: Range<u64>, new_pages: u64, flags: u64, target: u64) {
        let Some(piece) = self.pieces.iter().find(|piece| piece.pages.contains(&old.start)).cloned() else { return };
        if flags & libc::MREMAP_DONTUNMAP as u64 == 0 {
            self.remove(&old);
        }
        let fixed = page(target).filter(|_| flags & libc::MREMAP_FIXED as u64 != 0);
        let start = fixed.unwrap_or(old.start);
        let pages = start..start.saturating_add(new_pages).min(WINDOW_BYTES / PAGE);
        self.remove(&pages);
        self.pieces.push(Piece { pages, ..piece });
    }
}
