//! Grace periods of RCU, driven by whoever wants one to end, group by group.
//!
//! # Guarantee
//! A grace period has ended when every CPU was seen outside the section that it was in when the grace period began (I3
//! of the module above).
//!
//! # The tree
//! ```text
//!               root: how many groups are left                    one CPU begins a grace period, the one that
//!              /            |            \                        finishes the last group ends it
//!        group 0         group 1         group 2 ...             looked at by a CPU of its own, if one comes by
//!       /   |   \       /   |   \       /   |   \
//!     CPU  CPU  CPU   CPU  CPU  CPU   CPU  CPU  CPU              words of readers
//! ```
//! CPUs whose numbers are next to each other are near each other: a look within a group is cheap, and takes few lines
//! from far. After a long wait a waiter looks at the other groups too, where perhaps no CPU comes by. A machine of one
//! group has no root: whoever has the group's lock begins, looks and ends.
//!
//! # Invariants
//! * G1 a group counts itself down once for each grace period: when its last CPU was seen to have passed, under its
//!   lock.
//! * G2 a grace period begins and ends under the root's lock, which is taken with no group's lock held; of one group,
//!   under its lock.

use super::domain::{Driven, Periods, Urgency};
use super::numbers::Numbers;
use super::reader::{Reader, ReaderWord};
use crate::give_way::{SLICE_NS, give_way};
use crate::watch::Waiting;
use crate::{PerCpu, SpinMutex, lock_class};
use alloc::boxed::Box;
use core::ops::Range;
use faultless_platform::{Atomic, AtomicInteger, CachePadded, Ordering, Processor};

/// How many sections are noted before the first of them is waited for.
const SECTIONS_AT_ONCE: usize = 16;

lock_class! {
    /// The locks of groups that the grace period at work looks at.
    ScanLock = "rcu_scan"
}
lock_class! {
    /// The lock of the beginning and the end of grace periods.
    RootLock = "rcu_root"
}

lock_class! {
    /// Held by whoever scans all groups.
    HelpLock = "rcu_help"
}

pub(super) struct Grace<P: Processor> {
    pub(super) readers: PerCpu<P, Reader<P>>,
    numbers: Numbers<P>,
    root: CachePadded<SpinMutex<P, (), RootLock>>,
    /// Held by the one who looks at all groups: many at once would keep each other from it.
    help: CachePadded<SpinMutex<P, (), HelpLock>>,
    groups: Box<[CachePadded<Leaf<P>>]>,
    nr_groups_left: CachePadded<P::AtomicUsize>,
}

/// A group, and for which grace period it was through last: a hint that spares the lock.
struct Leaf<P: Processor> {
    group: SpinMutex<P, Group, ScanLock>,
    through: P::AtomicU64,
}

/// What a grace period has seen of a group: the words at its look, and the first CPU that is not known to have passed.
struct Group {
    cpus: Range<usize>,
    words: Box<[Option<ReaderWord>]>,
    number: u64,
    first_left: usize,
}

/// How far a grace period has come.
enum GraceProgress {
    /// It has ended.
    Complete,
    /// Another one may begin, or this one is to be looked at again.
    Again,
    /// This CPU has not left the section that it was in, which showed this word.
    Blocked { cpu: usize, word: ReaderWord },
    /// Another CPU looks at this group.
    GroupBusy { group: usize },
    /// Another CPU begins a grace period or ends one; or this CPU leaves the beginning to others.
    RootBusy,
    /// Another CPU looks at all groups.
    HelpBusy,
    /// The group is through this grace period; others are not, or somebody is about to end it.
    Through { number: u64 },
}

impl<P: Processor> Grace<P> {
    pub(super) fn new(nr_cpus: usize, group_bits: u32) -> Self {
        let numbers = Numbers::new(nr_cpus, group_bits);
        let group = |group: usize| {
            let cpus = group << group_bits..((group + 1) << group_bits).min(nr_cpus);
            let words = cpus.clone().map(|_| None).collect();
            let group = SpinMutex::classed(Group { cpus, words, number: 0, first_left: 0 });
            CachePadded::new(Leaf { group, through: P::AtomicU64::new(0) })
        };
        Self {
            readers: PerCpu::new(nr_cpus, |_| Reader::new()),
            groups: (0..numbers.nr_groups()).map(group).collect(),
            root: CachePadded::new(SpinMutex::classed(())),
            help: CachePadded::new(SpinMutex::classed(())),
            nr_groups_left: CachePadded::new(P::AtomicUsize::new(0)),
            numbers,
        }
    }

