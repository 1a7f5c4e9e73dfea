//! Ranges of one thing: who holds a part excludes who is about the same places, who holds everything excludes all.

use crate::{Body, Plain, race};
use faultless_platform::loom::Loom;
use faultless_platform::{Atomic, Ordering, Processor};
use faultless_sync::{Choice, Claim, Generation, PartTable, PartTableRef, RangeLock, RwSemaphore, Rwsem};

struct Shared {
    lock: RangeLock<Loom, Rwsem<Loom>, 2>,
    /// What lies at the places 0 and 2: parts that hold one each do not touch.
    places: [Plain; 2],
}

fn whole() -> Shared {
    let lock = RangeLock::new(Rwsem::of(Generation::RWSEM_2012));
    Shared { lock, places: core::array::from_fn(|_| Plain::new()) }
}

fn divided() -> Shared {
    let shared = whole();
    shared.lock.write().divide();
    shared
}

fn change(shared: &Shared, place: usize) {
    let start = 2 * place as u64;
    let (_write, _) = shared.lock.write_part(&mut |_| Some(Claim { start, end: start + 1, ..Claim::default() }));
    shared.places[place].bump();
}

fn change_low(shared: &Shared) {
    change(shared, 0);
}

fn change_high(shared: &Shared) {
    change(shared, 1);
}

/// Changes the low place if nobody is there; else on the usual way.
fn change_low_first(shared: &Shared) {
    let Some((write, table)) = shared.lock.write_first_of(shared.lock.parts(), |_| Some(0..1)) else {
        return change_low(shared);
    };
    shared.places[0].bump();
    drop(table);
    shared.places[0].read();
    drop(write);
}

fn edit_low_first(shared: &Shared) {
    let Some((share, table)) = shared.lock.edit_first_of(shared.lock.parts()) else {
        return change_low(shared);
    };
    shared.places[0].bump();
    drop(table);
    drop(share);
}

fn change_all(shared: &Shared) {
    let _write = shared.lock.write();
    shared.places.iter().for_each(Plain::bump);
}

fn change_all_and_look(shared: &Shared) {
    let write = shared.lock.write();
    shared.places.iter().for_each(Plain::bump);
    let both = || [shared.places[0].read(), shared.places[1].read()];
    let before = both();
    let _read = shared.lock.downgrade(write);
    assert_eq!(both(), before);
}

fn change_low_and_look(shared: &Shared) {
    let (write, table) = shared.lock.write_part(&mut |_| Some(Claim { start: 0, end: 1, ..Claim::default() }));
    drop(table);
    shared.places[0].bump();
    let before = shared.places[0].read();
    let _read = shared.lock.downgrade(write);
    assert_eq!(shared.places[0].read(), before);
}

fn look_low(shared: &Shared) {
    let _read = shared.lock.read(0..1);
    shared.places[0].read();
}

fn try_to_look_low(shared: &Shared) {
    if let Some(_read) = shared.lock.try_read(0..1) {
        shared.places[0].read();
    }
}

fn let_a_second_in(shared: &Shared) {
    let mut write = shared.lock.write();
    shared.places.iter().for_each(Plain::bump);
    write.divide();
}

fn is(shared: &Shared, low: u64, high: u64) {
    assert_eq!([shared.places[0].read(), shared.places[1].read()], [low, high], "a change was lost");
    assert!(!shared.lock.semaphore().is_locked() && !shared.lock.table().is_held_by_others(&(0..9), 9));
}

#[test]
pub fn parts_of_one_place_exclude_each_other() {
    race(Some(3), divided, [change_low as Body<Shared>, change_low], |shared| is(shared, 2, 0));
    race(Some(3), divided, [change_low, look_low], |shared| is(shared, 1, 0));
    race(Some(3), divided, [change_low, try_to_look_low], |shared| is(shared, 1, 0));
    race(Some(3), divided, [change_low_and_look, look_low], |shared| is(shared, 1, 0));
}

