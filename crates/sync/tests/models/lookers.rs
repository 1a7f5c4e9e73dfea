//! Lookers: what nobody looks at elsewhere is freed at once, and never under one who does.

use crate::object::Object;
use crate::race;
use faultless_platform::loom::Loom;
use faultless_platform::{Atomic, AtomicInteger, Ordering, Processor};
use faultless_sync::{Forgetting, Lookers, Rcu};

struct Shared {
    lookers: Lookers<Loom>,
    rcu: Rcu<Loom, 1>,
    is_linked: <Loom as Processor>::AtomicBool,
    are_many: <Loom as Processor>::AtomicBool,
    object: Object,
    nr_at_once: <Loom as Processor>::AtomicU32,
}

fn shared<const N: usize>() -> Shared {
    Shared {
        lookers: Lookers::new(),
        rcu: Rcu::with_batch(N),
        is_linked: Atomic::new(true),
        are_many: Atomic::new(false),
        object: Object::new(),
        nr_at_once: Atomic::new(0),
    }
}

fn find(shared: &Shared) {
    if shared.is_linked.load(Ordering::Relaxed) {
        assert!(!shared.object.is_freed(), "freed under a looker");
    }
}

fn look(shared: &Shared) {
    let _section = shared.lookers.read(&shared.rcu);
    find(shared);
}

fn look_twice(shared: &Shared) {
    look(shared);
    look(shared);
}

/// The outer section, of which the lookers know nothing, has its fence too early.
fn look_inside_another_section(shared: &Shared) {
    let _section = shared.rcu.read();
    look(shared);
}

/// Notes itself in a section that began before, with a fence that is too early.
fn note_inside_a_section(shared: &Shared) {
    let _section = shared.rcu.read();
    shared.lookers.note();
    find(shared);
}

fn note_twice(shared: &Shared) {
    note_inside_a_section(shared);
    note_inside_a_section(shared);
}

/// The remover's own looks don't count.
fn note_and_free(shared: &Shared) {
    note_inside_a_section(shared);
    free(shared);
}

fn let_many_in(shared: &Shared) {
    shared.lookers.let_many_in();
    // ORDER: hands on that any section does.
    shared.are_many.store(true, Ordering::Release);
}

/// One of many needs no more than a section.
fn look_among_many(shared: &Shared) {
    if shared.are_many.load(Ordering::Acquire) {
        let _section = shared.rcu.read();
        find(shared);
    }
}

/// The section has begun, with its fence, before many were let in.
fn look_among_many_inside_another_section(shared: &Shared) {
    let _section = shared.rcu.read();
    look_among_many(shared);
}

fn free(shared: &Shared) {
    shared.is_linked.store(false, Ordering::Relaxed);
    if shared.lookers.may_be_elsewhere() {
        shared.rcu.synchronize();
    } else {
        shared.nr_at_once.fetch_add(1, Ordering::Relaxed);
    }
    shared.object.end();
}

/// The remover's own looks don't count.
fn look_and_free(shared: &Shared) {
    look(shared);
    free(shared);
}

/// Has nothing to do with what is looked at.
fn wait_for_sections(shared: &Shared) {
    shared.rcu.synchronize();
}

#[test]
pub fn nothing_is_freed_under_one_who_looks() {
    race(None, shared::<2>, [free, look], |_| ());
    race(Some(4), shared::<2>, [free, look_twice], |_| ());
    race(Some(4), shared::<2>, [look_and_free, look], |_| ());
}

#[test]
pub fn one_who_finds_another_has_a_fence_of_its_own() {
    race(Some(3), shared::<3>, [free, look, look], |_| ());
    race(Some(3), shared::<3>, [free, look, look_inside_another_section], |_| ());
}

#[test]
pub fn one_who_is_noted_in_a_section_is_seen() {
    race(None, shared::<2>, [free, note_inside_a_section], |_| ());
    race(Some(4), shared::<2>, [note_and_free, note_twice], |_| ());
    // The third one may read that the second has noted many.
    race(Some(2), shared::<3>, [note_and_free, note_inside_a_section, note_inside_a_section], |_| ());
    race(Some(2), shared::<3>, [note_and_free, note_inside_a_section, look], |_| ());
}

#[test]
pub fn many_that_were_let_in_need_no_more_than_a_section() {
    race(Some(3), shared::<3>, [free, let_many_in, look_among_many], |_| ());
    race(Some(3), shared::<3>, [free, let_many_in, look_among_many_inside_another_section], |_| ());
}

#[test]
fn alone_means_at_once() {
    race(None, shared::<2>, [look_and_free, wait_for_sections], |shared| {
        assert_eq!(shared.nr_at_once.load(Ordering::Relaxed), 1);
    });
}

struct Recent {
    lookers: Lookers<Loom>,
    forgetting: Forgetting<Loom>,
    rcu: Rcu<Loom, 1>,
    is_linked: <Loom as Processor>::AtomicBool,
    object: Object,
    nr_at_once: <Loom as Processor>::AtomicU32,
}

/// Many may have looked.
fn recent<const N: usize>() -> Recent {
    let lookers = Lookers::new();
    lookers.let_many_in();
    Recent {
        lookers,
        forgetting: Forgetting::new(),
        rcu: Rcu::with_batch(N),
        is_linked: Atomic::new(true),
        object: Object::new(),
        nr_at_once: Atomic::new(0),
    }
}

fn look_lately(shared: &Recent) {
    let _section = shared.rcu.read();
    shared.lookers.note();
    if shared.is_linked.load(Ordering::Relaxed) {
        assert!(!shared.object.is_freed(), "freed under a looker");
    }
}

fn look_lately_twice(shared: &Recent) {
    look_lately(shared);
    look_lately(shared);
}

/// A removal of something else, by which others are forgotten.
fn forget(shared: &Recent) {
    assert!(shared.forgetting.may_be_elsewhere(&shared.lookers, &shared.rcu), "many");
}

fn free_what_recent_lookers_find(shared: &Recent) {
    shared.is_linked.store(false, Ordering::Relaxed);
    if shared.forgetting.may_be_elsewhere(&shared.lookers, &shared.rcu) {
        shared.rcu.synchronize();
    } else {
        shared.nr_at_once.fetch_add(1, Ordering::Relaxed);
    }
    shared.object.end();
}

fn forget_and_free(shared: &Recent) {
    forget(shared);
    free_what_recent_lookers_find(shared);
}

fn forget_wait_and_free(shared: &Recent) {
    forget(shared);
    shared.rcu.synchronize();
    free_what_recent_lookers_find(shared);
}

#[test]
pub fn who_is_forgotten_while_it_looks_is_waited_for() {
    race(Some(3), recent::<2>, [forget_and_free, look_lately], |_| ());
    race(Some(3), recent::<2>, [forget_wait_and_free, look_lately_twice], |_| ());
    race(Some(2), recent::<3>, [forget_wait_and_free, look_lately, look_lately], |_| ());
}

#[test]
fn who_looked_long_ago_is_forgotten() {
    fn wait(shared: &Recent) {
        shared.rcu.synchronize();
    }
    race(None, recent::<2>, [forget_wait_and_free, wait], |shared| {
        assert_eq!(shared.nr_at_once.load(Ordering::Relaxed), 1);
    });
}
