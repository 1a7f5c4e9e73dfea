//! Grace periods by number, one at a time; a copy of the number for each group of CPUs.
//!
//! # Guarantee
//! A ticket's number is that of a grace period that begins after the ticket was drawn. A CPU reads the word of its
//! group alone, so that a grace period takes that line away from few.
//!
//! # Word first
//! Bits 2..: how many grace periods are complete. Bits 0..2: whether the next one has not begun (0), has begun (1), or
//! has begun as all groups know, so that CPUs may be looked at (2). All words are written by one CPU at a time.
//!
//! # Race: a ticket is drawn while words are written
//! ```text
//! ticket                            begin
//! make it unreachable               each group's word = begun
//! fence SeqCst                      fence SeqCst
//! read the own group's word         each group's word = may be looked at; words of CPUs are read
//! ```
//! Of the two fences one comes first. The ticket's: the grace period that begins looks at CPUs after it, and will do.
//! The other: the ticket's reader sees its group's word, and waits for the grace period behind. Forbidden: a CPU was
//! looked at for grace period n before something was made unreachable that waits for n; therefore nobody looks before
//! the fence.

use alloc::boxed::Box;
use faultless_platform::{Atomic, CachePadded, Ordering, Processor};

/// What of a word tells how far the grace period at work is.
const STAGE: u64 = 3;
const BEGUN: u64 = 1;
const OPEN: u64 = 2;
const COMPLETE: u64 = 4;

pub(crate) struct Numbers<P: Processor> {
    /// A word for each group.
    words: Box<[CachePadded<P::AtomicU64>]>,
    /// A group has 1 << `group_bits` CPUs.
    group_bits: u32,
}

impl<P: Processor> Numbers<P> {
    pub(crate) fn new(nr_cpus: usize, group_bits: u32) -> Self {
        let nr_groups = nr_cpus.div_ceil(1 << group_bits).max(1);
        Self { words: (0..nr_groups).map(|_| CachePadded::new(P::AtomicU64::new(0))).collect(), group_bits }
    }

    pub(super) fn nr_groups(&self) -> usize {
        self.words.len()
    }

    /// Returns the group of the calling CPU.
    pub(super) fn group(&self) -> usize {
        P::cpu() >> self.group_bits
    }

    fn own(&self) -> &P::AtomicU64 {
        &self.words[self.group()]
    }

    /// Returns the number of a grace period that begins after all that the caller has done.
    pub(crate) fn ticket(&self) -> u64 {
        // ORDER: pairs with the fences in `begin` and of readers: the caller's removals come before the number is read.
        P::fence(Ordering::SeqCst);
        // Relaxed: the fence orders it; an old value means an earlier fence (module table).
        let word = self.own().load(Ordering::Relaxed);
        word / COMPLETE + u64::from(word & STAGE != 0) + 1
    }

    /// Says whether the ticket's grace period has ended; what its sections did is seen by the caller.
    pub(crate) fn is_complete(&self, ticket: u64) -> bool {
        self.look() / COMPLETE >= ticket
    }

    /// Returns the number of the grace period for which CPUs may be looked at.
    pub(super) fn open(&self) -> Option<u64> {
        let word = self.look();
        (word & STAGE == OPEN).then_some(word / COMPLETE + 1)
    }

    fn look(&self) -> u64 {
        // ORDER: Acquire pairs with the Release in `end`, and with the fence in `begin`: who sees a grace period open
        // looks after it.
        self.own().load(Ordering::Acquire)
    }

    /// Says whether a grace period is at work. Under the driver's lock.
    pub(crate) fn is_at_work(&self) -> bool {
        // Relaxed: written under the lock that the caller holds.
        self.own().load(Ordering::Relaxed) & STAGE != 0
    }

    /// Begins the next grace period; what the caller reads of readers afterwards tells who is inside. Under the
    /// driver's lock.
    pub(crate) fn begin(&self) {
        // Relaxed: as in `is_at_work`; the fence orders it for `ticket`, which reads nothing else by it.
        let word = self.own().load(Ordering::Relaxed) | BEGUN;
        self.words.iter().for_each(|copy| copy.store(word, Ordering::Relaxed));
        // ORDER: pairs with the fences of readers and in `ticket`; forbids found and freed (module table).
        P::fence(Ordering::SeqCst);
    }

    /// Lets others look at CPUs for the grace period that has begun. Under the driver's lock.
    pub(super) fn let_look(&self) {
        // Relaxed: the fence in `begin` stands before it, for whoever reads it with Acquire.
        let word = self.own().load(Ordering::Relaxed) & !STAGE | OPEN;
        self.words.iter().for_each(|copy| copy.store(word, Ordering::Relaxed));
    }

    /// Ends the grace period at work. Under the driver's lock.
    pub(crate) fn end(&self) {
        // Relaxed: as in `is_at_work`.
        let word = (self.own().load(Ordering::Relaxed) & !STAGE) + COMPLETE;
        // ORDER: Release pairs with the Acquire in `look`: it hands on that the sections are over.
        self.words.iter().for_each(|copy| copy.store(word, Ordering::Release));
    }
}

#[cfg(test)]
mod tests {
    extern crate std;

    use super::*;
    use faultless_platform::native::{Machine, Native};
    use std::sync::Barrier;

    #[test]
    fn a_ticket_waits_for_the_next_grace_period_that_begins() {
        Machine::new(1).attach(|| {
            let numbers = Numbers::<Native>::new(1, 3);
            for number in 1..4 {
                let seen = || (numbers.is_at_work(), numbers.open(), numbers.ticket());
                assert_eq!(seen(), (false, None, number));
                numbers.begin();
                assert_eq!(seen(), (true, None, number + 1), "what was drawn now is not looked for any more");
                numbers.let_look();
                assert_eq!(seen(), (true, Some(number), number + 1));
                assert!(numbers.is_complete(number - 1) && !numbers.is_complete(number));
                numbers.end();
                assert!(numbers.is_complete(number) && !numbers.is_complete(number + 1));
            }
        });
    }

    #[test]
    fn each_group_of_cpus_has_a_word_and_all_say_the_same() {
        for (nr_cpus, bits, nr_groups) in
            [(0, 3, 1), (1, 3, 1), (8, 3, 1), (9, 3, 2), (16, 3, 2), (17, 3, 3), (3, 0, 3)]
        {
            assert_eq!(Numbers::<Native>::new(nr_cpus, bits).nr_groups(), nr_groups, "{nr_cpus} CPUs by {bits} bits");
        }
        const NR_CPUS: usize = 4;
        let (machine, barrier) = (Machine::new(NR_CPUS), Barrier::new(NR_CPUS));
        let numbers = Numbers::<Native>::new(NR_CPUS, 1);
        let look = || {
            let cpu = Native::cpu();
            assert_eq!(numbers.group(), cpu / 2);
            for number in 1..4 {
                // One CPU drives, another one each time, and all look in between.
                let step = |act: &dyn Fn()| {
                    barrier.wait();
                    if cpu == number {
                        act();
                    }
                    barrier.wait();
                };
                let number = number as u64;
                step(&|| numbers.begin());
                assert_eq!((numbers.open(), numbers.ticket()), (None, number + 1));
                step(&|| numbers.let_look());
                assert_eq!((numbers.open(), numbers.ticket()), (Some(number), number + 1));
                step(&|| numbers.end());
                assert!(numbers.is_complete(number) && !numbers.is_complete(number + 1) && numbers.open().is_none());
            }
        };
        std::thread::scope(|scope| {
            (0..NR_CPUS).for_each(|_| _ = scope.spawn(|| machine.attach(look)));
        });
    }
}
