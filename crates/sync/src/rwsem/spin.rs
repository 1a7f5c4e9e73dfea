//! Waiting awake: a writer spins while the owner runs, in the hope of getting the lock without a sleep.
//!
//! # Guarantee
//! One spinner at a time, at the head of an MCS queue, looks at the word. A writer begins to spin only beside a writer
//! that runs (under hand-off and [`Rules::SPINS_FOR_READERS`] beside readers, too, but see `caution`); once it spins it
//! goes on while readers have the lock (under hand-off for some ten microseconds). It gives up when the owner does not
//! run, when its CPU is wanted, or when it has been at the head for [`PATIENCE_NS`]: readers that come again and again,
//! or a thread that takes the lock again and again, are too quick for a spinner. Where nobody knows whether the owner
//! runs, that is 20 us. Then it goes to the end of the line like anybody else.
//!
//! # Race: a release that leaves the waking to a spinner (patch 9)
//! ```text
//! releaser                            spinner
//! word -= mine                        leaves the MCS queue without the lock
//! fence Acquire                       fence Release
//! a spinner in the MCS queue?         sets WAITERS in the word, under the line's lock; looks
//! then, if the line is locked, done
//! ```
//! Both change the word. The release comes first: the spinner finds the lock free. Or WAITERS does: then the releaser,
//! by the fences, finds no spinner. Forbidden: the releaser sees the spinner and the spinner, giving up, sees the lock
//! held. So the spinner takes the lock, awake or from the line, or finds it free for the first in line, whom it rouses.
//! The releaser does so itself when no thief may take the lock any more. Model:
//! `a_spinner_that_gives_way_is_not_forgotten` in `tests/models/rwsem.rs`.

use super::body::Rwsem;
use super::caution::Ending;
use super::limits::WaitLimits;
use super::series::{Patches, Rules};
use crate::give_way::SLICE_NS;
use crate::mcs::FoundEmpty;
use faultless_platform::mutant;
use faultless_platform::{Ordering, Processor, ThreadToken};

/// How long a spinner stays at the head: a tick of a kernel's clock, after which the original's would be rescheduled.
const PATIENCE_NS: u64 = 1_000_000;

/// The same, if nobody knows whether the owner runs: about what a sleep and its wake-up cost.
const UNKNOWN_PATIENCE_NS: u64 = 20_000;
/// How long a spinner waits for readers under hand-off, and how much longer for each of them.
const FOR_READERS_NS: u64 = 10_000;
const FOR_EACH_READER_NS: u64 = 500;
/// The longest of those waits.
const FOR_MANY_READERS_NS: u64 = 25_000;

impl<P: Processor> Rwsem<P> {
    /// Tries to take the lock awake.
    pub(super) fn spin_for_write(&self, limits: &WaitLimits<'_, P>) -> bool {
        let is_worth = || self.is_worth_spinning() && limits.ended().is_none();
        let found_empty = if self.has(Patches::LEAN_MCS) { FoundEmpty::Goes } else { FoundEmpty::NotesIt };
        let is_taken = self.may_begin_to_spin()
            && is_worth()
            && self.spinners.lock_while_as(self.aside(), found_empty, is_worth, || self.spin_at_head(is_worth))
                == Some(true);
        if self.has(Patches::SPINNER_SPARES_WAKE) && !is_taken {
            // ORDER: Release, with the exchange in `push_writer`, pairs with the fence in `has_spinner`; forbids that a
            // release is seen by nobody (module table).
            P::fence(Ordering::Release);
        }
        is_taken
    }

    /// Says whether a spinner is there to take what was just released.
    pub(super) fn has_spinner(&self) -> bool {
        // ORDER: Acquire, with the exchange in `release`, pairs with the fence in `spin_for_write`; forbids that a
        // release is seen by nobody (module table).
        P::fence(Ordering::Acquire);
        self.spinners.is_occupied()
    }

    fn spin_at_head(&self, is_worth: impl Fn() -> bool) -> bool {
        let mut now_ns = P::now();
        let begin_ns = now_ns;
        let mut readers_end_ns = None;
        while !self.try_steal() {
            if now_ns - begin_ns >= self.spins_for_ns()
                || !is_worth()
                || self.is_tired_of_readers(&mut readers_end_ns, now_ns)
            {
                if readers_end_ns.is_some() {
                    self.note_wait_for_readers(Ending::InVain);
                }
                return false;
            }
            P::spin_until_deadline(now_ns + SLICE_NS, || self.look().may_be_stolen(self.patience()));
            now_ns = P::now();
        }
        if readers_end_ns.is_some() {
            self.note_wait_for_readers(Ending::Taken);
        }
        true
    }

