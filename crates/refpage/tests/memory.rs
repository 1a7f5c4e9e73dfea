//! What reference pages cost in memory: the promise of the issue, held by numbers that do not vary.

mod support;

use faultless_refpage::{RefPage, stats};

const LEN: usize = 256 << 20;
const PAGE: usize = 4096;

fn cost_kib(pattern_len: usize, touch: impl Fn(&mut [u8])) -> (usize, usize) {
    let mut mapping = RefPage::new(&support::content(pattern_len)).unwrap().map(LEN).unwrap();
    let before = support::pss_kib(&mapping);
    touch(&mut mapping);
    (support::pss_kib(&mapping) - before, stats().tile_bytes as usize >> 10)
}

#[test]
fn stores_to_every_16th_page_cost_those_pages_and_a_tile() {
    for pattern_len in [1, 12, 4096] {
        assert!(support::in_child(move || {
            let (pages, tile) = cost_kib(pattern_len, |bytes| {
                bytes.iter_mut().step_by(16 * PAGE).for_each(|byte| *byte = 0);
            });
            // Plain anonymous memory needs 16 MiB for the pages.
            let plain = LEN / 16 / 1024;
            assert!(pages >= plain, "{pages}");
            assert!((pages + tile) * 100 <= plain * 115, "{pages} KiB and {tile} KiB of tile");
        }));
    }
}

#[test]
fn reads_of_every_page_cost_a_tile() {
    for pattern_len in [1, 12, 4096] {
        assert!(support::in_child(move || {
            let (pages, _) = cost_kib(pattern_len, |bytes| {
                let sum: u64 = bytes.iter().step_by(PAGE).map(|byte| u64::from(*byte)).sum();
                assert!(sum > 0);
            });
            assert!(pages <= 4 << 10, "{pages} KiB");
        }));
    }
}
