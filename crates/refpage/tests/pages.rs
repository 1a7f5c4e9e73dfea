//! What a mapping reads as, whatever its pattern, length and history.

mod support;

use faultless_refpage::{Error, Kind, Options, RefPage, TileLen};
use support::{assert_pattern, content, skip};

const LENGTHS: [usize; 7] = [1, 4095, 4096, 130_000, 300_000, 5 << 20, 40 << 20];

#[test]
fn every_byte_of_fresh_memory_is_the_pattern() {
    for pattern_len in [1, 2, 12, 100, 4096, 4104, 4093, 12_288, 1 << 20] {
        let content = content(pattern_len);
        let pages = RefPage::new(&content).unwrap();
        for len in LENGTHS {
            let mapping = pages.map(len).unwrap();
            assert_eq!(mapping.len(), len);
            assert_pattern(&mapping, &content, 0);
        }
    }
}

#[test]
fn usual_patterns_are_tiled_and_long_periods_filled() {
    for (pattern_len, len, kind) in [
        (1, 40 << 20, Kind::Tiled),
        (12, 40 << 20, Kind::Tiled),
        (4096, 40 << 20, Kind::Tiled),
        (4093, 1 << 20, Kind::Tiled),
        (4099, 40 << 20, Kind::Filled),
    ] {
        let content = content(pattern_len);
        let mapping = RefPage::new(&content).unwrap().map(len).unwrap();
        assert_eq!(mapping.kind(), kind, "{pattern_len} {len}");
        assert_pattern(&mapping, &content, 0);
    }
}

#[test]
fn a_store_is_seen_in_its_mapping_alone() {
    let pages = RefPage::new(&[0x51]).unwrap();
    let mut first = pages.map(3 << 20).unwrap();
    first.fill(1);
    let second = pages.map(3 << 20).unwrap();
    assert_pattern(&second, &[0x51], 0);
    assert_pattern(&first, &[1], 0);
}

#[test]
fn reset_returns_any_range_and_only_that() {
    for (pattern_len, tile) in [(1, TileLen::Auto), (12, TileLen::Auto), (4093, TileLen::AtLeast(1))] {
        let content = content(pattern_len);
        let pages = Options::new().tile_len(tile).create(&content).unwrap();
        for range in [0..700_000, 0..1, 5..6, 4096..8192, 100..9_000, 4095..4097, 300_000..700_000] {
            let mut mapping = pages.map(700_000).unwrap();
            mapping.fill(0xFF);
            mapping.reset(range.clone()).unwrap();
            assert_pattern(&mapping[..range.start], &[0xFF], 0);
            assert_pattern(&mapping[range.clone()], &content, range.start);
            assert_pattern(&mapping[range.end..], &[0xFF], 0);
        }
    }
}

#[test]
fn reset_gives_the_memory_back() {
    assert!(support::in_child(|| {
        let mut mapping = RefPage::new(&[0x52]).unwrap().map(32 << 20).unwrap();
        let before = support::pss_kib(&mapping);
        mapping.fill(1);
        assert!(support::pss_kib(&mapping) > before + (31 << 10));
        let len = mapping.len();
        mapping.reset(0..len).unwrap();
        assert!(support::pss_kib(&mapping) < before + (1 << 10));
    }));
}

#[test]
fn reset_outside_is_an_error_and_changes_nothing() {
    let mut mapping = RefPage::new(&[0x53]).unwrap().map(5_000).unwrap();
    mapping.fill(2);
    assert_eq!(mapping.reset(0..5_001), Err(Error::OutOfRange { end: 5_001, len: 5_000 }));
    let backwards = std::ops::Range { start: 9, end: 3 };
    assert!(mapping.reset(backwards).is_err());
    assert_pattern(&mapping, &[2], 0);
}

