//! The area's lock: no reader beside the writer, and no writer that sleeps for ever.

use crate::{Plain, race};
use faultless_platform::loom::{Loom, set_crowded};
use faultless_platform::{Atomic, Ordering, Processor};
use faultless_sync::PerVmaLock;

struct Vma {
    lock: PerVmaLock<Loom>,
    left: Plain,
    right: Plain,
    has_written: <Loom as Processor>::AtomicU32,
}

fn vma() -> Vma {
    Vma { lock: PerVmaLock::new(), left: Plain::new(), right: Plain::new(), has_written: Atomic::new(0) }
}

/// A writer that has to sleep: CPUs are wanted, so that its first slice is over at once.
fn crowded_vma() -> Vma {
    set_crowded(true);
    vma()
}

fn look(vma: &Vma) {
    if let Some(_read) = vma.lock.try_read() {
        assert_eq!(vma.left.read(), vma.right.read(), "the area is being changed");
    }
}

fn look_twice(vma: &Vma) {
    look(vma);
    look(vma);
}

/// Leaves marks that the writer must see; the only reader.
fn look_and_mark(vma: &Vma) {
    if let Some(_read) = vma.lock.try_read() {
        vma.has_written.store(1, Ordering::Relaxed);
        vma.left.bump();
        vma.right.bump();
    }
}

fn change(vma: &Vma) {
    vma.lock.write_lock();
    vma.left.bump();
    vma.right.bump();
    vma.lock.write_unlock();
}

fn change_twice(vma: &Vma) {
    change(vma);
    change(vma);
}

/// Locks for good, and ends what the area stood for.
fn lock_for_good(vma: &Vma) {
    vma.lock.write_lock();
    let expected = u64::from(vma.has_written.load(Ordering::Relaxed));
    assert_eq!(vma.left.read(), expected, "a reader is inside, or was not seen");
    vma.left.write(9);
    vma.right.write(9);
}

fn is_free(vma: &Vma) {
    assert_eq!(vma.left.read(), vma.right.read());
    vma.lock.write_lock();
    vma.lock.write_unlock();
    assert!(!vma.lock.is_write_locked());
}

#[test]
pub fn no_reader_is_inside_beside_the_writer() {
    race(None, vma, [change, look], is_free);
    race(None, vma, [change_twice, look_twice], is_free);
    race(Some(3), vma, [change, look, look], is_free);
}

#[test]
pub fn a_writer_that_sleeps_is_woken() {
    race(None, crowded_vma, [change, look], is_free);
    race(None, crowded_vma, [change_twice, look_twice], is_free);
    race(Some(3), crowded_vma, [change, look, look], is_free);
}

#[test]
pub fn a_writer_sees_what_readers_did_and_none_comes_after() {
    race(None, vma, [lock_for_good, look_and_mark], |_| ());
    race(None, crowded_vma, [lock_for_good, look_and_mark], |_| ());
}

/// An area that its maker has locked, and that nobody has reached yet.
fn new_vma() -> Vma {
    Vma { lock: PerVmaLock::new_locked(), ..vma() }
}

/// Opens a new area and publishes it; the mark stands for the index.
fn publish(vma: &Vma) {
    vma.left.bump();
    vma.right.bump();
    vma.lock.write_unlock_unpublished();
    // ORDER: Release pairs with the Acquire in `find`, as the index's do.
    vma.has_written.store(1, Ordering::Release);
}

fn find(vma: &Vma) {
    // ORDER: Acquire pairs with the Release in `publish`.
    if vma.has_written.load(Ordering::Acquire) == 1 {
        let _read = vma.lock.try_read().expect("an area that is found is open");
        assert_eq!((vma.left.read(), vma.right.read()), (1, 1));
    }
}

#[test]
pub fn an_area_that_is_opened_before_it_is_published_is_open_and_whole() {
    race(Some(3), new_vma, [publish, find, find], is_free);
}
