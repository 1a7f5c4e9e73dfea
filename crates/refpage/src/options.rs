//! What a caller may choose about its pages.

use crate::Error;
use std::ffi::c_void;

/// What to do when pages cannot be patterned by tiles.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Fallback {
    /// Fill anonymous memory with the pattern, if it fits into the memory that is available.
    #[default]
    Fill,
    /// Return the error.
    Fail,
}

/// Whether the kernel may use huge pages in patterned ranges.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum HugePages {
    /// Never: one store would copy 2 MiB.
    #[default]
    Off,
    /// As the system is configured.
    System,
}

/// How long a tile is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum TileLen {
    /// Chosen from the allocation's length and the areas that are left: 256 KiB up to 32 MiB,
    /// 2 MiB up to 256 MiB, and so on.
    #[default]
    Auto,
    /// At least this many bytes, rounded up to the pattern's period.
    AtLeast(usize),
}

/// Whom to tell that an allocation could not be patterned, once for each pattern.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) enum Notice {
    #[default]
    Nobody,
    Rust(fn(&Error)),
    C(extern "C" fn(i32, *mut c_void), *mut c_void),
}

impl Notice {
    /// Tells it.
    pub(crate) fn tell(self, error: &Error) {
        match self {
            Notice::Nobody => {}
            Notice::Rust(function) => function(error),
            Notice::C(function, argument) => function(error.errno(), argument),
        }
    }
}

/// The choices for a [`RefPage`](crate::RefPage).
///
/// ```
/// use faultless_refpage::{Fallback, Options, TileLen};
/// let pages = Options::new()
///     .tile_len(TileLen::AtLeast(1 << 20))
///     .fallback(Fallback::Fail)
///     .create(&[0xAA])?;
/// # Ok::<(), faultless_refpage::Error>(())
/// ```
#[derive(Debug, Clone, Copy, Default)]
pub struct Options {
    pub(crate) tile_len: TileLen,
    pub(crate) fallback: Fallback,
    pub(crate) huge_pages: HugePages,
    pub(crate) notice: Notice,
}

// SAFETY: the only field that is not Send by itself is the C notice's argument, which the C caller
// promises (see the header) to be usable from every thread that maps.
unsafe impl Send for Options {}
// SAFETY: as for Send; the struct has no interior mutability.
unsafe impl Sync for Options {}

impl Options {
    /// Returns the defaults: automatic tiles, filling as the fallback, no huge pages.
    pub fn new() -> Options {
        Options::default()
    }

    /// Chooses the tile's length.
    pub fn tile_len(mut self, tile_len: TileLen) -> Options {
        self.tile_len = tile_len;
        self
    }

    /// Chooses what happens where tiles are impossible.
    pub fn fallback(mut self, fallback: Fallback) -> Options {
        self.fallback = fallback;
        self
    }

    /// Chooses whether patterned ranges may have huge pages.
    pub fn huge_pages(mut self, huge_pages: HugePages) -> Options {
        self.huge_pages = huge_pages;
        self
    }

    /// Has `notice` called, once for each pattern, when an allocation is filled instead of tiled.
    pub fn on_fallback(mut self, notice: fn(&Error)) -> Options {
        self.notice = Notice::Rust(notice);
        self
    }
}
