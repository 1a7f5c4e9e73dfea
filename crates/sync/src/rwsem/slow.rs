//! Queueing, sleeping and waking.
//!
//! # Invariants
//! * I1 outside the queue's lock, `WAITERS` is set if and only if the line is not empty.
//! * I2 whoever leaves the word free with `WAITERS` set, or takes a writer away from before readers, lets somebody in:
//!   itself, or (patch 9) by a spinner that is there. A reader that knocks is counted, so that it may be the one.
//! * I3 of the first in line: it is granted, or roused, or the word is not free.
//! * I4 while somebody is in line, the list's `phase` is the side that has the lock or had it last: nobody takes it
//!   then but under the queue's lock, or as a thief. [`Rules::PHASE_FAIR`] has no thieves, and serves the other side
//!   next.
//! * I5 a wait without limits ends with the lock, or by a panic of the platform's wait.
//!
//! # Race: a release while somebody goes to sleep
//! ```text
//! releaser                          waiter
//! word -= mine         (Release)    lock queue; push; set WAITERS
//! WAITERS? lock queue               word free? then take it, or let somebody in
//!   first in line: grant or rouse   unlock queue
//!   unlock queue                    park while WAITING
//! wake those
//! ```
//! Both change the word: the release comes first, and then the waiter finds it free; or WAITERS does, and then the
//! releaser finds it and comes for the queue's lock. Forbidden: a free lock with a sleeper that nobody comes for.
//! Models: `tests/models/rwsem.rs`.
//!
//! # Liveness
//! Those in line are served in order. Writers that steal may overtake them
//! [`Generation::patience`](super::Generation::patience) times in a row; then the word admits no thief until the first
//! in line had it. So the n-th in line gets the lock within n * (patience + 1) tenures, and a spinner gets in line
//! after a time (see `spin`). Under [`Rules::HANDOFF`] time takes the place of the count: the first in line shuts the
//! door when it has waited long enough and finds the lock taken again. Under [`Rules::PHASE_FAIR`] a reader waits for
//! the readers inside and for one writer, the n-th writer for n writers and the phases of readers between them.

use super::body::{Rwsem, WaitLock};
use super::limits::{Ended, WaitLimits};
use super::series::{Patches, Rules};
use super::waiters::{Place, WaitList, Waiter, Wake};
use super::word::{READER, SHUT, WAITERS, WRITER, Word};
use crate::watch::Waiting;
use crate::{Side, SpinMutexGuard};
use faultless_platform::{Atomic, AtomicInteger, Ordering, Processor};

type Line<'a, P> = SpinMutexGuard<'a, P, WaitList<P>, WaitLock>;

impl<P: Processor> Rwsem<P> {
    #[cold]
    pub(super) fn read_slow(&self, before: Word, limits: &WaitLimits<'_, P>) -> Result<(), Ended> {
        if before.is_full() {
            self.refuse_reader();
        }
        if self.may_overtake_as_reader(before) {
            self.overtake_as_reader(before);
            return Ok(());
        }
        let _waiting = Waiting::<P>::begin(self.waited_name(Side::Read));
        let since_ns = self.clock();
        let waiter = Waiter::new(Side::Read, self.line_clock());
        let queued = Queued { semaphore: self, waiter: &waiter };
        if queued.as_reader() {
            queued.sleep_until_granted(limits)?;
        }
        core::mem::forget(queued);
        self.note_wait(Side::Read, since_ns);
        Ok(())
    }

    #[cold]
    pub(super) fn write_slow(&self, limits: &WaitLimits<'_, P>) -> Result<(), Ended> {
        let _waiting = Waiting::<P>::begin(self.waited_name(Side::Write));
        let since_ns = self.clock();
        if !(self.has(Patches::OPTIMISTIC_SPIN) && self.spin_for_write(limits)) {
            let waiter = Waiter::new(Side::Write, self.line_clock());
            let queued = Queued { semaphore: self, waiter: &waiter };
            if self.patience() == 0 {
                queued.as_writer_to_be_granted(limits)?;
            } else {
                queued.as_writer_that_retries(limits)?;
            }
            core::mem::forget(queued);
        }
        self.note_wait(Side::Write, since_ns);
        Ok(())
    }

    /// Takes the knock of a reader back that can't be counted.
    ///
    /// # Panics
    /// Always.
    fn refuse_reader(&self) -> ! {
        let line = self.waiters.lock();
        self.take_knock_back(Side::Read);
        drop(line);
        panic!("a semaphore has as many readers as it can count: guards were forgotten");
    }

