//! CPU slots, handed to threads one at a time.
//!
//! # Guarantee
//! A slot has one owner (I1 of the crate); threads that find none free get one in the order in which they came.
//!
//! # Word first
//! `Slot::state`: [`FREE`] no owner; [`KERNEL`] owned, uses no translation; [`GUEST`] owned, may use translations.
//! Only the owner changes a state that isn't FREE.
//!
//! # Protocol: a slot is given up while another thread begins to wait
//! ```text
//! leaver                               waiter
//! state = FREE                         nr_waiting += 1
//! fence                                fence
//! nr_waiting == 0? then done           no slot FREE? then queue and sleep
//! ```
//! One of them sees the other: the waiter finds the slot, or the leaver takes it back and hands it to the queue.
//!
//! # Protocol: a waiter's wait ends by a panic
//! It takes its ticket out of the queue, under the queue's lock. A ticket that isn't there any more was or will be
//! given a slot: the waiter takes that, and gives it up again. Otherwise the slot would be lost to every later user of
//! the machine.

use super::fence::fence;
use super::futex;
use crate::CachePadded;
use core::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};
use std::boxed::Box;
use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};

pub(super) const FREE: u32 = 0;
pub(super) const KERNEL: u32 = 1;
pub(super) const GUEST: u32 = 2;

/// One CPU slot.
#[derive(Debug, Default)]
pub(super) struct Slot {
    pub(super) state: AtomicU32,
    /// Something was published for this CPU since it last looked.
    pub(super) is_pending: AtomicBool,
}

/// A sleeper's letter box: 0 until a slot's number + 1 is put in.
#[derive(Debug, Default)]
struct Ticket(AtomicU32);

impl Ticket {
    fn slot(&self) -> Option<usize> {
        // ORDER: Acquire pairs with the Release in `hand_over`: the last owner's cells are seen.
        (self.0.load(Ordering::Acquire) as usize).checked_sub(1)
    }
}

/// All slots of a machine.
#[derive(Debug)]
pub(super) struct Slots {
    slots: Box<[CachePadded<Slot>]>,
    nr_waiting: AtomicUsize,
    queue: Mutex<VecDeque<Arc<Ticket>>>,
}

impl Slots {
    pub(super) fn new(nr_cpus: usize) -> Self {
        Self {
            slots: (0..nr_cpus).map(|_| CachePadded::default()).collect(),
            nr_waiting: AtomicUsize::new(0),
            queue: Mutex::new(VecDeque::new()),
        }
    }

    pub(super) fn len(&self) -> usize {
        self.slots.len()
    }

    pub(super) fn get(&self, cpu: usize) -> &Slot {
        &self.slots[cpu]
    }

    pub(super) fn is_awaited(&self) -> bool {
        // Relaxed: a hint for spinners.
        self.nr_waiting.load(Ordering::Relaxed) != 0
    }

    /// Takes a slot, `preferred` if it is free; `keep_waiting` is asked from time to time and may panic.
    pub(super) fn take(&self, preferred: usize, keep_waiting: &dyn Fn()) -> usize {
        if !self.is_awaited()
            && let Some(cpu) = self.try_take(preferred)
        {
            return cpu;
        }
        self.take_slow(preferred, keep_waiting)
    }

    #[cold]
    fn take_slow(&self, preferred: usize, keep_waiting: &dyn Fn()) -> usize {
        let ticket = Arc::new(Ticket::default());
        {
            let mut queue = self.queue.lock().unwrap_or_else(PoisonError::into_inner);
            self.nr_waiting.fetch_add(1, Ordering::Relaxed);
            // ORDER: pairs with the fence in `give`; forbids that both miss each other (module table).
            fence(Ordering::SeqCst);
            if queue.is_empty()
                && let Some(cpu) = self.try_take(preferred)
            {
                self.nr_waiting.fetch_sub(1, Ordering::Relaxed);
                return cpu;
            }
            queue.push_back(Arc::clone(&ticket));
        }
        self.sleep(&ticket, keep_waiting)
    }

