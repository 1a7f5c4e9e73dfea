//! Limits, refusals and thieves: clear errors, and nothing lost.

mod support;

use faultless_refpage::{Error, Fallback, Kind, Options, RefPage, TileLen, stats};
use std::sync::atomic::{AtomicUsize, Ordering};
use support::{Rule, assert_pattern, in_child, limit, refuse};

static NOTICES: AtomicUsize = AtomicUsize::new(0);

fn count_notice(error: &Error) {
    assert!(!error.to_string().is_empty());
    NOTICES.fetch_add(1, Ordering::Relaxed);
}

fn failing(content: &[u8]) -> RefPage {
    Options::new().fallback(Fallback::Fail).create(content).unwrap()
}

/// With `Fail`, the error is the wanted one and leaves nothing; with `Fill`, the memory is the
/// pattern all the same, and one notice comes.
#[track_caller]
fn assert_fails_or_fills(len: usize, wanted: impl Fn(&Error) -> bool) {
    // The library's own pages come with the first pattern and stay.
    drop(failing(b"first"));
    let areas = support::areas();
    for _ in 0..5 {
        let error = failing(b"fail").map(len).unwrap_err();
        assert!(wanted(&error), "{error:?}");
    }
    // The test's own allocations may have added one.
    assert!(support::areas() <= areas + 1);
    assert_eq!(stats().areas, 0);
    let filling = Options::new().on_fallback(count_notice).create(b"fill").unwrap();
    for round in 0..3 {
        let mut mapping = filling.map(len).unwrap();
        assert_eq!(mapping.kind(), Kind::Filled);
        assert_pattern(&mapping, b"fill", 0);
        mapping[100..200].fill(0);
        mapping.reset(0..len).unwrap();
        assert_pattern(&mapping, b"fill", 0);
        mapping.resize(len + 100_000).unwrap();
        assert_pattern(&mapping, b"fill", 0);
        assert_eq!(NOTICES.load(Ordering::Relaxed), 1, "in round {round}");
    }
}

#[test]
fn wrong_arguments_are_named() {
    assert_eq!(RefPage::new(&[]).unwrap_err(), Error::EmptyPattern);
    let pages = RefPage::new(&[1]).unwrap();
    assert_eq!(pages.map(0).unwrap_err(), Error::EmptyMapping);
    assert_eq!(pages.map_aligned(1, 3).unwrap_err(), Error::BadAlignment { align: 3 });
    assert_eq!(pages.map_aligned(1, 0).unwrap_err(), Error::BadAlignment { align: 0 });
    assert!(matches!(pages.map(usize::MAX).unwrap_err(), Error::TooLarge { .. }));
    assert!(matches!(pages.map(1 << 50).unwrap_err(), Error::OutOfMemory { .. }));
    let mut mapping = pages.map(4096).unwrap();
    assert_eq!(mapping.resize(0).unwrap_err(), Error::EmptyMapping);
    assert!(mapping.resize(1 << 50).is_err());
    assert_pattern(&mapping, &[1], 0);
}

#[test]
fn without_a_descriptor() {
    assert!(in_child(|| {
        limit(libc::RLIMIT_NOFILE, 3);
        // Reading /proc needs a descriptor, too, so the areas are not looked at.
        let error = failing(b"fail").map(1 << 20).unwrap_err();
        assert_eq!(error, Error::Descriptors { limit: 3 });
        let mapping = RefPage::new(b"fill").unwrap().map(1 << 20).unwrap();
        assert_pattern(&mapping, b"fill", 0);
    }));
}

#[test]
fn with_a_short_file_limit() {
    assert!(in_child(|| {
        limit(libc::RLIMIT_FSIZE, 1000);
        assert_fails_or_fills(1 << 20, |error| *error == Error::FileSize { limit: 1000 });
    }));
}

#[test]
fn without_memfds() {
    for errno in [libc::ENOSYS, libc::EPERM, libc::EACCES] {
        assert!(in_child(move || {
            refuse(&[Rule { call: libc::SYS_memfd_create, errno, ..Rule::default() }]);
            let wanted = Error::Unsupported { call: "memfd_create", errno };
            assert_fails_or_fills(1 << 20, |error| *error == wanted);
        }));
    }
}

