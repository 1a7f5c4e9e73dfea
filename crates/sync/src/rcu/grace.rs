//! RCU's grace periods, driven by whoever wants one to end.
//!
//! # Guarantee
//! A grace period has ended when every CPU was seen outside the section that it was in when the grace period began (I3 of
//! the module above).

use super::domain::{Driven, Periods};
use super::numbers::Numbers;
use super::reader::{Reader, ReaderWord};
use crate::{PerCpu, SpinMutex, lock_class};
use alloc::boxed::Box;
use faultless_platform::{CachePadded, Processor};

lock_class! {
    /// The lock of the grace period at work.
    ScanLock = "rcu_scan"
}

pub(super) struct Grace<P: Processor> {
    pub(super) readers: PerCpu<P, Reader<P>>,
    /// Read by everybody who waits: apart from the lock.
    numbers: CachePadded<Numbers<P>>,
    scan: CachePadded<SpinMutex<P, Scan, ScanLock>>,
}

/// The grace period at work: the words at its start, and the first CPU that is not known to have passed.
struct Scan {
    words: Box<[Option<ReaderWord>]>,
    first_left: usize,
}

/// How far a grace period has come.
enum Progress {
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
            readers: PerCpu::new(nr_cpus, |_| Reader::new()),
            numbers: CachePadded::new(Numbers::new()),
            scan: CachePadded::new(SpinMutex::classed(Scan {
                words: (0..nr_cpus).map(|_| None).collect(),
                first_left: 0,
            })),
        }
    }

    fn advance(&self, ticket: u64) -> Progress {
        while !self.numbers.is_complete(ticket) {
            // A look leaves the driver its line; a try would take it.
            if self.scan.is_locked() {
                return Progress::Busy;
            }
            let Some(mut scan) = self.scan.try_lock() else { return Progress::Busy };
            if !self.numbers.is_at_work() {
                self.numbers.begin();
                scan.look(&self.readers);
            }
            if let Some((cpu, word)) = scan.first_inside(&self.readers) {
                return Progress::Blocked { cpu, word };
            }
            self.numbers.end();
        }
        Progress::Complete
    }
}

impl<P: Processor> Periods<P> for Grace<P> {
    fn numbers(&self) -> &Numbers<P> {
        &self.numbers
    }

    fn drive(&self, ticket: u64) -> Driven {
        match self.advance(ticket) {
            Progress::Complete => Driven::Complete,
            Progress::Blocked { .. } => Driven::Blocked,
            Progress::Busy => Driven::Busy,
        }
    }

    fn drive_until(&self, ticket: u64, deadline_ns: u64) -> bool {
        match self.advance(ticket) {
            Progress::Complete => return true,
            Progress::Blocked { cpu, word } => {
                P::spin_until_deadline(deadline_ns, || self.readers.get(cpu).has_passed(word));
            }
            Progress::Busy => {
                P::spin_until_deadline(deadline_ns, || !self.scan.is_locked());
            }
        }
        false
    }
}

impl Scan {
    /// Looks at every CPU, at the beginning of a grace period.
    fn look<P: Processor>(&mut self, readers: &PerCpu<P, Reader<P>>) {
        for (word, reader) in self.words.iter_mut().zip(readers.iter()) {
            *word = Some(reader.look());
        }
        self.first_left = 0;
    }

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