#[test]
pub fn who_finds_nobody_there_excludes_those_who_come() {
    race(Some(3), divided, [change_low_first as Body<Shared>, change_low], |shared| is(shared, 2, 0));
    race(Some(3), divided, [change_low_first, change_low_first], |shared| is(shared, 2, 0));
    race(Some(3), divided, [change_low_first, look_low], |shared| is(shared, 1, 0));
    race(Some(2), divided, [change_low_first, change_low, change_high], |shared| is(shared, 2, 1));
    race(Some(3), divided, [change_low_first, change_all], |shared| is(shared, 2, 1));
    race(Some(3), whole, [change_low_first, let_a_second_in], |shared| is(shared, 2, 1));
    race(Some(3), divided, [edit_low_first as Body<Shared>, change_low], |shared| is(shared, 2, 0));
    race(Some(3), divided, [edit_low_first, change_low_first], |shared| is(shared, 2, 0));
    race(Some(3), divided, [edit_low_first, look_low], |shared| is(shared, 1, 0));
    race(Some(2), divided, [edit_low_first, change_low, change_high], |shared| is(shared, 2, 1));
    race(Some(3), divided, [edit_low_first, change_all], |shared| is(shared, 2, 1));
    race(Some(3), whole, [edit_low_first, let_a_second_in], |shared| is(shared, 2, 1));
}

#[test]
pub fn parts_of_two_places_lose_nothing() {
    race(Some(3), divided, [change_low as Body<Shared>, change_high], |shared| is(shared, 1, 1));
}

#[test]
pub fn everything_excludes_parts() {
    race(Some(3), divided, [change_all as Body<Shared>, change_low], |shared| is(shared, 2, 1));
    race(Some(3), divided, [change_all_and_look, change_low], |shared| is(shared, 2, 1));
    race(Some(3), divided, [change_all, look_low], |shared| is(shared, 1, 1));
    race(Some(3), divided, [change_all_and_look, look_low], |shared| is(shared, 1, 1));
}

#[test]
pub fn who_looks_while_parts_begin_to_be_given_out_keeps_them_away() {
    race(Some(3), whole, [let_a_second_in as Body<Shared>, look_low], |shared| is(shared, 1, 1));
    race(Some(2), whole, [let_a_second_in as Body<Shared>, look_low, change_low], |shared| is(shared, 2, 1));
}

/// Two lanes with a table each, and what lies in both.
struct Lanes {
    lock: RangeLock<Loom, Rwsem<Loom>, 1>,
    tables: [PartTable<Loom, 1>; 2],
    places: [Plain; 2],
}

fn lanes() -> Lanes {
    let lock = RangeLock::new(Rwsem::of(Generation::RWSEM_2012));
    lock.write().divide();
    Lanes { lock, tables: core::array::from_fn(|_| PartTable::new()), places: core::array::from_fn(|_| Plain::new()) }
}

fn change_lane(lanes: &Lanes, lane: usize) {
    let claim = Claim { start: 2 * lane as u64, end: 2 * lane as u64 + 1, ..Claim::default() };
    let (_write, _) = lanes.lock.write_part_of(&|| lanes.tables[lane].parts(), &mut |_| Some(claim));
    lanes.places[lane].bump();
}

fn change_first_lane(lanes: &Lanes) {
    change_lane(lanes, 0);
}

fn change_second_lane(lanes: &Lanes) {
    change_lane(lanes, 1);
}

fn change_both_lanes(lanes: &Lanes) {
    let _write = lanes.lock.write();
    lanes.places.iter().for_each(Plain::bump);
}

fn look_at_both_lanes(lanes: &Lanes) {
    let _read = lanes.lock.read_of(&|| None, 0..3);
    lanes.places.iter().for_each(|place| _ = place.read());
}

fn look_at_first_lane(lanes: &Lanes) {
    let _read = lanes.lock.read_of(&|| Some(lanes.tables[0].parts()), 0..1);
    lanes.places[0].read();
}

fn lanes_are(lanes: &Lanes, first: u64, second: u64) {
    assert_eq!(lanes.places.each_ref().map(Plain::read), [first, second], "a change was lost");
    assert!(!lanes.lock.semaphore().is_locked());
    assert!(lanes.tables.iter().all(|table| !table.parts().lock().is_held_by_others(&(0..9), 9)));
}

#[test]
pub fn everything_excludes_parts_of_all_tables() {
    race(Some(3), lanes, [change_both_lanes as Body<Lanes>, change_second_lane], |lanes| lanes_are(lanes, 1, 2));
    race(Some(3), lanes, [change_first_lane, change_second_lane], |lanes| lanes_are(lanes, 1, 1));
}

