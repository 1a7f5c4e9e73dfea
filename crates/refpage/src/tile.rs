//! Tiles: the sealed memfds that hold the pattern, how long they are, and mapping them.
//!
//! # Guarantee
//! A tile that was made is sealed against writing and resizing (I1). [`cover`] keeps the phase
//! whatever tile the bytes before came from (I3).
//!
//! # Length
//! A longer tile means fewer areas, but more memory in the memfd and more time to write it. The
//! levels below spend at most one byte of tile on 16 of allocation and 1,024 areas on an allocation;
//! when areas grow scarce, fewer.

use crate::pattern::Pattern;
use crate::stats::{TILE_BYTES, TILES_MADE};
use crate::sys::{self, Errno, Identity};
use crate::{Error, TileLen, areas};
use std::ops::Range;

/// A tile. Records are never changed after they were published.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Tile {
    pub(crate) fd: i32,
    pub(crate) identity: Identity,
    pub(crate) len: usize,
    /// The tile that this one replaced.
    pub(crate) previous: *mut Tile,
}

/// A tile's length, and into how many pieces it may cut an allocation.
const LEVELS: [(usize, usize); 4] = [(256 << 10, 128), (2 << 20, 1024), (16 << 20, 1024), (MAX_LEN, usize::MAX)];
const MAX_LEN: usize = 128 << 20;
/// The longest tile that is made for an allocation that it holds alone, when the period is longer.
const MAX_ALONE: usize = 16 << 20;
/// An allocation takes at most this part of the areas that are left.
const SHARE_OF_AREAS: usize = 32;
/// A tile is shorter than the allocation by this factor, or at the lowest level.
const LEAST_PIECES: usize = 8;

impl Tile {
    /// Returns whether the descriptor still leads to the memfd that we made (I4).
    pub(crate) fn is_ours(&self) -> bool {
        sys::identify(self.fd).is_ok_and(|(identity, _)| identity == self.identity)
    }

    /// Returns whether an allocation of `len` bytes can be made from this tile (I2).
    pub(crate) fn serves(&self, len: usize, wanted: usize, period: usize) -> bool {
        self.len >= wanted && (len <= self.len || self.len.is_multiple_of(period))
    }

    /// Returns how many areas `len` bytes of tiles of `tile_len` bytes are.
    pub(crate) fn areas(len: usize, tile_len: usize) -> usize {
        len.div_ceil(tile_len)
    }
}

/// Returns how long the tile for an allocation of `len` bytes shall be: whole periods, or, where the
/// period is long, one tile that holds the whole allocation.
pub(crate) fn wanted(choice: TileLen, len: usize, period: usize) -> Result<usize, Error> {
    let (level, alone) = match choice {
        TileLen::Auto => (level_for(len, areas::left() / SHARE_OF_AREAS), level_above(len)),
        TileLen::AtLeast(least) => {
            let too_large = Error::TooLarge { len: least };
            let level = sys::round_to_pages(least.max(1)).ok_or(too_large)?;
            (level, level.max(len))
        }
    };
    let whole = level.checked_next_multiple_of(period).ok_or(Error::LongPeriod { period })?;
    match whole {
        _ if alone < whole && alone <= MAX_ALONE => Ok(alone),
        _ if period > level && is_wasteful(whole, len) => Err(Error::LongPeriod { period }),
        whole => Ok(whole),
    }
}

/// Whether a tile that long period demands would cost about as much as filling.
fn is_wasteful(tile: usize, len: usize) -> bool {
    tile > MAX_LEN || (tile > MAX_ALONE && tile > len / LEAST_PIECES)
}

fn level_above(len: usize) -> usize {
    LEVELS.iter().map(|(level, _)| *level).find(|level| len <= *level).unwrap_or(usize::MAX)
}

/// The first level that cuts the allocation into few enough pieces.
fn level_for(len: usize, most_pieces: usize) -> usize {
    let fits = |(level, pieces): &&(usize, usize)| {
        len.div_ceil(*level) <= most_pieces.min(*pieces) || level * LEAST_PIECES > len
    };
    LEVELS.iter().find(fits).map_or(MAX_LEN, |(level, _)| *level)
}

