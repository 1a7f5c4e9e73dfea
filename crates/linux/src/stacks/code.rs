//! The code in one address space, and how a stack in it is unwound.
//!
//! # Guarantee
//! What is mapped later hides what was mapped before; unmapping is not seen, so an address in what is gone counts as
//! there.

use std::collections::BTreeMap;
use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use faultless_trace::FileIndex;
use faultless_trace::stacks::Reach;
use framehop::Unwinder;
use framehop::x86_64::{CacheX86_64, UnwindRegsX86_64, UnwinderX86_64};

use super::image::{Bytes, Image};

/// More frames than this are a loop in the unwinding tables, or of no use to anybody.
pub(crate) const FRAMES_MOST: usize = 512;

/// What the tables hold for addresses met before. It serves all spaces.
pub(crate) type Cache = CacheX86_64;

/// The code in one address space.
#[derive(Clone, Default)]
pub(crate) struct Code {
    unwinder: UnwinderX86_64<Bytes>,
    /// By start: what stands there.
    placed: BTreeMap<u64, Placed>,
}

/// A mapped part of a file.
#[derive(Clone)]
pub(crate) struct Placed {
    pub(crate) end: u64,
    pub(crate) file: FileIndex,
    pub(crate) image: Arc<Image>,
    /// To be subtracted from addresses for the file's own.
    pub(crate) bias: u64,
}

/// A copy of the top of a stack, and where its thread stood.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Copied {
    pub(crate) ip: u64,
    pub(crate) sp: u64,
    pub(crate) bp: u64,
    /// From `sp` on.
    pub(crate) bytes: Vec<u8>,
}

impl Code {
    /// Puts a file's part, or nothing that is known, in the place of what was there.
    pub(crate) fn map(&mut self, start: u64, end: u64, placed: Option<Placed>) {
        for (from, old) in self.over(start..end) {
            self.remove(from);
            if from < start {
                self.insert(from, Placed { end: start, ..old.clone() });
            }
            if old.end > end {
                self.insert(end, old);
            }
        }
        placed.into_iter().for_each(|placed| self.insert(start, placed));
    }

    fn over(&self, range: Range<u64>) -> Vec<(u64, Placed)> {
        let below = self.placed.range(..range.end).rev().take_while(|(_, placed)| placed.end > range.start);
        below.map(|(&start, placed)| (start, placed.clone())).collect()
    }

    fn insert(&mut self, start: u64, placed: Placed) {
        self.unwinder.add_module(placed.image.module(start..placed.end, placed.bias));
        self.placed.insert(start, placed);
    }

    fn remove(&mut self, start: u64) {
        self.unwinder.remove_module(start);
        self.placed.remove(&start);
    }

    /// Returns the file at an address, and the address as the file counts.
    pub(crate) fn at(&self, address: u64) -> Option<(&Placed, u64)> {
        let (_, placed) = self.placed.range(..=address).next_back()?;
        (address < placed.end).then(|| (placed, address.wrapping_sub(placed.bias)))
    }

    /// Follows the callers of a stack; returns addresses inside the calls, from the innermost to the outermost.
    pub(crate) fn unwind(&self, copied: &Copied, cache: &mut Cache) -> (Vec<u64>, Reach) {
        let mut word_at = |address: u64| {
            let place = address.checked_sub(copied.sp).and_then(|place| usize::try_from(place).ok()).ok_or(())?;
            let bytes = copied.bytes.get(place..).and_then(|rest| rest.first_chunk()).ok_or(())?;
            Ok(u64::from_le_bytes(*bytes))
        };
        let registers = UnwindRegsX86_64::new(copied.ip, copied.sp, copied.bp);
        let mut frames = self.unwinder.iter_frames(copied.ip, registers, cache, &mut word_at);
        let mut addresses = Vec::new();
        while addresses.len() < FRAMES_MOST {
            match frames.next() {
                Ok(Some(frame)) => addresses.push(frame.address_for_lookup()),
                Ok(None) => return (addresses, Reach::Whole),
                Err(_) => return (addresses, Reach::Cut),
            }
        }
        (addresses, Reach::Cut)
    }
}

impl fmt::Debug for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Code of {} parts", self.placed.len())
    }
}
