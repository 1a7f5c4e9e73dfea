//! What can go wrong: set-up that is refused, and memory that runs out.

use crate::pfn::Pfn;
use core::fmt;
use faultless_platform::{MAX_CPUS, PAGE_BYTES};

/// A part of physical memory with a purpose of its own: errors and [`Reclaim`](crate::Reclaim) name it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ZoneKind {
    /// Frames that the core can always address.
    Normal,
}

impl fmt::Display for ZoneKind {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Normal => out.write_str("normal"),
        }
    }
}

/// No frame of the zones that were asked was free at some instant during the call, or, above order 0, no block of the
/// asked size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OutOfFrames {
    pub(crate) zone: ZoneKind,
    pub(crate) nr_frames: usize,
    pub(crate) order: u8,
    pub(crate) cause: Cause,
}

/// Why an allocation failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cause {
    /// Nothing of the asked size is free.
    Exhausted,
    /// The order is above [`MAX_ORDER`](crate::MAX_ORDER).
    OrderTooHigh,
    /// A test asked for the failure: [`Memory::set_failing`](crate::Memory::set_failing).
    Injected,
}

impl OutOfFrames {
    /// Returns the refusal of a source with `nr_frames` frames in all that was asked for a block of `order`.
    pub fn new(nr_frames: usize, order: u8, cause: Cause) -> Self {
        Self { zone: ZoneKind::Normal, nr_frames, order, cause }
    }

    /// Returns the zone that was asked.
    pub fn zone(&self) -> ZoneKind {
        self.zone
    }

    /// Returns how many frames the zones that could be asked have in all: of each node that the policy allows, one.
    pub fn nr_frames(&self) -> usize {
        self.nr_frames
    }

    /// Returns the order that was asked: a block of `1 << order` frames.
    pub fn order(&self) -> u8 {
        self.order
    }

    /// Returns why it failed.
    pub fn cause(&self) -> Cause {
        self.cause
    }
}

impl fmt::Display for OutOfFrames {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { zone, nr_frames, order, cause } = self;
        write!(out, "out of memory: zone {zone}, {nr_frames} frames in all, asked for a block of order {order}: ")?;
        match cause {
            Cause::Exhausted if *order == 0 => out.write_str("every frame is in use; give it a larger memory"),
            Cause::Exhausted => {
                out.write_str("no such block is free; give it a larger memory or ask for single frames")
            }
            Cause::OrderTooHigh => write!(out, "orders end at {}", crate::MAX_ORDER),
            Cause::Injected => out.write_str("the failure was asked for by a test"),
        }
    }
}

impl core::error::Error for OutOfFrames {}

/// Why a memory could not be set up; nothing was written to the region. [`Memory::new`](crate::Memory::new) returns it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum SetupError {
    /// The region does not begin at a page.
    Misaligned {
        /// Where it begins.
        address: usize,
    },
    /// The region has no room for metadata and one frame.
    TooSmall {
        /// Its length.
        len_bytes: usize,
        /// The smallest that works.
        least_bytes: usize,
    },
    /// The region has more frames than numbers.
    TooLarge {
        /// Its length in frames.
        nr_frames: usize,
    },
    /// The number of CPUs is 0 or above [`MAX_CPUS`].
    BadCpuCount {
        /// What was asked.
        nr_cpus: usize,
    },
    /// An option is outside its range.
    BadOption {
        /// Its name.
        name: &'static str,
        /// Its value.
        value: usize,
        /// The smallest that works.
        least: usize,
        /// The largest that works.
        most: usize,
    },
}

impl fmt::Display for SetupError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Misaligned { address } => {
                write!(out, "physical memory at {address:#x} does not begin at a page of {PAGE_BYTES} bytes")
            }
            Self::TooSmall { len_bytes, least_bytes } => {
                write!(out, "physical memory of {len_bytes} bytes is too small: {least_bytes} bytes are the least")
            }
            Self::TooLarge { nr_frames } => {
                write!(out, "physical memory of {nr_frames} frames is too large: {} frames are the most", Pfn::LIMIT)
            }
            Self::BadCpuCount { nr_cpus } => write!(out, "{nr_cpus} CPUs: a machine has 1 to {MAX_CPUS}"),
            Self::BadOption { name, value, least, most } => {
                write!(out, "option {name} is {value}: it can be {least} to {most}")
            }
        }
    }
}

impl core::error::Error for SetupError {}
