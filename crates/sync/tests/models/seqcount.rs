//! The sequence count: a reader never accepts a torn pair.

use crate::race;
use faultless_platform::loom::Loom;
use faultless_platform::{Atomic, Ordering, Processor};
use faultless_sync::SeqCount;

type Word = <Loom as Processor>::AtomicU64;

fn read(word: &Word) -> u64 {
    word.load(Ordering::Relaxed)
}

fn write(word: &Word, value: u64) {
    word.store(value, Ordering::Relaxed);
}

struct Pair {
    count: SeqCount<Loom>,
    left: Word,
    right: Word,
}

fn pair() -> Pair {
    Pair { count: SeqCount::new(), left: Word::new(0), right: Word::new(0) }
}

fn change(pair: &Pair) {
    let _write = pair.count.write();
    let next = read(&pair.left) + 1;
    write(&pair.left, next);
    write(&pair.right, next);
}

fn change_twice(pair: &Pair) {
    change(pair);
    change(pair);
}

fn look(pair: &Pair) {
    let seq = pair.count.read();
    let (left, right) = (read(&pair.left), read(&pair.right));
    if pair.count.is_unchanged(seq) {
        assert_eq!(left, right, "accepted a torn pair");
        assert_eq!(left, seq.value() / 2, "accepted an old pair");
    }
}

/// As many steps as a count of two bits has values.
#[test]
pub fn four_changes_do_not_look_like_none() {
    race(Some(2), pair, [change_twice, look], |_| ());
}

#[test]
pub fn reader_never_accepts_a_torn_pair() {
    race(None, pair, [change, look], |_| ());
    race(None, pair, [change_twice, look], |_| ());
    race(Some(1), pair, [change_twice, look, look], |_| ());
}