    /// Waits until the sections that these CPUs are in are over. The calling CPU is in none.
    #[inline]
    pub(super) fn await_sections_of(&self, cpus: impl IntoIterator<Item = usize>) {
        // ORDER: pairs with the fence in `Reader::enter`; forbids that a section misses what the caller did before, and
        // is missed here.
        P::fence(Ordering::SeqCst);
        let own = P::cpu();
        let mut cpus = cpus.into_iter().filter(|&cpu| cpu != own);
        if let Some(first) = cpus.next() {
            self.await_sections_of_others(core::iter::once(first).chain(cpus));
        }
    }

    /// As [`Grace::await_sections_of`], behind its fence.
    #[inline(never)]
    fn await_sections_of_others(&self, mut cpus: impl Iterator<Item = usize>) {
        // CPUs are looked at first and waited for afterwards: a section that begins meanwhile need not be waited for.
        let mut inside = [(0, ReaderWord::OUTSIDE); SECTIONS_AT_ONCE];
        loop {
            let looks = cpus.by_ref().map(|cpu| (cpu, self.readers.get(cpu).look()));
            let found = looks.filter(|&(cpu, seen)| !self.readers.get(cpu).has_passed(seen));
            let nr_found = inside.iter_mut().zip(found).map(|(place, found)| *place = found).count();
            inside[..nr_found].iter().for_each(|&(cpu, seen)| self.await_section(cpu, seen));
            if nr_found < SECTIONS_AT_ONCE {
                return;
            }
        }
    }

    /// Waits until a CPU has left the section that it was seen in.
    fn await_section(&self, cpu: usize, seen: ReaderWord) {
        let reader = self.readers.get(cpu);
        if reader.has_passed(seen) {
            return;
        }
        let _waiting = Waiting::<P>::begin("rcu");
        while !reader.has_passed(seen) && !P::spin_until_deadline(P::now() + SLICE_NS, || reader.has_passed(seen)) {
            self.give_way();
        }
    }

    fn advance(&self, ticket: u64, urgency: Urgency) -> GraceProgress {
        match &*self.groups {
            [only] => self.advance_one(&only.group, ticket),
            _ => self.advance_many(ticket, urgency),
        }
    }

    /// Where there is one group.
    fn advance_one(&self, only: &SpinMutex<P, Group, ScanLock>, ticket: u64) -> GraceProgress {
        while !self.numbers.is_complete(ticket) {
            // A look leaves the driver its line; a try would take it.
            if only.is_locked() {
                return GraceProgress::GroupBusy { group: 0 };
            }
            let Some(mut group) = only.try_lock() else { return GraceProgress::GroupBusy { group: 0 } };
            if !self.numbers.is_at_work() {
                self.numbers.begin();
                group.look(&self.readers);
            }
            if let Some((cpu, word)) = group.first_inside(&self.readers) {
                return GraceProgress::Blocked { cpu, word };
            }
            self.numbers.end();
        }
        GraceProgress::Complete
    }

    fn advance_many(&self, ticket: u64, urgency: Urgency) -> GraceProgress {
        while !self.numbers.is_complete(ticket) {
            let progress = match self.numbers.open() {
                Some(number) => self.look(number, urgency),
                None => self.begin(urgency),
            };
            if !matches!(progress, GraceProgress::Again) {
                return progress;
            }
        }
        GraceProgress::Complete
    }

    /// Begins a grace period, unless one is at work or others may as well.
    fn begin(&self, urgency: Urgency) -> GraceProgress {
        // A look, as above.
        if urgency == Urgency::Patient || self.root.is_locked() {
            return GraceProgress::RootBusy;
        }
        let Some(_root) = self.root.try_lock() else { return GraceProgress::RootBusy };
        if !self.numbers.is_at_work() {
            // Relaxed: nobody counts down before the grace period is open, which the fence in `begin` orders.
            self.nr_groups_left.store(self.groups.len(), Ordering::Relaxed);
            self.numbers.begin();
            self.numbers.let_look();
        }
        GraceProgress::Again
    }

