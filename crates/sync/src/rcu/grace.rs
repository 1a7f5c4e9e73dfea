//! Grace periods: numbered, one at a time, driven by whoever wants one to end.
//!
//! # Guarantee
//! `drive(ticket)` says complete only after a grace period that started after the ticket was drawn (I3 of the module above).
//!
//! # Words
//! `completed <= started <= completed + 1`; both are written under the scan's lock alone.

use super::reader::{Reader, ReaderWord};
use crate::{PerCpu, SpinMutex, lock_class};
use alloc::boxed::Box;
use faultless_platform::{Atomic, Ordering, Processor};

lock_class! {
    /// The lock of the grace period at work.
    ScanLock = "rcu_scan"
}

pub(super) struct Grace<P: Processor> {
    started: P::AtomicU64,
    completed: P::AtomicU64,
    scan: SpinMutex<P, Scan, ScanLock>,
}

/// The grace period at work: the words at its start, and the first CPU that is not known to have passed.
struct Scan {
    words: Box<[Option<ReaderWord>]>,
    first_left: usize,
}

/// How far a grace period has come.
pub(super) enum Progress {
    /// It has ended.
    Complete,
    /// This CPU has not left the section that it was in, which showed this word.
    Blocked { cpu: usize, word: ReaderWord },
    /// Another CPU drives.
    Busy,
}

impl<P: Processor> Grace<P> {
    pub(super) fn new(nr_cpus: usize) -> Self {
        Self {
            started: P::AtomicU64::new(0),
            completed: P::AtomicU64::new(0),
            scan: SpinMutex::classed(Scan { words: (0..nr_cpus).map(|_| None).collect(), first_left: 0 }),
        }
    }

    /// Returns the number of a grace period that starts after all that the caller has done.
    pub(super) fn ticket(&self) -> u64 {
        // ORDER: pairs with the fences in `start` and `Reader::enter`: the caller's removals come before the number is read.
        P::fence(Ordering::SeqCst);
        // The fence orders it; an old value means an earlier fence (table of the module above).
        // ORDER: Acquire pairs with the Release in `start`: a ticket's drawer sees all that completed before it.
        self.started.load(Ordering::Acquire) + 1
    }

    /// Says whether the ticket's grace period has ended; what its sections did is seen by the caller.
    pub(super) fn is_complete(&self, ticket: u64) -> bool {
        // ORDER: Acquire pairs with the Release in `drive`.
        self.completed.load(Ordering::Acquire) >= ticket
    }

    /// Says whether somebody drives now: a hint.
    pub(super) fn is_busy(&self) -> bool {
        self.scan.is_locked()
    }

    /// Brings grace periods on as far as they go without waiting, up to the ticket's.
    pub(super) fn drive(&self, readers: &PerCpu<P, Reader<P>>, ticket: u64) -> Progress {
        while !self.is_complete(ticket) {
            let Some(mut scan) = self.scan.try_lock() else { return Progress::Busy };
            // Relaxed: both are written under the lock that we hold.
            let (started, completed) = (self.started.load(Ordering::Relaxed), self.completed.load(Ordering::Relaxed));
            if started == completed {
                self.start(&mut scan, readers, started + 1);
            }
            if let Some((cpu, word)) = scan.first_inside(readers) {
                return Progress::Blocked { cpu, word };
            }
            // ORDER: Release pairs with the Acquire in `is_complete`: it hands on that the sections are over.
            self.completed.store(self.started.load(Ordering::Relaxed), Ordering::Release);
        }
        Progress::Complete
    }

    fn start(&self, scan: &mut Scan, readers: &PerCpu<P, Reader<P>>, number: u64) {
        // ORDER: Release pairs with the Acquire in `ticket`.
        self.started.store(number, Ordering::Release);
        // ORDER: pairs with the fences in `Reader::enter` and `ticket`; forbids found and freed (table of the module above).
        P::fence(Ordering::SeqCst);
        for (word, reader) in scan.words.iter_mut().zip(readers.iter()) {
            *word = Some(reader.look());
        }
        scan.first_left = 0;
    }
}

impl Scan {
    /// Goes past the CPUs that have left their section; returns the first that has not.
    fn first_inside<P: Processor>(&mut self, readers: &PerCpu<P, Reader<P>>) -> Option<(usize, ReaderWord)> {
        while let Some(Some(word)) = self.words.get(self.first_left).copied() {
            if !readers.get(self.first_left).has_passed(word) {
                return Some((self.first_left, word));
            }
            self.first_left += 1;
        }
        None
    }
}
