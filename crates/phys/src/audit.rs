//! A look at every frame, for the checker of invariants.
//!
//! # Guarantee
//! While nobody allocates or frees, the counts are exact: every frame is seen once.

use crate::page::Page;
use crate::pfn::Pfn;
use crate::state::{Kind, State};
use core::fmt;
use core::ops::Range;
use faultless_platform::Platform;

/// A block in use, as an audit finds it.
///
/// ```
/// use faultless_phys::{FrameInfo, Kind, Memory, Options};
/// # use faultless_platform::native::{HostRegion, Machine, Native};
/// # let (machine, region) = (Machine::new(2), HostRegion::reserve(8 << 20)?);
/// # // SAFETY: the region is ours and outlives the memory.
/// # let memory = unsafe { Memory::<Native>::new(region.base(), region.len_bytes(), 2, Options::default())? };
/// machine.attach(|| {
///     let pfn = memory.alloc()?;
///     let mut found = Vec::new();
///     memory.audit_with(|info: FrameInfo| found.push(info));
///     assert_eq!((found[0].pfn, found[0].kind, found[0].is_lost()), (pfn, Kind::Reserved, false));
///     # unsafe { memory.free(pfn) };
///     Ok::<(), faultless_phys::OutOfFrames>(())
/// })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FrameInfo {
    /// Its first frame.
    pub pfn: Pfn,
    /// It has `1 << order` frames.
    pub order: u8,
    /// What it is used for.
    pub kind: Kind,
    /// Its references.
    pub nr_references: u32,
    /// Whether they are counted.
    pub is_counted: bool,
    /// Whether it waits for a grace period.
    pub is_deferred: bool,
}

impl FrameInfo {
    /// Says that nobody refers to the block although it is neither free nor deferred: its owner lost it.
    pub fn is_lost(&self) -> bool {
        self.nr_references == 0 && self.is_counted && !self.is_deferred
    }
}

/// What an audit counted, in frames.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Audit {
    by_kind: [usize; Kind::ALL.len()],
    /// Frames that wait for a grace period; counted by kind too.
    pub nr_deferred: usize,
    /// Frames in use that nobody refers to; counted by kind too.
    pub nr_lost: usize,
    /// The first such frame.
    pub first_lost: Option<Pfn>,
    /// Frames that the allocator can give out: on its lists, or never used.
    pub nr_free: usize,
}

impl Audit {
    /// Returns how many frames are of a kind.
    pub fn nr_of(&self, kind: Kind) -> usize {
        self.by_kind[kind as usize]
    }

    /// Returns how many frames are given out, deferred ones included.
    pub fn nr_in_use(&self) -> usize {
        Kind::ALL.iter().filter(|&&kind| kind != Kind::Free).map(|&kind| self.nr_of(kind)).sum()
    }

    /// Says whether every frame is either free and on a list, or in use and referred to.
    pub fn is_clean(&self) -> bool {
        self.nr_lost == 0 && self.nr_of(Kind::Free) == self.nr_free
    }

    /// Returns the count of no frame yet, of a source that can give `nr_free` out.
    pub(crate) fn of_free(nr_free: usize) -> Self {
        Self { nr_free, ..Self::default() }
    }

    /// Counts frames that were never given out.
    pub(crate) fn add_untouched(&mut self, nr_frames: usize) {
        self.by_kind[Kind::Free as usize] += nr_frames;
    }

    fn add(&mut self, info: &FrameInfo) {
        let nr_frames = 1 << info.order;
        self.by_kind[info.kind as usize] += nr_frames;
        self.nr_deferred += if info.is_deferred { nr_frames } else { 0 };
        if info.is_lost() {
            self.nr_lost += nr_frames;
            self.first_lost.get_or_insert(info.pfn);
        }
    }
}

impl fmt::Display for Audit {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{} frames can be given out", self.nr_free)?;
        for kind in Kind::ALL {
            write!(out, ", {} {kind:?}", self.nr_of(kind))?;
        }
        write!(out, ", {} deferred, {} lost", self.nr_deferred, self.nr_lost)?;
        self.first_lost.map_or(Ok(()), |pfn| write!(out, " ({pfn} first)"))
    }
}

/// Counts the frames of a range by their metadata, and shows those in use to `visit`.
pub(crate) fn look<'a, P: Platform>(
    page: impl Fn(Pfn) -> &'a Page<P>,
    mut numbers: Range<u32>,
    audit: &mut Audit,
    visit: &mut impl FnMut(FrameInfo),
) {
    while !numbers.is_empty() {
        let pfn = Pfn::new(numbers.start);
        let state = page(pfn).state();
        if state.is_free() {
            audit.by_kind[Kind::Free as usize] += 1 << state.order();
        } else {
            let info = info(page(pfn), pfn, state);
            audit.add(&info);
            visit(info);
        }
        numbers.start += 1 << state.order();
    }
}

fn info<P: Platform>(page: &Page<P>, pfn: Pfn, state: State) -> FrameInfo {
    FrameInfo {
        pfn,
        order: state.order(),
        kind: state.kind(),
        nr_references: page.nr_references(),
        is_counted: !state.is_uncounted(),
        is_deferred: state.is_deferred(),
    }
}
