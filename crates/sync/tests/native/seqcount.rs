//! Sequence counts.

use crate::{Pair, on, rounds};
use faultless_platform::Ordering;
use faultless_platform::native::Native;
use faultless_sync::{PerCpuCounter, SeqCount, SpinMutex};

#[test]
fn sequence_count_readers_accept_no_torn_pair() {
    let (count, lock, pair) = (SeqCount::<Native>::new(), SpinMutex::<Native, ()>::new(()), Pair::new());
    let nr_accepted = PerCpuCounter::<Native>::new(4);
    on(4, 4, |thread| {
        for _ in rounds() {
            if thread == 0 {
                let _serial = lock.lock();
                let _write = count.write();
                pair.change();
            } else {
                let seq = count.read();
                let (left, right) = (pair.left.load(Ordering::Relaxed), pair.right.load(Ordering::Relaxed));
                if count.is_unchanged(seq) {
                    assert_eq!(left, right);
                    nr_accepted.add(1);
                }
            }
        }
    });
    assert!(nr_accepted.sum() > 0);
}

/// Steps through `nr_writes` writes under a reader; says whether it accepts what it read before them.
fn accepts_across<const BITS: u32>(nr_writes: u32) -> bool {
    let count = SeqCount::<Native, BITS>::new();
    let seq = count.read();
    for _ in 0..nr_writes {
        drop(count.write());
    }
    count.is_unchanged(seq)
}

#[test]
fn narrow_sequence_counts_wrap_after_a_whole_turn_alone() {
    assert!((1..8).all(|writes| !accepts_across::<4>(writes)));
    assert!(accepts_across::<4>(8), "four bits are back where they were: what a reader must not sleep through");
    assert!((1..=300).all(|writes| accepts_across::<8>(writes) == (writes % 128 == 0)));
    assert!((1..=300).all(|writes| !accepts_across::<64>(writes)));
}

#[test]
fn an_odd_count_is_never_unchanged() {
    let count = SeqCount::<Native, 4>::new();
    let write = count.write();
    let seq = count.read();
    assert!(seq.is_write_in_progress() && !count.is_unchanged(seq));
    drop(write);
    assert!(count.is_unchanged(count.read()));
}
