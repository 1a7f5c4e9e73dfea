//! One memfd for several processes.

mod support;

use faultless_refpage::{Error, RefPage, stats};
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};
use support::{assert_pattern, content, in_child};

#[test]
fn an_attached_pattern_maps_the_others_memfd() {
    assert!(in_child(|| {
        let content = content(12);
        let theirs = RefPage::new(&content).unwrap().share().unwrap();
        let made = stats().tiles_made;
        let pages = RefPage::attach(&content, theirs.as_fd()).unwrap();
        drop(theirs);
        let mut mapping = pages.map(20 << 20).unwrap();
        assert_pattern(&mapping, &content, 0);
        mapping.fill(0);
        mapping.reset(0..20 << 20).unwrap();
        assert_pattern(&mapping, &content, 0);
        assert_eq!(stats().tiles_made, made);
    }));
}

#[test]
fn an_attached_pattern_survives_the_loss_of_its_descriptor() {
    assert!(in_child(|| {
        let theirs = RefPage::new(b"lost").unwrap().share().unwrap();
        let pages = RefPage::attach(b"lost", theirs.as_fd()).unwrap();
        for fd in support::tile_descriptors() {
            // SAFETY: descriptors of this child, but for the one that `theirs` closes.
            (fd != theirs.as_raw_fd()).then(|| unsafe { libc::close(fd) });
        }
        assert_pattern(&pages.map(2 << 20).unwrap(), b"lost", 0);
    }));
}

#[test]
fn what_is_not_a_tile_of_this_pattern_is_refused() {
    let tile = RefPage::new(b"right").unwrap().share().unwrap();
    assert_eq!(RefPage::attach(b"wrong", tile.as_fd()).unwrap_err(), Error::OtherContent);
    assert_eq!(RefPage::attach(b"righ", tile.as_fd()).unwrap_err(), Error::OtherContent);
    assert_eq!(RefPage::attach(b"", tile.as_fd()).unwrap_err(), Error::EmptyPattern);
    let file = std::fs::File::open("/etc/passwd").unwrap();
    assert_eq!(RefPage::attach(b"right", file.as_fd()).unwrap_err(), Error::NotSealed);
    // SAFETY: a fresh descriptor.
    let unsealed = unsafe { OwnedFd::from_raw_fd(libc::memfd_create(c"x".as_ptr(), libc::MFD_ALLOW_SEALING)) };
    assert_eq!(RefPage::attach(b"right", unsealed.as_fd()).unwrap_err(), Error::NotSealed);
}