#[test]
fn resize_keeps_what_was_and_patterns_what_is_new() {
    for pattern_len in [1, 12, 4093] {
        let content = content(pattern_len);
        let pages = RefPage::new(&content).unwrap();
        let mut mapping = pages.map(200_000).unwrap();
        mapping[100_000..].fill(0xEE);
        for len in [200_001, 700_000, 5 << 20, 50 << 20, 700_000, 200_000, 9 << 20] {
            // Something behind it half of the time, so that it must move.
            let blocker = (len % 3 == 0).then(|| pages.map(4096).unwrap());
            mapping.resize(len).unwrap();
            assert_pattern(&mapping[..100_000], &content, 0);
            assert_pattern(&mapping[100_000..200_000], &[0xEE], 0);
            assert_pattern(&mapping[200_000..], &content, 200_000);
            drop(blocker);
        }
        mapping.resize(150_001).unwrap();
        mapping.resize(300_000).unwrap();
        assert_pattern(&mapping[100_000..150_001], &[0xEE], 0);
        assert_pattern(&mapping[150_001..], &content, 150_001);
    }
}

#[test]
fn growing_moves_pages_instead_of_copying_them() {
    assert!(support::in_child(|| {
        let pages = RefPage::new(&[0x54]).unwrap();
        let mut mapping = pages.map(64 << 20).unwrap();
        mapping.iter_mut().step_by(1 << 20).for_each(|byte| *byte = 7);
        let before = support::pss_kib(&mapping);
        for len in [80 << 20, 120 << 20, 400 << 20] {
            mapping.resize(len).unwrap();
        }
        // Longer tiles may have been made, but the untouched megabytes stay untouched.
        assert!(support::pss_kib(&mapping) < before + (2 << 10));
        assert!(mapping[..64 << 20].iter().step_by(1 << 20).all(|byte| *byte == 7));
        assert_eq!(mapping[65 << 20], 0x54);
    }));
}

#[test]
fn an_alignment_is_kept() {
    let pages = RefPage::new(&content(12)).unwrap();
    for align in [1, 16, 4096, 8192, 2 << 20, 1 << 30] {
        let mapping = pages.map_aligned(600_000, align).unwrap();
        assert_eq!(mapping.as_ptr().addr() % align, 0);
        assert_pattern(&mapping, &content(12), 0);
    }
}

#[test]
fn a_pattern_of_zeros_is_plain_memory() {
    let mut mapping = RefPage::new(&[0, 0, 0]).unwrap().map(1 << 20).unwrap();
    assert_eq!(mapping.kind(), Kind::Zero);
    assert_pattern(&mapping, &[0], 0);
    mapping.fill(1);
    mapping.reset(10..900_000).unwrap();
    assert_pattern(&mapping[10..900_000], &[0], 0);
    assert_eq!((mapping[9], mapping[900_000]), (1, 1));
    mapping.resize(3 << 20).unwrap();
    assert_eq!((mapping[9], mapping[2 << 20]), (1, 0));
}

#[test]
fn mappings_outlive_their_pattern() {
    let mut mapping = RefPage::new(&[0x55]).unwrap().map(1 << 20).unwrap();
    mapping.fill(1);
    mapping.reset(0..1 << 20).unwrap();
    mapping.resize(2 << 20).unwrap();
    assert_pattern(&mapping, &[0x55], 0);
    assert_eq!(mapping.pages().content(), [0x55]);
}

#[test]
fn equal_patterns_share_one_memfd_and_the_last_closes_it() {
    assert!(support::in_child(|| {
        let before = support::tile_descriptors();
        let pages: Vec<RefPage> = (0..5).map(|_| RefPage::new(b"shared").unwrap()).collect();
        let mappings: Vec<_> = pages.iter().map(|pages| pages.map(1 << 20).unwrap()).collect();
        assert_eq!(support::tile_descriptors().len(), before.len() + 1);
        drop(pages);
        assert_eq!(support::tile_descriptors().len(), before.len() + 1);
        drop(mappings);
        assert_eq!(support::tile_descriptors(), before);
    }));
}

#[test]
fn many_patterns_leave_nothing_behind() {
    assert!(support::in_child(|| {
        let work = |from: u32| {
            for number in from..from + 2_000 {
                let mapping = RefPage::new(&number.to_le_bytes()).unwrap().map(8192).unwrap();
                assert_eq!(mapping[4..8], number.to_le_bytes());
            }
        };
        work(1);
        let (areas, rss) = (support::areas(), support::rollup("Rss:"));
        work(10_000);
        assert!(support::areas() <= areas + 2);
        assert!(support::rollup("Rss:") <= rss + 256);
    }));
}