/// Writes the pattern to a new memfd, seals it, and returns its record.
pub(crate) fn make(pattern: &Pattern, len: usize) -> Result<Tile, Error> {
    // Writing past the limit would not fail but kill the process (SIGXFSZ).
    let limit = sys::soft_limit(libc::RLIMIT_FSIZE);
    if limit < len as u64 {
        return Err(Error::FileSize { limit });
    }
    let fd = sys::create_memfd().map_err(|errno| refused("memfd_create", errno, len))?;
    match fill_and_seal(fd, pattern, len) {
        Ok(identity) => Ok(Tile { fd: sys::moved_up(fd), identity, len, previous: std::ptr::null_mut() }),
        Err(error) => {
            sys::close(fd);
            Err(error)
        }
    }
}

fn fill_and_seal(fd: i32, pattern: &Pattern, len: usize) -> Result<Identity, Error> {
    let wrote = sys::write_repeated(fd, pattern.block(), len);
    wrote.map_err(|errno| refused("pwritev on a memfd", errno, len))?;
    sys::seal(fd).map_err(|errno| refused("fcntl(F_ADD_SEALS)", errno, len))?;
    let (identity, _) = sys::identify(fd).map_err(|errno| refused("fstat", errno, len))?;
    TILES_MADE.add(1);
    TILE_BYTES.add(len);
    Ok(identity)
}

/// Closes a tile's descriptor, unless the program has put something else there (I4).
pub(crate) fn close(tile: &Tile) {
    if tile.is_ours() {
        sys::close(tile.fd);
    }
}

/// Maps the tile over a part of an allocation that begins at `base`.
///
/// # Safety
/// The range is reserved and belongs to the caller, who holds no reference into it.
pub(crate) unsafe fn cover(base: *mut u8, range: Range<usize>, tile: &Tile) -> Result<(), Errno> {
    let mut at = range.start;
    while at < range.end {
        let offset = at % tile.len;
        let end = range.end.min(at - offset + tile.len);
        // SAFETY: the piece lies inside the caller's range.
        unsafe { sys::map_file_at(base.add(at), end - at, tile.fd, offset)? };
        at = end;
    }
    Ok(())
}

/// Says what a refused call means.
pub(crate) fn refused(call: &'static str, Errno(errno): Errno, len: usize) -> Error {
    match errno {
        libc::EMFILE | libc::ENFILE => Error::Descriptors { limit: sys::soft_limit(libc::RLIMIT_NOFILE) },
        libc::ENOMEM | libc::ENOSPC => Error::OutOfMemory { len },
        libc::EFBIG => Error::FileSize { limit: sys::soft_limit(libc::RLIMIT_FSIZE) },
        errno => Error::Unsupported { call, errno },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PLENTY: usize = 1_000_000;

    #[test]
    fn levels_follow_the_allocation() {
        let level = |len: usize| level_for(len, PLENTY);
        assert_eq!(level(128 << 10), 256 << 10);
        assert_eq!(level(32 << 20), 256 << 10);
        assert_eq!(level(33 << 20), 2 << 20);
        assert_eq!(level(256 << 20), 2 << 20);
        assert_eq!(level(16 << 30), 16 << 20);
        assert_eq!(level(1 << 40), 128 << 20);
    }

    #[test]
    fn scarce_areas_mean_longer_tiles_up_to_an_eighth() {
        assert_eq!(level_for(32 << 20, 100), 2 << 20);
        assert_eq!(level_for(32 << 20, 1), 16 << 20);
        assert_eq!(level_for(1 << 20, 0), 256 << 10);
    }

    #[test]
    fn a_tile_is_whole_periods_or_holds_everything() {
        for period in [4096, 3 * 4096, 4096 * 4093, 2 << 20, 5 << 20] {
            for len in [4096, 1 << 20, 5 << 20, 256 << 20, 4 << 30] {
                if let Ok(tile) = wanted(TileLen::Auto, len, period) {
                    assert!(len <= tile || tile % period == 0, "{len} {period} {tile}");
                }
            }
        }
    }

    #[test]
    fn a_period_beyond_all_tiles_is_an_error() {
        let period = 4096 * 65_537;
        assert_eq!(wanted(TileLen::Auto, 1 << 30, period), Err(Error::LongPeriod { period }));
        assert_eq!(wanted(TileLen::Auto, 1 << 20, period), Ok(2 << 20));
    }
}
