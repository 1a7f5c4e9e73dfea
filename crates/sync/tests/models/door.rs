//! The door: nobody inside while it is closed, and no closer that sleeps for ever.

use crate::{Plain, race};
use faultless_platform::loom::{Loom, set_crowded};
use faultless_platform::{Atomic, Ordering, Processor};
use faultless_sync::Door;

struct Room {
    door: Door<Loom>,
    left: Plain,
    right: Plain,
    nr_inside: <Loom as Processor>::AtomicU32,
}

fn room() -> Room {
    Room { door: Door::new(), left: Plain::new(), right: Plain::new(), nr_inside: Atomic::new(0) }
}

/// A closer that has to sleep: CPUs are wanted, so that its first slice is over at once.
fn crowded_room() -> Room {
    set_crowded(true);
    room()
}

fn visit(room: &Room) {
    if let Some(_inside) = room.door.try_enter() {
        assert_eq!(room.left.read(), room.right.read(), "the room is being changed");
    }
}

fn visit_twice(room: &Room) {
    visit(room);
    visit(room);
}

/// Changes what visitors read, and leaves a mark that the closer must see.
fn visit_alone(room: &Room) {
    if let Some(_inside) = room.door.try_enter() {
        room.nr_inside.store(1, Ordering::Relaxed);
        room.left.bump();
        room.right.bump();
    }
}

fn change(room: &Room) {
    room.door.close();
    room.left.bump();
    room.right.bump();
    room.door.open();
}

fn change_twice(room: &Room) {
    change(room);
    change(room);
}

/// Closes for good, and ends what stood behind the door.
fn close_for_good(room: &Room) {
    room.door.close();
    let expected = u64::from(room.nr_inside.load(Ordering::Relaxed));
    assert_eq!(room.left.read(), expected, "a visitor is inside, or was not seen");
    room.left.write(9);
    room.right.write(9);
}

fn is_open_and_empty(room: &Room) {
    assert_eq!(room.left.read(), room.right.read());
    room.door.close();
    room.door.open();
    assert!(!room.door.is_closed());
}

#[test]
fn nobody_is_inside_while_the_door_is_closed() {
    race(None, room, [change, visit], is_open_and_empty);
    race(None, room, [change_twice, visit_twice], is_open_and_empty);
    race(Some(3), room, [change, visit, visit], is_open_and_empty);
}

#[test]
fn a_closer_that_sleeps_is_woken() {
    race(None, crowded_room, [change, visit], is_open_and_empty);
    race(Some(3), crowded_room, [change_twice, visit_twice], is_open_and_empty);
    race(Some(3), crowded_room, [change, visit, visit], is_open_and_empty);
}

#[test]
fn a_closer_sees_what_visitors_did_and_none_comes_after() {
    race(None, room, [close_for_good, visit_alone], |_| ());
    race(None, crowded_room, [close_for_good, visit_alone], |_| ());
}
