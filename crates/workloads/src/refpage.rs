//! refpage: maps memory that is to start as a byte, touches some of its pages, and unmaps it.
//!
//! Source: version 5 of the series that introduces reference pages (P. Collingbourne, 2021), whose program does so 1000
//! times with 4 MiB and touches one page, half of them, or all. An operation is such a round. The variants are those of
//! version 3, and the one that a reviewer of version 5 asked for.

use crate::PAGE;
use crate::program::{Seat, Step, Worker};
use crate::space::{AddressSpace, Refused, Start};
use crate::spec::Settings;
use alloc::boxed::Box;
use core::ops::Range;

/// The byte: the one of the series' examples.
const BYTE: u8 = 0xaa;
/// Bytes that the published program maps.
pub(crate) const REGION_BYTES: u64 = 4 << 20;

/// How memory comes to hold the byte.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Variant {
    /// It does not: zeros.
    #[default]
    Anon,
    /// The program stores it.
    Memset,
    /// By a reference page.
    Refpage,
    /// By a pattern, without a page.
    Pattern,
}

impl Variant {
    /// All of them, in the order of the tables.
    pub const ALL: [Self; 4] = [Self::Anon, Self::Memset, Self::Refpage, Self::Pattern];

    /// Returns the name by which users choose it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Anon => "anon",
            Self::Memset => "memset",
            Self::Refpage => "refpage",
            Self::Pattern => "pattern",
        }
    }

    /// Returns the variant of a name.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|variant| variant.name() == name)
    }

    /// Returns what its mappings start as.
    pub const fn start(self) -> Start {
        match self {
            Self::Anon | Self::Memset => Start::Zeros,
            Self::Refpage => Start::Reference(BYTE),
            Self::Pattern => Start::Pattern(BYTE),
        }
    }
}

/// Which pages are touched.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Touch {
    /// The first one.
    #[default]
    One,
    /// So many of a hundred, evenly spread.
    Percent(u64),
}

/// How they are touched.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Access {
    /// By a store.
    #[default]
    Store,
    /// By a load, whose result is compared with what must be there.
    Load,
}

/// What the workload is told.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Refpage {
    /// `--variant`.
    pub variant: Variant,
    /// `--touch`.
    pub touch: Touch,
    /// `--load`.
    pub access: Access,
    /// `--reuse`: the memory is mapped once; later rounds drop its pages, or fill it again.
    pub is_reused: bool,
}

struct Rounds<'a> {
    space: &'a dyn AddressSpace,
    told: Refpage,
    len_bytes: u64,
    /// What a reused round finds.
    mapped: Option<u64>,
}

/// Makes a worker.
pub(crate) fn worker<'a>(
    settings: &Settings,
    _seat: Seat,
    space: &'a dyn AddressSpace,
) -> Result<Box<dyn Worker + 'a>, Refused> {
    Ok(Box::new(Rounds { space, told: settings.refpage, len_bytes: settings.region_bytes, mapped: None }))
}

impl Rounds<'_> {
    /// Returns memory that holds what the variant promises.
    fn fresh(&mut self) -> Result<Range<u64>, Refused> {
        let variant = self.told.variant;
        let first = match self.mapped {
            None => self.space.map_starting_as(variant.start(), self.len_bytes)?,
            Some(first) => {
                // An allocator that fills memory needs no fresh pages; the others give the old ones back.
                if variant != Variant::Memset {
                    self.space.discard(first..first + self.len_bytes)?;
                }
                first
            }
        };
        let range = first..first + self.len_bytes;
        if variant == Variant::Memset {
            self.space.fill(range.clone(), BYTE)?;
        }
        Ok(range)
    }

    fn touch(&self, range: &Range<u64>) -> Result<(), Refused> {
        let nr_pages = self.len_bytes / PAGE;
        let nr_touched = match self.told.touch {
            Touch::One => 1,
            Touch::Percent(percent) => nr_pages * percent / 100,
        };
        (0..nr_touched).try_for_each(|number| self.touch_page(range.start + number * nr_pages / nr_touched * PAGE))
    }

    fn touch_page(&self, address: u64) -> Result<(), Refused> {
        if self.told.access == Access::Store {
            return self.space.store(address, 1);
        }
        let expected = if self.told.variant == Variant::Anon { 0 } else { u64::from_ne_bytes([BYTE; 8]) };
        match self.space.load(address)? {
            found if found == expected => Ok(()),
            found => Err(Refused::Wrong { address, found, expected }),
        }
    }
}

impl Worker for Rounds<'_> {
    fn step(&mut self) -> Result<Step, Refused> {
        let range = self.fresh()?;
        self.touch(&range)?;
        match self.told.is_reused {
            true => self.mapped = Some(range.start),
            false => self.space.unmap(range)?,
        }
        Ok(Step::of(1))
    }
}