    /// Looks at the own group; one who waits looks at all. Says what is in the way.
    fn look(&self, number: u64, urgency: Urgency) -> GraceProgress {
        let own = self.look_at(self.numbers.group(), number);
        if urgency != Urgency::Waiting || matches!(own, GraceProgress::Again) {
            return own;
        }
        if self.help.is_locked() {
            return GraceProgress::HelpBusy;
        }
        let Some(_help) = self.help.try_lock() else { return GraceProgress::HelpBusy };
        let mut first = own;
        for group in 0..self.groups.len() {
            match (self.look_at(group, number), &first) {
                (GraceProgress::Again, _) => return GraceProgress::Again,
                (other, GraceProgress::Through { .. }) => first = other,
                _ => {}
            }
        }
        first
    }

    /// Looks at a group; the last one that is through ends the grace period.
    fn look_at(&self, place: usize, number: u64) -> GraceProgress {
        let leaf = &self.groups[place];
        // Relaxed: a hint.
        if leaf.through.load(Ordering::Relaxed) >= number {
            return GraceProgress::Through { number };
        }
        let Some(mut group) = leaf.group.try_lock() else { return GraceProgress::GroupBusy { group: place } };
        if group.is_through(number) {
            return GraceProgress::Through { number };
        }
        if group.number < number {
            group.number = number;
            group.look(&self.readers);
        }
        if let Some((cpu, word)) = group.first_inside(&self.readers) {
            return GraceProgress::Blocked { cpu, word };
        }
        // Relaxed: as above.
        leaf.through.store(number, Ordering::Relaxed);
        drop(group);
        if !self.count_down() {
            return GraceProgress::Through { number };
        }
        let _root = self.root.lock();
        self.numbers.end();
        GraceProgress::Again
    }

    /// Counts a group that is through; says whether it was the last.
    fn count_down(&self) -> bool {
        // ORDER: AcqRel pairs with the other groups': who ends the grace period hands on that all sections are over.
        self.nr_groups_left.fetch_sub(1, Ordering::AcqRel) == 1
    }
}

impl<P: Processor> Periods<P> for Grace<P> {
    fn numbers(&self) -> &Numbers<P> {
        &self.numbers
    }

    fn give_way(&self) {
        if !self.readers.here().keeps_slot() {
            give_way::<P>();
        }
    }

    fn drive(&self, ticket: u64, urgency: Urgency) -> Driven {
        match self.advance(ticket, urgency) {
            GraceProgress::Complete => Driven::Complete,
            GraceProgress::Blocked { .. } => Driven::Blocked,
            _ => Driven::Busy,
        }
    }

    fn drive_until(&self, ticket: u64, deadline_ns: u64) -> bool {
        match self.advance(ticket, Urgency::Waiting) {
            GraceProgress::Complete => return true,
            GraceProgress::Again => {}
            GraceProgress::Blocked { cpu, word } => {
                P::spin_until_deadline(deadline_ns, || self.readers.get(cpu).has_passed(word));
            }
            GraceProgress::GroupBusy { group } => {
                P::spin_until_deadline(deadline_ns, || !self.groups[group].group.is_locked());
            }
            GraceProgress::HelpBusy => {
                P::spin_until_deadline(deadline_ns, || !self.help.is_locked());
            }
            GraceProgress::RootBusy => {
                P::spin_until_deadline(deadline_ns, || !self.root.is_locked());
            }
            GraceProgress::Through { number } => {
                P::spin_until_deadline(deadline_ns, || self.numbers.open() != Some(number));
            }
        }
        false
    }
}

impl Group {
    /// Says whether all CPUs were seen to have passed (G1); so they were, too, if the group is past that grace period.
    fn is_through(&self, number: u64) -> bool {
        self.number > number || (self.number == number && self.first_left == self.cpus.len())
    }

    /// Looks at every CPU, at the beginning of a grace period.
    fn look<P: Processor>(&mut self, readers: &PerCpu<P, Reader<P>>) {
        for (word, cpu) in self.words.iter_mut().zip(self.cpus.clone()) {
            *word = Some(readers.get(cpu).look());
        }
        self.first_left = 0;
    }

    /// Goes past the CPUs that have left their section; returns the first that has not.
    fn first_inside<P: Processor>(&mut self, readers: &PerCpu<P, Reader<P>>) -> Option<(usize, ReaderWord)> {
        while let Some(Some(word)) = self.words.get(self.first_left).copied() {
            let cpu = self.cpus.start + self.first_left;
            if !readers.get(cpu).has_passed(word) {
                return Some((cpu, word));
            }
            self.first_left += 1;
        }
        None
    }
}
