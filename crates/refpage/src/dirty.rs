//! Which pages of a mapping were written: what an allocator that reuses memory must refill.
//!
//! # Guarantee
//! [`RefPage::refresh_raw`] makes a range the pattern again and keeps the pages that it has: no
//! page is given back, so none has to be copied again; pages that were never written stay free.
//!
//! # How
//! /proc/self/pagemap (readable without privileges) tells a private copy from the tile's page: a
//! page that is present or swapped, and not the file's, was written. Where it cannot be read, the
//! range is reset instead.
//!
//! # Invariant
//! I12 The descriptor of pagemap is this process's own: it would show a forked child its parent's
//! pages, so its number is in the wiped page, and it is used only while device and inode match.

use crate::raw::{Kind, RawMapping};
use crate::sys::{self, Identity};
use crate::wiped::{Wiped, wiped};
use crate::{Error, RefPage, lock};
use std::ops::Range;
use std::sync::atomic::Ordering;

const PRESENT: u64 = 1 << 63;
const SWAPPED: u64 = 1 << 62;
/// The page is a file's, or shared.
const IS_FILE: u64 = 1 << 61;
/// How many pages one call asks about.
const BATCH: usize = 256;

impl RefPage {
    /// Makes a range of whole pages the pattern again and keeps the pages that it has.
    ///
    /// # Safety
    /// The mapping came from this pattern, and nobody else uses the range meanwhile.
    pub unsafe fn refresh_raw(&self, raw: &RawMapping, range: Range<usize>) -> Result<(), Error> {
        // SAFETY: the caller's promise.
        unsafe { self.refresh_and_tell(raw, range, |_| {}) }
    }

    /// As [`RefPage::refresh_raw`], and tells which parts had been written. Their pages are private
    /// copies and remain so until the range is reset: a caller that remembers them can fill them
    /// next time without asking the kernel.
    ///
    /// # Safety
    /// As for `refresh_raw`.
    pub unsafe fn refresh_and_tell(
        &self,
        raw: &RawMapping,
        range: Range<usize>,
        mut written: impl FnMut(Range<usize>),
    ) -> Result<(), Error> {
        let page = sys::page_len();
        let is_whole = range.start.is_multiple_of(page) && range.end.is_multiple_of(page);
        if raw.kind != Kind::Tiled || !is_whole || range.end > raw.len {
            // SAFETY: the caller's promise.
            return unsafe { self.reset_raw(raw, range) };
        }
        let mut at = range.start;
        while at < range.end {
            // SAFETY: the caller's promise.
            match unsafe { self.refresh_batch(raw, at..range.end, &mut written) } {
                Some(done) => at += done,
                // SAFETY: the caller's promise.
                None => return unsafe { self.reset_raw(raw, at..range.end) },
            }
        }
        Ok(())
    }

    /// Returns how many of a mapping's first pages, 256 at most, were asked about, and how many of
    /// them were written; nothing where the kernel does not tell.
    pub fn count_written(&self, raw: &RawMapping) -> Option<(usize, usize)> {
        let page = sys::page_len();
        let mut words = [0; BATCH];
        let wanted = (raw.len / page).min(BATCH);
        let got = read_pagemap(&mut words[..wanted], raw.address.addr() / page)?;
        Some((got, words[..got].iter().filter(|word| is_written(**word)).count()))
    }

    /// Refreshes the first pages of a range and returns how many bytes they are.
    ///
    /// # Safety
    /// As for `refresh_raw`.
    unsafe fn refresh_batch(
        &self,
        raw: &RawMapping,
        range: Range<usize>,
        written: &mut impl FnMut(Range<usize>),
    ) -> Option<usize> {
        let page = sys::page_len();
        let mut words = [0; BATCH];
        let wanted = (range.len() / page).min(BATCH);
        let first = (raw.address.addr() + range.start) / page;
        let got = read_pagemap(&mut words[..wanted], first)?;
        let mut at = range.start;
        for run in words[..got].chunk_by(|a, b| is_written(*a) == is_written(*b)) {
            let part = at..at + run.len() * page;
            at = part.end;
            if is_written(run[0]) {
                // SAFETY: the part lies inside the range.
                self.place.pattern().fill(unsafe { raw.bytes(part.clone()) }, part.start);
                written(part);
            }
        }
        Some(got * page)
    }
}

fn is_written(word: u64) -> bool {
    word & (PRESENT | SWAPPED) != 0 && word & IS_FILE == 0
}

/// Reads the words of pages from number `first` on; returns how many, at least one.
fn read_pagemap(words: &mut [u64], first: usize) -> Option<usize> {
    let fd = pagemap(wiped().ok()?)?;
    let got = sys::read_words(fd, words, first * size_of::<u64>()).ok()?;
    (got > 0).then_some(got)
}

/// Returns a descriptor of /proc/self/pagemap (I12).
fn pagemap(wiped: &Wiped) -> Option<i32> {
    known_pagemap(wiped).or_else(|| open_pagemap(wiped))
}

fn known_pagemap(wiped: &Wiped) -> Option<i32> {
    // ORDER: Acquire pairs with the Release in `open_pagemap`.
    let fd = wiped.pagemap.load(Ordering::Acquire).checked_sub(1)? as i32;
    // Relaxed: ordered by the descriptor; a newer one does not match, which leads to the lock.
    let expected = wiped.pagemap_inode.load(Ordering::Relaxed);
    let (identity, _) = sys::identify(fd).ok()?;
    (fingerprint(identity) == expected).then_some(fd)
}

#[cold]
fn open_pagemap(wiped: &Wiped) -> Option<i32> {
    let _guard = lock::lock().ok()?;
    if let Some(fd) = known_pagemap(wiped) {
        return Some(fd);
    }
    let fd = sys::moved_up(sys::open(c"/proc/self/pagemap").ok()?);
    let Ok((identity, _)) = sys::identify(fd) else {
        sys::close(fd);
        return None;
    };
    // Relaxed: published by the descriptor.
    wiped.pagemap_inode.store(fingerprint(identity), Ordering::Relaxed);
    // ORDER: Release pairs with the Acquire in `known_pagemap`.
    wiped.pagemap.store(fd as u32 + 1, Ordering::Release);
    Some(fd)
}

/// Device and inode in one word.
fn fingerprint(identity: Identity) -> u64 {
    identity.inode ^ identity.device.rotate_left(32)
}