    fn sleep(&self, ticket: &Arc<Ticket>, keep_waiting: &dyn Fn()) -> usize {
        let queued = Queued { slots: self, ticket };
        loop {
            if let Some(cpu) = ticket.slot() {
                core::mem::forget(queued);
                return cpu;
            }
            keep_waiting();
            futex::wait(&ticket.0, 0, futex::LOOK_UP_NS);
        }
    }

    fn try_take(&self, preferred: usize) -> Option<usize> {
        let all = (0..self.len()).map(|step| (preferred + step) % self.len());
        all.into_iter().find(|&cpu| {
            let state = &self.slots[cpu].state;
            // ORDER: Acquire pairs with the Release in `give`: the last owner's cells are seen.
            state.load(Ordering::Relaxed) == FREE
                && state.compare_exchange(FREE, KERNEL, Ordering::Acquire, Ordering::Relaxed).is_ok()
        })
    }

    /// Gives a slot up.
    pub(super) fn give(&self, cpu: usize) {
        if !(self.is_awaited() && self.hand_over(cpu)) {
            self.free(cpu);
        }
    }

    /// Frees a slot for which nobody was seen to wait, and looks again.
    fn free(&self, cpu: usize) {
        // ORDER: Release pairs with the Acquire in `try_take`.
        self.slots[cpu].state.store(FREE, Ordering::Release);
        // ORDER: pairs with the fence in `take_slow`; forbids that both miss each other (module table).
        fence(Ordering::SeqCst);
        while self.is_awaited()
            && let Some(free) = self.try_take(cpu)
        {
            if !self.hand_over(free) {
                // ORDER: as above: somebody may have come while this slot looked owned.
                self.slots[free].state.store(FREE, Ordering::Release);
                fence(Ordering::SeqCst);
            }
        }
    }

    /// Makes the first in line the owner of an owned slot; says whether there was one.
    fn hand_over(&self, cpu: usize) -> bool {
        let first = {
            let mut queue = self.queue.lock().unwrap_or_else(PoisonError::into_inner);
            let first = queue.pop_front();
            if first.is_some() {
                self.nr_waiting.fetch_sub(1, Ordering::Relaxed);
            }
            first
        };
        let Some(ticket) = first else { return false };
        self.slots[cpu].state.store(KERNEL, Ordering::Relaxed);
        // ORDER: Release pairs with the Acquire in `sleep`.
        ticket.0.store(cpu as u32 + 1, Ordering::Release);
        futex::wake(&ticket.0, 1);
        true
    }
}

/// A waiter in line, dropped by a panic of its wait alone.
struct Queued<'a> {
    slots: &'a Slots,
    ticket: &'a Arc<Ticket>,
}