#[test]
pub fn who_looks_at_several_tables_excludes_parts_of_each() {
    race(Some(3), lanes, [look_at_both_lanes as Body<Lanes>, change_second_lane], |lanes| lanes_are(lanes, 0, 1));
    race(Some(3), lanes, [look_at_both_lanes, look_at_first_lane], |lanes| lanes_are(lanes, 0, 0));
    race(Some(2), lanes, [look_at_both_lanes, look_at_first_lane, change_first_lane], |lanes| lanes_are(lanes, 1, 0));
}

/// Changes both lanes from one of them: what touches where they meet.
fn change_both_from(lanes: &Lanes, own: usize) {
    let (other, range) = (lanes.tables[1 - own].parts(), |lane: usize| 2 * lane as u64..2 * lane as u64 + 1);
    let (_write, _) = lanes.lock.write_parts_of(&|| lanes.tables[own].parts(), &mut |_, beyond| {
        *beyond = beyond.take().or_else(|| other.try_lock());
        if beyond.is_none() {
            return Choice::Again(other);
        }
        let claim = Claim { start: range(own).start, end: range(own).end, ..Claim::default() };
        Choice::Two(claim, range(1 - own))
    });
    lanes.places.iter().for_each(Plain::bump);
}

fn change_both_from_the_first(lanes: &Lanes) {
    change_both_from(lanes, 0);
}

fn change_both_from_the_second(lanes: &Lanes) {
    change_both_from(lanes, 1);
}

#[test]
pub fn who_changes_what_lies_where_two_lanes_meet_excludes_parts_of_each() {
    race(Some(3), lanes, [change_both_from_the_first as Body<Lanes>, change_second_lane], |lanes| {
        lanes_are(lanes, 1, 2);
    });
    race(Some(3), lanes, [change_both_from_the_first, change_first_lane], |lanes| lanes_are(lanes, 2, 1));
    race(Some(2), lanes, [change_both_from_the_first, look_at_first_lane], |lanes| lanes_are(lanes, 1, 1));
    race(Some(2), lanes, [change_both_from_the_first, change_both_lanes], |lanes| lanes_are(lanes, 2, 2));
}

#[test]
pub fn two_who_meet_from_both_sides_come_one_after_the_other() {
    race(Some(3), lanes, [change_both_from_the_first as Body<Lanes>, change_both_from_the_second], |lanes| {
        lanes_are(lanes, 2, 2);
    });
}

/// A place that goes from one table to another, once, as soon as somebody wants it of whom nobody else has a part.
struct Moving {
    lanes: Lanes,
    has_moved: <Loom as Processor>::AtomicU32,
}

fn moving() -> Moving {
    Moving { lanes: lanes(), has_moved: <Loom as Processor>::AtomicU32::new(0) }
}

impl Moving {
    fn table(&self) -> PartTableRef<'_, Loom> {
        // Relaxed: asked again with the table's lock, under which it changes (I5).
        self.lanes.tables[self.has_moved.load(Ordering::Relaxed) as usize].parts()
    }
}

fn move_and_change(moving: &Moving) {
    let (_write, _) = moving.lanes.lock.write_part_of(&|| moving.table(), &mut |held| {
        if held.is_of(moving.lanes.tables[0].parts()) && !held.is_held_by_others(&(0..3), 9) {
            moving.has_moved.store(1, Ordering::Relaxed);
        }
        Some(Claim { start: 0, end: 1, ..Claim::default() })
    });
    moving.lanes.places[0].bump();
}

fn change_where_it_is(moving: &Moving) {
    let claim = Claim { start: 0, end: 1, ..Claim::default() };
    let (_write, _) = moving.lanes.lock.write_part_of(&|| moving.table(), &mut |_| Some(claim));
    moving.lanes.places[0].bump();
}

fn look_where_it_is(moving: &Moving) {
    let _read = moving.lanes.lock.read_of(&|| Some(moving.table()), 0..1);
    moving.lanes.places[0].read();
}

#[test]
pub fn a_place_that_goes_to_another_table_excludes_those_who_waited_for_the_first() {
    race(Some(3), moving, [move_and_change as Body<Moving>, change_where_it_is], |moving| {
        lanes_are(&moving.lanes, 2, 0)
    });
    race(Some(3), moving, [move_and_change, look_where_it_is], |moving| lanes_are(&moving.lanes, 1, 0));
}