#[test]
fn without_sealing() {
    assert!(in_child(|| {
        let argument = Some((1, libc::F_ADD_SEALS as u32 & !libc::F_DUPFD_CLOEXEC as u32));
        refuse(&[Rule { call: libc::SYS_fcntl, argument, errno: libc::EINVAL, ..Rule::default() }]);
        assert_fails_or_fills(1 << 20, |error| matches!(error, Error::Unsupported { call: "fcntl(F_ADD_SEALS)", .. }));
        assert!(support::tile_descriptors().is_empty());
    }));
}

#[test]
fn linux_5_4_is_enough() {
    assert!(in_child(|| {
        // Its last call is clone3 (435), and it knows the lowest three flags of memfd_create.
        refuse(&[
            Rule { call: 436, and_later: true, errno: libc::ENOSYS, ..Rule::default() },
            Rule { call: libc::SYS_memfd_create, argument: Some((1, !7)), errno: libc::EINVAL, ..Rule::default() },
        ]);
        let pages = failing(b"old");
        let mut mapping = pages.map(40 << 20).unwrap();
        assert_pattern(&mapping, b"old", 0);
        mapping.fill(1);
        mapping.reset(0..40 << 20).unwrap();
        mapping.resize(80 << 20).unwrap();
        assert_pattern(&mapping, b"old", 0);
        RefPage::attach(b"old", std::os::fd::AsFd::as_fd(&pages.share().unwrap())).unwrap();
    }));
}

#[test]
fn where_memfds_must_not_be_executable() {
    assert!(in_child(|| {
        // The setting is a PID namespace's, and the next child is the first in the new one.
        // SAFETY: concerns this child's children.
        if unsafe { libc::unshare(libc::CLONE_NEWPID) } != 0 {
            return support::skip("no right to make a PID namespace");
        }
        assert!(in_child(|| {
            if std::fs::write("/proc/sys/vm/memfd_noexec", "2").is_err() {
                return support::skip("vm.memfd_noexec cannot be set (Linux 6.3 knows it)");
            }
            const MFD_EXEC: u32 = 0x10;
            // SAFETY: makes a descriptor, were it allowed.
            assert_eq!(unsafe { libc::memfd_create(c"plain".as_ptr(), MFD_EXEC) }, -1);
            let mapping = failing(b"exec").map(1 << 20).unwrap();
            assert_pattern(&mapping, b"exec", 0);
        }));
    }));
}

#[test]
fn without_proc() {
    assert!(in_child(|| {
        refuse(&[Rule { call: libc::SYS_openat, errno: libc::ENOENT, ..Rule::default() }]);
        let pages = failing(b"proc");
        let raw = pages.map_raw(3 << 20, 1).unwrap();
        // SAFETY: the mapping is this test's alone.
        let bytes = unsafe { std::slice::from_raw_parts_mut(raw.address(), raw.len()) };
        bytes.fill(1);
        // SAFETY: as above.
        unsafe { pages.refresh_raw(&raw, 0..raw.len()).unwrap() };
        assert_pattern(bytes, b"proc", 0);
    }));
}

#[test]
fn when_tiles_would_take_half_of_all_areas() {
    assert!(in_child(|| {
        let options = Options::new().tile_len(TileLen::AtLeast(4096));
        let pages = options.fallback(Fallback::Fail).create(b"many").unwrap();
        let limit = std::fs::read_to_string("/proc/sys/vm/max_map_count").unwrap();
        let limit: usize = limit.trim().parse().unwrap();
        let len = (limit / 2 + 1) * 4096;
        assert_eq!(pages.map(len).unwrap_err(), Error::Areas { limit });
        assert_eq!(stats().areas, 0);
        let mapping = options.create(b"many").unwrap().map(len).unwrap();
        assert_eq!(mapping.kind(), Kind::Filled);
        assert_pattern(&mapping, b"many", 0);
    }));
}

