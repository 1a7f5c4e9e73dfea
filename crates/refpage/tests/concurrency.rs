//! Threads, forks and thieves at the same time.

mod support;

use faultless_refpage::{RefPage, stats};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use support::{assert_pattern, content, in_child};

fn churn(seed: usize) {
    let content = content(1 + seed % 17);
    let pages = RefPage::new(&content).unwrap();
    let mut mapping = pages.map(100_000 + seed % 7 * 300_000).unwrap();
    let middle = mapping.len() / 2;
    assert_pattern(&mapping[middle..], &content, middle);
    mapping[..middle].fill(0);
    mapping.resize(middle + 500_000).unwrap();
    assert_pattern(&mapping[middle + 100_000..], &content, middle + 100_000);
    mapping.reset(0..middle).unwrap();
    assert_pattern(&mapping[..middle], &content, 0);
}

#[test]
fn threads_share_patterns() {
    assert!(in_child(|| {
        std::thread::scope(|scope| {
            for thread in 0..4 {
                scope.spawn(move || (0..150).for_each(|round| churn(thread * 3 + round)));
            }
        });
        assert_eq!(stats().areas, 0);
        assert!(support::tile_descriptors().is_empty());
    }));
}

#[test]
fn children_work_whatever_the_parents_threads_were_doing() {
    static STOP: AtomicBool = AtomicBool::new(false);
    assert!(in_child(|| {
        std::thread::scope(|scope| {
            for thread in 0..3 {
                scope.spawn(move || {
                    (0..).take_while(|_| !STOP.load(Ordering::Relaxed)).for_each(|round| churn(thread + round));
                });
            }
            let all = (0..100).all(|round| in_child(move || (0..3).for_each(|i| churn(round + i))));
            STOP.store(true, Ordering::Relaxed);
            assert!(all);
        });
    }));
}

#[test]
fn parent_and_child_do_not_see_each_others_stores() {
    let mut mapping = RefPage::new(b"family").unwrap().map(1 << 20).unwrap();
    mapping[0] = 1;
    assert!(in_child(|| {
        assert_eq!(mapping[0], 1);
        assert_pattern(&mapping[6..], b"family", 0);
        mapping.fill(2);
        mapping.reset(0..100).unwrap();
        assert_pattern(&mapping[..100], b"family", 0);
    }));
    assert_eq!(mapping[0], 1);
    assert_pattern(&mapping[6..], b"family", 0);
}

#[test]
fn refreshing_in_a_child_looks_at_the_childs_pages() {
    assert!(in_child(|| {
        let pages = RefPage::new(b"page").unwrap();
        let raw = pages.map_raw(1 << 20, 1).unwrap();
        // SAFETY: the mapping is this test's alone.
        unsafe { pages.refresh_raw(&raw, 0..raw.len()).unwrap() };
        assert!(in_child(|| {
            // SAFETY: as above, in the child.
            let bytes = unsafe { std::slice::from_raw_parts_mut(raw.address(), raw.len()) };
            bytes.fill(9);
            // SAFETY: as above.
            unsafe { pages.refresh_raw(&raw, 0..raw.len()).unwrap() };
            assert_pattern(bytes, b"page", 0);
        }));
    }));
}

#[test]
fn a_thief_of_descriptors_never_spoils_a_pattern() {
    static STOP: AtomicBool = AtomicBool::new(false);
    assert!(in_child(|| {
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !STOP.load(Ordering::Relaxed) {
                    for fd in support::tile_descriptors() {
                        // SAFETY: descriptors of this child; standard input is not used.
                        unsafe { libc::dup2(0, fd) };
                    }
                }
            });
            let pages = RefPage::new(b"guard").unwrap();
            let end = Instant::now() + Duration::from_millis(700);
            while Instant::now() < end {
                let mapping = pages.map(600_000).unwrap();
                assert_pattern(&mapping, b"guard", 0);
            }
            STOP.store(true, Ordering::Relaxed);
        });
    }));
}