    /// Says whether a reader that was counted in beside a line, at `before`, may stay: no writer has the lock, the door
    /// is open, and a writer was inside since the last readers.
    ///
    /// Linux also lets a reader stay if it is the only one. Then readers enter alone, one after the other, and the
    /// first in line wakes up for nothing until it may shut the door: with 100 readers to a writer, 10 us each,
    /// throughput fell to a ninth.
    fn may_overtake_as_reader(&self, before: Word) -> bool {
        let is_open = self.follows(Rules::HANDOFF) && !before.has_writer() && !before.is_shut();
        is_open && !self.look_at_owner().is_readers()
    }

    /// Goes in ahead of the line, with the readers at its front.
    fn overtake_as_reader(&self, before: Word) {
        self.note_readers();
        if before.has_readers() {
            return;
        }
        let (mut line, mut wake) = (self.waiters.lock(), Wake::new());
        if line.front().map(Waiter::side) == Some(Side::Read) {
            self.admit_readers(&mut line, &mut wake, 0);
        }
        drop(line);
        wake.run();
    }

    /// Lets somebody in after a release that left waiters behind.
    #[cold]
    pub(super) fn wake(&self, left: Word) {
        if self.has(Patches::SPINNER_SPARES_WAKE) && left.may_be_stolen(self.patience()) && self.has_spinner() {
            // Who has the queue's lock may have looked at the word before our release; the spinner looks after it.
            if let Some(line) = self.waiters.try_lock() {
                self.let_in(line);
            }
            return;
        }
        self.let_in(self.waiters.lock());
    }

    /// Serves the first in line if the word allows it; wakes after the queue's lock is dropped.
    fn let_in(&self, mut line: Line<'_, P>) {
        let mut wake = Wake::new();
        match self.next_side(&line) {
            None => {}
            Some(Side::Read) => self.grant_readers(&mut line, &mut wake),
            Some(Side::Write) if self.patience() == 0 => self.grant_writer(&mut line, &mut wake),
            Some(Side::Write) => self.rouse_writer(&line, &mut wake),
        }
        drop(line);
        wake.run();
    }

    fn next_side(&self, line: &WaitList<P>) -> Option<Side> {
        if self.follows(Rules::PHASE_FAIR) { line.next_phase() } else { line.front().map(Waiter::side) }
    }

    fn grant_readers(&self, line: &mut WaitList<P>, wake: &mut Wake<P>) {
        if self.claim_for_reader() {
            self.admit_readers(line, wake, 1);
        } else {
            self.shut_if_due(line);
        }
    }

    /// Shuts the door if the first in line has waited long enough; under the queue's lock.
    fn shut_if_due(&self, line: &WaitList<P>) {
        if !self.follows(Rules::HANDOFF) || self.look().is_shut() {
            return;
        }
        let shuts_after_ns = self.generation.shuts_after_ns();
        if line.front().is_some_and(|front| P::now().saturating_sub(front.since_ns()) >= shuts_after_ns) {
            // Relaxed: nothing is handed over. Whoever has the lock finds WAITERS when it goes.
            self.word.fetch_or(SHUT, Ordering::Relaxed);
        }
    }

    /// Lets readers of the line in, of whom `nr_counted` are counted already; the caller has seen to it that a reader
    /// is counted.
    fn admit_readers(&self, line: &mut WaitList<P>, wake: &mut Wake<P>, nr_counted: u32) {
        let is_together = self.follows(Rules::HANDOFF) || self.follows(Rules::PHASE_FAIR);
        let nr_granted = if is_together { line.grant_all_readers(wake) } else { line.grant_readers(wake) };
        let others = nr_granted.wrapping_sub(nr_counted);
        self.note_readers();
        // Relaxed: a reader is counted and WAITERS is set, so that nobody else changes these bits or takes the lock.
        let fresh = self.look().fresh_patience();
        let closed = if line.is_empty() { WAITERS } else { 0 };
        let change = others.wrapping_mul(READER).wrapping_add(fresh).wrapping_sub(closed);
        if change != 0 {
            // Relaxed: the claim has taken the lock already.
            self.word.fetch_add(change, Ordering::Relaxed);
        }
    }