impl Drop for Queued<'_> {
    fn drop(&mut self) {
        let mut queue = self.slots.queue.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(place) = queue.iter().position(|ticket| Arc::ptr_eq(ticket, self.ticket)) {
            queue.remove(place);
            self.slots.nr_waiting.fetch_sub(1, Ordering::Relaxed);
            return;
        }
        drop(queue);
        // Who took the ticket out is about to put a slot in, and waits for nothing on the way.
        let cpu = loop {
            match self.ticket.slot() {
                Some(cpu) => break cpu,
                None => std::thread::yield_now(),
            }
        };
        self.slots.give(cpu);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::cell::Cell;
    use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
    use std::time::{Duration, Instant};
    use std::vec::Vec;

    /// Waits for a slot and fails: `before` runs once, when the ticket is in line.
    fn fail_in_line(slots: &Slots, before: impl Fn()) {
        let fail = || {
            before();
            resume_unwind(Box::new("the wait fails"));
        };
        assert!(catch_unwind(AssertUnwindSafe(|| slots.take(0, &fail))).is_err());
    }

    #[test]
    fn a_waiter_that_fails_leaves_the_line() {
        let slots = Slots::new(1);
        let cpu = slots.take(0, &|| ());
        fail_in_line(&slots, || assert!(slots.is_awaited()));
        assert!(!slots.is_awaited());
        slots.give(cpu);
        assert_eq!(slots.take(0, &|| panic!("the slot is lost")), cpu);
    }

    #[test]
    fn a_waiter_that_fails_with_a_slot_gives_it_up() {
        let slots = Slots::new(1);
        let owned = Cell::new(Some(slots.take(0, &|| ())));
        fail_in_line(&slots, || slots.give(owned.take().expect("asked once")));
        assert!(!slots.is_awaited());
        assert_eq!(slots.take(0, &|| panic!("the slot is lost")), 0);
    }

    #[test]
    fn a_waiter_that_the_leaver_did_not_see_at_first_gets_the_slot() {
        let slots = Slots::new(2);
        let owned: Vec<_> = (0..2).map(|_| Cell::new(Some(slots.take(0, &|| ())))).collect();
        for next in &owned {
            // The leaver looked before we came, and goes on now that we are in line.
            let free = || slots.free(next.take().expect("a slot that was freed is lost"));
            let cpu = slots.take(0, &free);
            assert!(cpu < 2 && !slots.is_awaited());
            assert_eq!(slots.try_take(0), None, "a slot has two owners");
        }
    }

    /// One thread gives the only slot up at the moment at which the other begins to wait for it, and never comes back.
    #[test]
    fn a_slot_that_is_given_up_beside_a_new_waiter_is_found() {
        const ROUNDS: usize = if cfg!(miri) { 50 } else { 10_000 };
        // On a busy machine a round takes as long as it takes to get a CPU twice.
        const LONGEST: Duration = Duration::from_secs(1);
        const END: usize = usize::MAX;
        let slots = Slots::new(1);
        let (round, taken) = (AtomicUsize::new(0), AtomicUsize::new(0));
        let until_not = |word: &AtomicUsize, value: usize| {
            let begin = Instant::now();
            loop {
                match word.load(Ordering::Acquire) {
                    now if now != value => return now,
                    // It may need this CPU.
                    _ => std::thread::yield_now(),
                }
                assert!(begin.elapsed().as_secs() < 30, "after {value}: the other thread waits for the slot");
            }
        };
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let mut number = until_not(&round, 0);
                while number != END {
                    (0..number % 64).for_each(|_| core::hint::spin_loop());
                    let begin = Instant::now();
                    let keep_waiting = || assert!(begin.elapsed().as_secs() < 20, "round {number}: the slot is lost");
                    assert_eq!(slots.take(0, &keep_waiting), 0);
                    slots.give(0);
                    taken.store(number, Ordering::Release);
                    number = until_not(&round, number);
                }
            });
            let begin = Instant::now();
            for number in (1..=ROUNDS).take_while(|_| begin.elapsed() < LONGEST) {
                let cpu = slots.take(0, &|| ());
                round.store(number, Ordering::Release);
                (0..number / 64 % 64).for_each(|_| core::hint::spin_loop());
                slots.give(cpu);
                until_not(&taken, number - 1);
            }
            round.store(END, Ordering::Release);
        });
    }

    #[test]
    fn never_more_owners_than_slots_and_everyone_gets_a_turn() {
        const TURNS: usize = if cfg!(miri) { 100 } else { 2000 };
        let slots = Slots::new(2);
        let (inside, turns) = (AtomicUsize::new(0), AtomicUsize::new(0));
        std::thread::scope(|scope| {
            let threads: Vec<_> = (0..6)
                .map(|_| {
                    scope.spawn(|| {
                        for _ in 0..TURNS {
                            let cpu = slots.take(0, &|| ());
                            assert!(inside.fetch_add(1, Ordering::SeqCst) < 2);
                            turns.fetch_add(1, Ordering::Relaxed);
                            inside.fetch_sub(1, Ordering::SeqCst);
                            slots.give(cpu);
                        }
                    })
                })
                .collect();
            threads.into_iter().for_each(|thread| thread.join().expect("a worker failed"));
        });
        assert_eq!(turns.load(Ordering::Relaxed), 6 * TURNS);
        assert!(!slots.is_awaited());
    }
}
