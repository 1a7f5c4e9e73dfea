//! refpage: maps memory that is to start as a byte, touches some of its pages, and unmaps it.
//!
//! Source: version 5 of the series that introduces reference pages (P. Collingbourne, 2021), whose program does so 1000
//! times with 4 MiB and touches one page, half of them, or all. An operation is such a round. The variants are those of
//! version 3, and the one that a reviewer of version 5 asked for. Version 3's program is a PDF renderer: an operation
//! of `--touch renderer` is all that a recorded one does with its large blocks (`renderer`).

use crate::PAGE;
use crate::program::{Seat, Step, Worker};
use crate::renderer::{self, RendererStep};
use crate::settings::{Access, Refpage, Settings, Touch, Variant};
use crate::space::{AddressSpace, Refused, Start};
use alloc::boxed::Box;
use alloc::vec::Vec;
use core::ops::Range;

/// The byte: the one of the series' examples.
const BYTE: u8 = 0xaa;
/// Bytes that the published program maps.
pub(crate) const REGION_BYTES: u64 = 4 << 20;

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

    /// Says whether the host's kernel has it, too: stock Linux has no call for the others.
    pub const fn is_known_to_host(self) -> bool {
        matches!(self, Self::Anon | Self::Memset)
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

impl Touch {
    /// Returns how many of so many pages that is; of a renderer's blocks, the recording says.
    pub fn of(self, nr_pages: u64) -> u64 {
        match self {
            Self::One => 1,
            Self::Percent(percent) => (nr_pages * percent / 100).max(1),
            Self::Renderer => nr_pages,
        }
    }
}

struct RefpageRounds<'a> {
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
    let told = settings.refpage;
    if told.touch == Touch::Renderer {
        let acts = renderer::acts();
        let blocks = Vec::with_capacity(acts.iter().filter(|act| matches!(act, RendererStep::Map { .. })).count());
        return Ok(Box::new(Renderer { space, variant: told.variant, acts, blocks }));
    }
    Ok(Box::new(RefpageRounds { space, told, len_bytes: settings.region_bytes, mapped: None }))
}

/// Maps memory that holds what the variant promises.
fn map(space: &dyn AddressSpace, variant: Variant, len_bytes: u64) -> Result<Range<u64>, Refused> {
    let first = space.map_starting_as(variant.start(), len_bytes)?;
    let range = first..first + len_bytes;
    if variant == Variant::Memset {
        space.fill(range.clone(), BYTE)?;
    }
    Ok(range)
}

/// Loads a word that was not stored to, and compares it with what must be there.
fn check(space: &dyn AddressSpace, variant: Variant, address: u64) -> Result<(), Refused> {
    let expected = if variant == Variant::Anon { 0 } else { u64::from_ne_bytes([BYTE; 8]) };
    match space.load(address)? {
        found if found == expected => Ok(()),
        found => Err(Refused::Wrong { address, found, expected }),
    }
}

impl RefpageRounds<'_> {
    /// Returns memory that holds what the variant promises.
    fn fresh(&mut self) -> Result<Range<u64>, Refused> {
        let variant = self.told.variant;
        let Some(first) = self.mapped else { return map(self.space, variant, self.len_bytes) };
        let range = first..first + self.len_bytes;
        // An allocator that fills memory needs no fresh pages; the others give the old ones back.
        match variant {
            Variant::Memset => self.space.fill(range.clone(), BYTE)?,
            Variant::Anon | Variant::Refpage | Variant::Pattern => self.space.discard(range.clone())?,
        }
        Ok(range)
    }

    fn touch(&self, range: &Range<u64>) -> Result<(), Refused> {
        let nr_pages = self.len_bytes / PAGE;
        let nr_touched = self.told.touch.of(nr_pages);
        (0..nr_touched).try_for_each(|number| self.touch_page(range.start + number * nr_pages / nr_touched * PAGE))
    }

    fn touch_page(&self, address: u64) -> Result<(), Refused> {
        if self.told.access != Access::Store {
            check(self.space, self.told.variant, address)?;
        }
        if self.told.access != Access::Load {
            self.space.store(address, 1)?;
        }
        Ok(())
    }
}

impl Worker for RefpageRounds<'_> {
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

/// A recorded renderer's blocks.
struct Renderer<'a> {
    space: &'a dyn AddressSpace,
    variant: Variant,
    acts: Vec<RendererStep>,
    /// Where the blocks of this round are, or were.
    blocks: Vec<Range<u64>>,
}

impl Worker for Renderer<'_> {
    fn step(&mut self) -> Result<Step, Refused> {
        self.blocks.clear();
        for act in &self.acts {
            match act {
                RendererStep::Map { nr_pages } => self.blocks.push(map(self.space, self.variant, nr_pages * PAGE)?),
                RendererStep::Unmap { block } => self.space.unmap(self.blocks[*block].clone())?,
                RendererStep::Store { block, pages } => {
                    let first = self.blocks[*block].start;
                    pages.clone().try_for_each(|page| self.space.store(first + page * PAGE, 1))?;
                }
                RendererStep::Load { block, pages } => {
                    let first = self.blocks[*block].start;
                    pages.clone().try_for_each(|page| check(self.space, self.variant, first + page * PAGE))?;
                }
            }
        }
        Ok(Step::of(1))
    }
}