    /// Counts one reader in unless a writer has the lock.
    fn claim_for_reader(&self) -> bool {
        loop {
            if self.has(Patches::LOOK_BEFORE_GRANT) && self.look().has_writer() {
                return false;
            }
            // ORDER: Acquire pairs with the Release in `release`.
            if !Word(self.word.fetch_add(READER, Ordering::Acquire)).has_writer() {
                return true;
            }
            // Relaxed: nothing was read under the lock. If the writer is still there its release comes for the queue.
            if Word(self.word.fetch_sub(READER, Ordering::Relaxed)).has_writer() {
                return false;
            }
        }
    }

    fn grant_writer(&self, line: &mut WaitList<P>, wake: &mut Wake<P>) {
        let taken = Word(if line.len() > 1 { WRITER | WAITERS } else { WRITER });
        let mut word = self.look();
        while word.is_free() {
            match self.try_take(word, taken) {
                Ok(()) => return line.grant_writer(wake),
                Err(now) => word = now,
            }
        }
    }

    fn rouse_writer(&self, line: &WaitList<P>, wake: &mut Wake<P>) {
        if self.look().is_free() {
            line.rouse_front(wake);
        }
    }

    /// Takes the lock for a writer in line, whose place decides whether that is a theft; under the queue's lock.
    fn try_take_from_line(&self, line: &WaitList<P>, waiter: &Waiter<P>) -> bool {
        let is_front = line.is_front(waiter);
        let served = Word(if line.len() > 1 { WRITER | WAITERS } else { WRITER });
        let mut word = self.look();
        while word.is_free() && (is_front || word.may_be_stolen(self.patience())) {
            match self.try_take(word, if is_front { served } else { word.stolen(self.theft()) }) {
                Ok(()) => return true,
                Err(now) => word = now,
            }
        }
        false
    }

    /// Notes that the line has emptied other than by serving somebody; under the queue's lock.
    fn close_line(&self) {
        // Relaxed: nothing is handed over. One exchange, because OVERTAKEN counts only while WAITERS is set.
        self.word.fetch_and(Word::WITHOUT_LINE, Ordering::Relaxed);
    }

    /// Undoes what a reader did before it saw that it must wait; under the queue's lock.
    fn take_knock_back(&self, side: Side) {
        if side == Side::Read {
            // Relaxed: nothing was read under the lock.
            self.word.fetch_sub(READER, Ordering::Relaxed);
        }
    }

    /// Releases what somebody was granted who can't use it any more.
    fn release_granted(&self, side: Side) {
        match side {
            Side::Read => self.let_go_of_share(),
            Side::Write => self.let_go(),
        }
    }

    fn clock(&self) -> u64 {
        if self.stats.is_some() { P::now() } else { 0 }
    }

    /// Returns when somebody comes into the line, if its generation wants to know.
    fn line_clock(&self) -> u64 {
        if self.follows(Rules::HANDOFF) { P::now() } else { 0 }
    }

    fn note_wait(&self, side: Side, since_ns: u64) {
        if let Some(stats) = &self.stats {
            stats.note_wait(side, P::now().saturating_sub(since_ns));
        }
    }
}

/// A waiter's way through the line. Dropped by a panic of the wait, or if its limits end it: then it leaves the line,
/// gives back what it was granted, and takes back its knock.
struct Queued<'a, P: Processor> {
    semaphore: &'a Rwsem<P>,
    waiter: &'a Waiter<P>,
}