    /// Says whether readers have had the lock for so long that neither we nor others should spin; `end_ns` is when that
    /// is.
    fn is_tired_of_readers(&self, end_ns: &mut Option<u64>, now_ns: u64) -> bool {
        let word = self.look();
        if !self.follows(Rules::HANDOFF) || !word.is_held_by_readers() {
            *end_ns = None;
            return false;
        }
        let nr_readers = u64::from(word.nr_readers());
        let wait_ns = (FOR_READERS_NS + nr_readers * FOR_EACH_READER_NS).min(FOR_MANY_READERS_NS);
        let is_tired = now_ns >= *end_ns.get_or_insert(now_ns + wait_ns);
        if is_tired {
            self.forbid_spinning();
        }
        is_tired
    }

    /// Returns how long a spinner may be at the head, by what is known of the owner.
    fn spins_for_ns(&self) -> u64 {
        let writer = self.look_at_owner().writer();
        if writer == ThreadToken::NONE || P::is_known(writer) { PATIENCE_NS } else { UNKNOWN_PATIENCE_NS }
    }

    fn try_steal(&self) -> bool {
        let mut word = self.look();
        while word.may_be_stolen(self.patience()) {
            match self.try_take(word, word.stolen(self.theft())) {
                Ok(()) => return true,
                Err(now) => word = now,
            }
        }
        false
    }

    fn is_worth_spinning(&self) -> bool {
        let owner = self.look_at_owner();
        if owner.forbids_spinning() || P::should_yield() {
            return false;
        }
        if self.follows(Rules::HANDOFF) && owner.is_readers() {
            return true;
        }
        let writer = owner.writer();
        writer == ThreadToken::NONE || mutant!(OwnerTrusted, P::is_running(writer) => true)
    }

    /// Says whether a writer that comes may join the spinners, if it is worth it.
    fn may_begin_to_spin(&self) -> bool {
        if self.is_cautious() {
            return false;
        }
        let minds_no_readers = self.follows(Rules::HANDOFF) || self.follows(Rules::SPINS_FOR_READERS);
        minds_no_readers || self.look_at_owner().writer() != ThreadToken::NONE
    }
}

#[cfg(test)]
mod tests {
    use super::{FOR_EACH_READER_NS, FOR_MANY_READERS_NS, FOR_READERS_NS};
    use crate::{Generation, RwSemaphore, Rwsem};
    use faultless_platform::native::{Machine, Native};
    use faultless_platform::{Processor, Threads};

    #[test]
    fn it_is_worth_spinning_while_the_owner_runs() {
        for generation in [Generation::RWSEM_V8, Generation::HANDOFF] {
            let lock = Rwsem::<Native>::of(generation);
            let machine = Machine::new(2);
            machine.attach(|| {
                assert!(lock.is_worth_spinning(), "nobody has it");
                let write = lock.write();
                assert!(lock.is_worth_spinning(), "a thread that runs");
                drop(write);
                Native::run(&machine, 1, &|_| {
                    Native::enter();
                    core::mem::forget(lock.write());
                    Native::leave();
                });
                assert!(!lock.is_worth_spinning(), "one that has ended");
            });
        }
    }

    #[test]
    fn a_spinner_is_tired_of_readers_after_so_long_and_says_so() {
        let lock = Rwsem::<Native>::of(Generation::HANDOFF);
        let (mut end_ns, begin_ns) = (None, 1_000_000);
        Machine::new(1).attach(|| {
            assert!(!lock.is_tired_of_readers(&mut end_ns, begin_ns) && end_ns.is_none(), "nobody has it");
            let readers = [lock.read(), lock.read()];
            let wait_ns = FOR_READERS_NS + 2 * FOR_EACH_READER_NS;
            for now_ns in [begin_ns, begin_ns + 1, begin_ns + wait_ns - 1] {
                assert!(!lock.is_tired_of_readers(&mut end_ns, now_ns), "{now_ns}");
            }
            assert!(lock.is_worth_spinning());
            assert!(lock.is_tired_of_readers(&mut end_ns, begin_ns + wait_ns));
            assert!(!lock.is_worth_spinning(), "nor does anybody else spin");
            drop(readers);
            // As the last of them does if others wait.
            lock.allow_spinning();
            assert!(lock.is_worth_spinning());
            let readers: [_; 40] = core::array::from_fn(|_| lock.read());
            end_ns = None;
            assert!(!lock.is_tired_of_readers(&mut end_ns, begin_ns));
            assert_eq!(end_ns, Some(begin_ns + FOR_MANY_READERS_NS));
            drop(readers);
        });
    }
}