/// Maps pages of alternating protection until the kernel allows no more, then frees some.
fn use_up_areas(but: usize) {
    // SAFETY: fresh mappings that nothing else knows.
    unsafe {
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        let mut last = Vec::new();
        loop {
            let protection = [libc::PROT_NONE, libc::PROT_READ][last.len() % 2];
            let page = libc::mmap(std::ptr::null_mut(), 4096, protection, flags, -1, 0);
            if page == libc::MAP_FAILED {
                break;
            }
            last.push(page);
        }
        for page in last.drain(last.len() - but..) {
            libc::munmap(page, 4096);
        }
        std::mem::forget(last);
    }
}

#[test]
fn when_the_kernel_has_few_areas_left() {
    assert!(in_child(|| {
        drop(RefPage::new(b"first").unwrap());
        use_up_areas(20);
        assert_fails_or_fills(16 << 20, |error| matches!(error, Error::Areas { .. }));
    }));
}

#[test]
fn when_the_kernel_has_no_area_left() {
    assert!(in_child(|| {
        let pages = RefPage::new(b"none").unwrap();
        let kept = pages.map(1 << 20).unwrap();
        use_up_areas(0);
        let results: Vec<_> = (0..200).map(|_| pages.map(16 << 20)).collect();
        let errors: Vec<_> = results.iter().flat_map(|result| result.as_ref().err()).collect();
        assert!(!errors.is_empty());
        assert!(errors.iter().all(|error| matches!(error, Error::Areas { .. })), "{errors:?}");
        for mapping in results.iter().flatten() {
            assert_pattern(&mapping[..100_000], b"none", 0);
        }
        assert_pattern(&kept, b"none", 0);
    }));
}

#[test]
fn when_address_space_runs_out() {
    assert!(in_child(|| {
        let pages = RefPage::new(b"space").unwrap();
        let mut kept = vec![pages.map(1 << 20).unwrap()];
        limit(libc::RLIMIT_AS, 1 << 30);
        let error = loop {
            match pages.map(50 << 20) {
                Ok(mapping) => kept.push(mapping),
                Err(error) => break error,
            }
        };
        assert!(matches!(error, Error::OutOfMemory { .. }), "{error:?}");
        assert!(kept.len() > 10);
        kept.iter().for_each(|mapping| assert_pattern(&mapping[..1 << 20], b"space", 0));
        kept.clear();
        assert_pattern(&pages.map(50 << 20).unwrap(), b"space", 0);
        assert_eq!(stats().areas, 0);
    }));
}

#[test]
fn a_program_that_reserves_without_end_gets_an_error_and_no_killer() {
    assert!(in_child(|| {
        let pages = RefPage::new(b"greed").unwrap();
        let mut kept = Vec::new();
        let error = loop {
            match pages.map(8 << 30) {
                Ok(mapping) => kept.push(mapping),
                Err(error) => break error,
            }
        };
        assert!(matches!(error, Error::OutOfMemory { .. }), "{error:?}");
        assert!(kept.len() > 50, "{}", kept.len());
        assert_eq!(kept[kept.len() - 1][..5], *b"greed");
        assert!(support::rollup("Rss:") < 64 << 10);
    }));
}

#[test]
fn a_program_that_closes_or_reuses_the_descriptor() {
    assert!(in_child(|| {
        let pages = RefPage::new(b"thief").unwrap();
        drop(pages.map(1 << 20).unwrap());
        for round in 0..20 {
            let ours = support::tile_descriptors();
            assert_eq!(ours.len(), 1, "{ours:?}");
            // SAFETY: descriptors of this child.
            unsafe {
                if round % 2 == 0 {
                    libc::close(ours[0]);
                } else {
                    let theirs = libc::open(c"/etc/passwd".as_ptr(), libc::O_RDONLY);
                    assert_eq!(libc::dup2(theirs, ours[0]), ours[0]);
                }
            }
            let mapping = pages.map(1 << 20).unwrap();
            assert_eq!(mapping.kind(), Kind::Tiled);
            assert_pattern(&mapping, b"thief", 0);
            if round % 2 == 1 {
                let link = std::fs::read_link(format!("/proc/self/fd/{}", ours[0])).unwrap();
                assert_eq!(link.to_str(), Some("/etc/passwd"), "theirs was closed");
                // SAFETY: as above.
                unsafe { libc::close(ours[0]) };
            }
        }
        drop(pages);
        assert!(support::tile_descriptors().is_empty());
    }));
}