impl<P: Processor> Queued<'_, P> {
    /// Puts a reader in line, which was counted when it knocked; false if the lock is its own already.
    fn as_reader(&self) -> bool {
        let semaphore = self.semaphore;
        let mut line = semaphore.waiters.lock();
        let is_first = line.is_empty();
        // ORDER: Acquire pairs with the Release in `release`: the writer has gone, and as we are counted no other
        // comes.
        if is_first && !Word(semaphore.word.load(Ordering::Acquire)).has_writer() {
            semaphore.note_readers();
            return false;
        }
        if is_first {
            line.set_phase(Side::Write);
        }
        // SAFETY: the waiter outlives this value, which leaves the line before it ends.
        unsafe { line.push(self.waiter) };
        let change = if is_first { WAITERS.wrapping_sub(READER) } else { READER.wrapping_neg() };
        // Relaxed: nothing was read under the lock, and whoever lets somebody in orders it by taking the lock.
        let word = Word(semaphore.word.fetch_add(change, Ordering::Relaxed).wrapping_add(change));
        if !word.has_writer() {
            semaphore.let_in(line);
        }
        true
    }

    fn sleep_until_granted(&self, limits: &WaitLimits<'_, P>) -> Result<(), Ended> {
        while !self.waiter.is_granted() {
            self.waiter.forget_rousing();
            match self.waiter.sleep(limits) {
                // What was granted meanwhile is ours, and the wait ends well.
                Err(_) if self.leave() == Place::Served => break,
                slept => slept?,
            }
        }
        Ok(())
    }

    fn as_writer_to_be_granted(&self, limits: &WaitLimits<'_, P>) -> Result<(), Ended> {
        let line = self.push_writer();
        self.semaphore.let_in(line);
        self.sleep_until_granted(limits)
    }

    fn as_writer_that_retries(&self, limits: &WaitLimits<'_, P>) -> Result<(), Ended> {
        let mut line = self.push_writer();
        while !self.semaphore.try_take_from_line(&line, self.waiter) {
            self.semaphore.shut_if_due(&line);
            self.waiter.wait_again();
            // It may have become free meanwhile, or be free for the first in line alone.
            self.semaphore.let_in(line);
            loop {
                self.waiter.sleep(limits)?;
                if !self.waiter.is_waiting() {
                    break;
                }
            }
            line = self.semaphore.waiters.lock();
        }
        line.remove(self.waiter);
        Ok(())
    }

    fn push_writer(&self) -> Line<'_, P> {
        let mut line = self.semaphore.waiters.lock();
        let is_first = line.is_empty();
        // SAFETY: the waiter outlives this value, which leaves the line before it ends.
        unsafe { line.push(self.waiter) };
        // Relaxed: an exchange of the same word decides who is first (module table).
        let before = Word(self.semaphore.word.fetch_or(WAITERS, Ordering::Relaxed));
        if is_first {
            line.set_phase(if before.has_writer() { Side::Write } else { Side::Read });
        }
        line
    }
}

impl<P: Processor> Queued<'_, P> {
    /// Leaves the line, if the waiter stands in it, and lets those in who can go on for it; returns where it was.
    fn leave(&self) -> Place {
        let semaphore = self.semaphore;
        let mut line = semaphore.waiters.lock();
        let place = line.remove(self.waiter);
        match place {
            Place::Outside => {
                semaphore.take_knock_back(self.waiter.side());
                semaphore.let_in(line);
            }
            Place::InLine => {
                if line.is_empty() {
                    semaphore.close_line();
                }
                semaphore.let_in(line);
            }
            Place::Served => {
                drop(line);
                // Whoever took it out of the line is about to grant it, and waits for nothing on the way.
                P::spin_until(|| self.waiter.is_granted());
            }
            Place::Left => {}
        }
        place
    }
}

impl<P: Processor> Drop for Queued<'_, P> {
    fn drop(&mut self) {
        if self.leave() == Place::Served {
            self.semaphore.release_granted(self.waiter.side());
        }
    }
}

#[cfg(test)]
mod tests {
    extern crate std;

    use super::*;
    use crate::{Completion, Generation, RwSemaphore};
    use faultless_platform::Threads;
    use faultless_platform::native::{Machine, Native};
    use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
    use std::sync::Mutex;
    use std::time::Duration;
    use std::vec::Vec;

    /// Has `first` take the lock, and then the others come into its line one after the other; returns in which order
    /// they had it.
    fn order_of(generation: Generation, first: Side, others: [Side; 2]) -> Vec<Side> {
        let (machine, lock) = (Machine::new(3), Rwsem::<Native>::of(generation));
        let (is_held, order) = (Completion::<Native>::new(), Mutex::new(Vec::new()));
        let had = |side: Side| order.lock().expect("no panic").push(side);
        let has_line = |len| lock.waiters.lock().len() == len;
        let have = |side: Side, what: &dyn Fn()| match side {
            Side::Read => {
                let _read = lock.read();
                what();
            }
            Side::Write => {
                let _write = lock.write();
                what();
            }
        };
        Native::run(&machine, 3, &|thread| {
            Native::enter();
            match thread {
                0 => have(first, &|| {
                    is_held.set();
                    while !has_line(2) {
                        std::thread::yield_now();
                    }
                }),
                _ => {
                    is_held.wait();
                    while !has_line(thread as u32 - 1) {
                        std::thread::yield_now();
                    }
                    have(others[thread - 1], &|| had(others[thread - 1]));
                }
            }
            Native::leave();
        });
        order.into_inner().expect("no panic")
    }

