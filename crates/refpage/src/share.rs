//! One memfd for several processes.
//!
//! # Guarantee
//! A forked child shares its parent's tile without any of this. Processes that are not related do
//! by a descriptor: one hands it out ([`RefPage::share`]), sends it (inheritance over exec,
//! `SCM_RIGHTS`), and the other takes it ([`RefPage::attach`]) after checking that it is sealed and
//! holds the pattern that it expects. A peer can therefore not change pages behind our back.

use crate::intern;
use crate::pattern::Pattern;
use crate::tile::{self, Tile};
use crate::{Error, Options, RefPage, sys};
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

/// The allocation for which a shared tile is made long enough.
const TYPICAL_LEN: usize = 256 << 20;

impl RefPage {
    /// Returns a descriptor of the tile for another process to attach to. It is closed on exec
    /// unless the caller clears that flag.
    pub fn share(&self) -> Result<OwnedFd, Error> {
        let tile = self.place.tile_for(TYPICAL_LEN, &self.options)?;
        let copy = sys::duplicate(tile.fd, 0);
        let fd = copy.map_err(|errno| tile::refused("fcntl(F_DUPFD_CLOEXEC)", errno, 0))?;
        // SAFETY: the descriptor is fresh and nobody else's.
        let fd = unsafe { OwnedFd::from_raw_fd(fd) };
        match sys::identify(fd.as_raw_fd()) {
            Ok((identity, _)) if identity == tile.identity => Ok(fd),
            _ => Err(Error::DescriptorStolen),
        }
    }

    /// Returns a pattern whose tile another process made. The descriptor may be closed afterwards.
    pub fn attach(content: &[u8], fd: BorrowedFd<'_>) -> Result<RefPage, Error> {
        Options::new().attach(content, fd)
    }
}

impl Options {
    /// Returns a pattern with these choices whose tile another process made.
    pub fn attach(self, content: &[u8], fd: BorrowedFd<'_>) -> Result<RefPage, Error> {
        let tile = duplicate_checked(content, fd.as_raw_fd())?;
        let place = intern::make_attached(content, tile)?;
        Ok(RefPage { place, options: self })
    }
}

fn duplicate_checked(content: &[u8], theirs: i32) -> Result<Tile, Error> {
    let seals = sys::seals(theirs).map_err(|_| Error::NotSealed)?;
    let needed = sys::TILE_SEALS & !libc::F_SEAL_SEAL;
    if seals & needed != needed {
        return Err(Error::NotSealed);
    }
    let (identity, len) = sys::identify(theirs).map_err(|_| Error::NotSealed)?;
    let len = usize::try_from(len).map_err(|_| Error::OtherContent)?;
    check_content(content, theirs, len)?;
    let copy = sys::duplicate(theirs, sys::LOWEST_FD);
    let fd = copy.map_err(|errno| tile::refused("fcntl(F_DUPFD_CLOEXEC)", errno, 0))?;
    Ok(Tile { fd, identity, len, previous: std::ptr::null_mut() })
}

fn check_content(content: &[u8], fd: i32, len: usize) -> Result<(), Error> {
    let pattern = Pattern::new(content)?;
    let tiles = pattern.period().is_some_and(|period| len > 0 && len.is_multiple_of(period));
    let holds = tiles && matches_file(&pattern, fd, len)?;
    // SAFETY: the pattern is not used any more.
    unsafe { pattern.free() };
    if holds { Ok(()) } else { Err(Error::OtherContent) }
}

fn matches_file(pattern: &Pattern, fd: i32, len: usize) -> Result<bool, Error> {
    let mapped = sys::map_file(len, fd).map_err(|errno| tile::refused("mmap", errno, len))?;
    // SAFETY: the mapping is as long as the sealed file, so every byte can be read.
    let is_match = pattern.matches(unsafe { std::slice::from_raw_parts(mapped, len) }, 0);
    // SAFETY: nobody else knows the mapping.
    unsafe { sys::unmap(mapped, len) };
    Ok(is_match)
}
