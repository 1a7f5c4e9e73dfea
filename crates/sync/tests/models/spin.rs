//! Spin locks: one at a time, and each sees what the last one did.

use crate::{Plain, race};
use faultless_platform::loom::Loom;
use faultless_sync::{RawSpinLock, RwSpinLock, SpinMutex, TicketLock};

struct Raw {
    lock: RawSpinLock<Loom>,
    count: Plain,
}

fn raw() -> Raw {
    Raw { lock: RawSpinLock::new(), count: Plain::new() }
}

fn take(raw: &Raw) {
    let _guard = raw.lock.guard();
    raw.count.bump();
}

fn try_take(raw: &Raw) {
    if let Some(_guard) = raw.lock.try_guard() {
        raw.count.bump();
        raw.count.bump();
    }
}

#[test]
pub fn raw_lock_lets_one_in_at_a_time() {
    race(None, raw, [take, take], |raw| assert_eq!(raw.count.read(), 2));
    race(Some(4), raw, [take, take, take], |raw| assert_eq!(raw.count.read(), 3));
}

#[test]
pub fn try_lock_excludes_and_may_fail() {
    race(None, raw, [take, try_take], |raw| assert!(matches!(raw.count.read(), 1 | 3)));
}

#[test]
pub fn mutex_hands_its_value_on() {
    let add = |mutex: &SpinMutex<Loom, u64>| *mutex.lock() += 1;
    race(None, || SpinMutex::new(0), [add, add], |mutex| assert_eq!(*mutex.lock(), 2));
}

struct Pair {
    lock: RwSpinLock<Loom>,
    left: Plain,
    right: Plain,
}

fn pair() -> Pair {
    Pair { lock: RwSpinLock::new(), left: Plain::new(), right: Plain::new() }
}

fn change(pair: &Pair) {
    let _guard = pair.lock.write();
    pair.left.bump();
    pair.right.bump();
}

fn look(pair: &Pair) {
    let _guard = pair.lock.read();
    assert_eq!(pair.left.read(), pair.right.read());
}

fn is_twice(pair: &Pair) {
    assert_eq!((pair.left.read(), pair.right.read()), (2, 2));
    assert!(!pair.lock.is_locked());
}

#[test]
pub fn rw_lock_excludes_readers_and_writers() {
    race(None, pair, [change, look], |pair| assert_eq!(pair.right.read(), 1));
    race(None, pair, [change, change], is_twice);
    race(Some(4), pair, [change, change, look], is_twice);
    race(Some(4), pair, [change, look, look], |pair| assert_eq!(pair.right.read(), 1));
}

struct Tickets {
    lock: TicketLock<Loom>,
    count: Plain,
}

fn tickets() -> Tickets {
    Tickets { lock: TicketLock::new(), count: Plain::new() }
}

fn draw(tickets: &Tickets) {
    let _guard = tickets.lock.lock();
    tickets.count.bump();
}

fn try_to_draw(tickets: &Tickets) {
    if let Some(_guard) = tickets.lock.try_lock() {
        tickets.count.bump();
        tickets.count.bump();
    }
}

#[test]
pub fn tickets_are_served_one_at_a_time() {
    race(None, tickets, [draw, draw], |tickets| assert_eq!(tickets.count.read(), 2));
    race(None, tickets, [draw, try_to_draw], |tickets| assert!(matches!(tickets.count.read(), 1 | 3)));
    race(Some(3), tickets, [draw, draw, try_to_draw], |tickets| assert!(!tickets.lock.is_locked()));
}