    #[test]
    fn phases_take_turns_whoever_came_first() {
        use Side::{Read, Write};
        let fair = |first, others| order_of(Generation::PHASE_FAIR, first, others);
        assert_eq!(fair(Write, [Write, Read]), [Read, Write]);
        assert_eq!(fair(Read, [Write, Read]), [Write, Read]);
        assert_eq!(order_of(Generation::RWSEM_2012, Write, [Write, Read]), [Write, Read]);
    }

    /// A reader finds a writer in line and the lock free, as between a release and the sleeper's waking.
    fn reads_ahead(generation: Generation, change: u32) -> bool {
        let lock = Rwsem::<Native>::of(generation);
        lock.word.fetch_or(WAITERS | change, Ordering::Relaxed);
        lock.may_overtake_as_reader(lock.look())
    }

    #[test]
    fn a_reader_goes_ahead_after_a_writer_while_the_door_is_open() {
        assert!(reads_ahead(Generation::HANDOFF, 0) && !reads_ahead(Generation::HANDOFF, SHUT));
        assert!(!reads_ahead(Generation::HANDOFF, WRITER) && !reads_ahead(Generation::RWSEM_V8, 0));
        assert!(reads_ahead(Generation::HANDOFF, READER), "beside a reader that came after the same writer");
        let lock = Rwsem::<Native>::of(Generation::HANDOFF);
        drop(lock.read());
        assert!(lock.look_at_owner().is_readers() && !lock.may_overtake_as_reader(lock.look()), "after readers");
        drop(lock.write());
        assert!(lock.may_overtake_as_reader(lock.look()), "after a writer");
    }

    /// The first in line sleeps while the lock is taken again and again; from 4 ms on nobody else may take it.
    #[test]
    fn the_door_is_shut_after_four_milliseconds() {
        let (machine, lock) = (Machine::new(2), Rwsem::<Native>::of(Generation::HANDOFF));
        let (is_held, turns) = (Completion::<Native>::new(), Mutex::new(Vec::new()));
        let since_ns = <Native as Processor>::AtomicU64::new(0);
        Native::run(&machine, 2, &|thread| {
            Native::enter();
            if thread == 0 {
                lock.write_lock();
                is_held.set();
                while !lock.is_contended() {
                    std::thread::yield_now();
                }
                while !lock.look().is_shut() && lock.is_contended() {
                    // SAFETY: taken above, or at the end of the last round.
                    unsafe { lock.write_unlock() };
                    lock.write_lock();
                }
                turns.lock().expect("no panic").push((lock.look().is_shut(), Native::now()));
                // SAFETY: as above.
                unsafe { lock.write_unlock() };
                // The other one's turn comes before ours.
                drop(lock.write());
            } else {
                is_held.wait();
                since_ns.store(Native::now(), Ordering::Relaxed);
                drop(lock.write());
            }
            Native::leave();
        });
        let (is_shut, now_ns) = turns.into_inner().expect("no panic")[0];
        let after_ns = now_ns - since_ns.load(Ordering::Relaxed);
        assert!(!is_shut || after_ns >= 4_000_000, "shut after {after_ns} ns");
        assert!(!lock.is_locked() && !lock.is_contended());
    }

    /// A reader's wait for the queue's lock ends by a panic: it has knocked, and is not in line yet.
    #[test]
    fn a_panic_before_the_line_takes_the_knock_back() {
        let (machine, lock, is_held) =
            (Machine::new(3), Rwsem::<Native>::of(Generation::RWSEM_2012), Completion::<Native>::new());
        let result = catch_unwind(AssertUnwindSafe(|| {
            Native::run(&machine, 3, &|thread| {
                Native::enter();
                match thread {
                    0 => {
                        Native::spin_until(|| lock.look().0 >= READER);
                        resume_unwind(std::boxed::Box::new("thread 0 fails"));
                    }
                    1 => {
                        lock.write_lock();
                        let line = lock.waiters.lock();
                        is_held.set();
                        Native::spin_until_deadline(Native::now() + 1_000_000_000, || lock.look().0 >= READER);
                        // Not through the platform: this wait outlives the failure.
                        std::thread::sleep(Duration::from_millis(50));
                        drop(line);
                    }
                    _ => {
                        is_held.wait();
                        let _ = lock.read_lock();
                    }
                }
            });
        }));
        assert!(result.is_err());
        assert!(lock.look() == Word(WRITER), "something but the writer is left in the word");
    }
}