#[test]
fn tiles_are_sealed_and_out_of_the_programs_way() {
    let _mapping = RefPage::new(&[0x56]).unwrap().map(1 << 20).unwrap();
    for fd in support::tile_descriptors() {
        // SAFETY: asks for flags.
        let (seals, flags) = unsafe { (libc::fcntl(fd, libc::F_GET_SEALS), libc::fcntl(fd, libc::F_GETFD)) };
        let wanted = libc::F_SEAL_WRITE | libc::F_SEAL_GROW | libc::F_SEAL_SHRINK | libc::F_SEAL_SEAL;
        assert_eq!(seals & wanted, wanted);
        assert_eq!(flags, libc::FD_CLOEXEC);
        assert!(fd >= 48);
    }
}

#[test]
fn the_chosen_tile_is_the_number_of_areas() {
    assert!(support::in_child(|| {
        let options = Options::new().tile_len(TileLen::AtLeast(1 << 20));
        let pages = options.create(&[0x57]).unwrap();
        let _warm = pages.map(4096).unwrap();
        let before = support::areas();
        let _mapping = pages.map(32 << 20).unwrap();
        assert_eq!(support::areas() - before, 32);
    }));
}

#[test]
fn patterned_ranges_have_no_huge_pages_unless_asked() {
    use faultless_refpage::HugePages;
    let flags_of = |options: Options| {
        let mapping = options.create(&[0x58]).unwrap().map(3 << 20).unwrap();
        let smaps = std::fs::read_to_string("/proc/self/smaps").unwrap();
        let start = format!("{:x}-", mapping.as_ptr().addr());
        let mut lines = smaps.lines().skip_while(|line| !line.starts_with(&start));
        lines.find(|line| line.starts_with("VmFlags")).unwrap().to_owned()
    };
    assert!(flags_of(Options::new()).contains(" nh"));
    assert!(!flags_of(Options::new().huge_pages(HugePages::System)).contains(" nh"));
}

#[test]
fn refresh_keeps_pages_and_restores_the_pattern() {
    assert!(support::in_child(|| {
        for pattern_len in [1, 12] {
            let content = content(pattern_len);
            let pages = RefPage::new(&content).unwrap();
            let raw = pages.map_raw(8 << 20, 1).unwrap();
            // SAFETY: the mapping is this test's alone.
            let bytes = unsafe { std::slice::from_raw_parts_mut(raw.address(), raw.len()) };
            bytes[..2 << 20].fill(1);
            bytes[5 << 20] = 1;
            let before = support::pss_kib(bytes);
            // SAFETY: as above.
            unsafe { pages.refresh_raw(&raw, 0..raw.len()).unwrap() };
            let after = support::pss_kib(bytes);
            assert!(after.abs_diff(before) < 256, "{before} {after}");
            assert_pattern(bytes, &content, 0);
            // SAFETY: as above; the bytes are not used any more.
            unsafe { pages.unmap_raw(raw) };
        }
    }));
}

#[test]
fn pages_that_are_copied_ahead_are_the_pattern_and_count_as_written() {
    let (page, content) = (4096, content(12));
    let pages = RefPage::new(&content).unwrap();
    let raw = pages.map_raw(64 * page, 1).unwrap();
    assert_eq!(pages.count_written(&raw), Some((64, 0)));
    // SAFETY: the mapping is this test's.
    let copied = unsafe { pages.copy_ahead_raw(&raw, 16 * page..48 * page) };
    match copied {
        Ok(()) => assert_eq!(pages.count_written(&raw), Some((64, 32))),
        Err(why) => skip(&why.to_string()),
    }
    // SAFETY: as above.
    unsafe {
        assert_pattern(std::slice::from_raw_parts(raw.address(), raw.len()), &content, 0);
        assert!(pages.is_pattern_raw(&raw, 0..raw.len()));
        assert!(pages.is_pattern_raw(&raw, 5 * page..6 * page));
        *raw.address().add(6 * page - 1) ^= 1;
        assert!(!pages.is_pattern_raw(&raw, 5 * page..6 * page));
        assert!(pages.is_pattern_raw(&raw, 6 * page..raw.len()));
        pages.unmap_raw(raw);
    }
}
