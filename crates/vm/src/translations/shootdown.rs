//! The CPUs' TLBs, and how translations are taken away from them.
//!
//! # Guarantee
//! When [`Cpus::shoot_down`] returns, no CPU can use a translation of the range that it had before: it has forgotten
//! it, or will before it next uses any. That holds for CPUs outside the VM's code too: one that computes, sleeps or
//! has no owner is not in state guest, and drains its inbox before it enters guest again (table in
//! `faultless_platform::Platform`).
//!
//! # Invariants
//! * I1 a CPU's TLB is touched by its owner only, in guest or while draining.
//! * I2 a CPU is in the set of what it walks to (`lanes`) before it walks; the sets are read after the entries were
//!   cleared.
//! * I3 a CPU that is in no set of an address has no translation of it, or is asked to forget all of the space's before
//!   it next uses any.
//! * I4 interrupts are off while an inbox is locked: the handler takes the inbox of the CPU that it interrupts, whose
//!   owner may be the one that has it locked, or holds another that the first one's owner waits for.
//!
//! # How a CPU leaves a space's sets
//! A thread that leaves the space takes its CPU out of all itself, after the CPU has forgotten the space
//! ([`Cpus::leave`]). A CPU that nobody owns any more is asked once more and then taken out by whoever asked (Linux: a
//! CPU in lazy TLB mode): of the sets that led to it, and of all if it was asked as one of the space's users.
//! ```text
//! CPU T                                   CPU S
//! T in the set? join                      clears the entry; fence; reads the set: T
//! guest: state, fence, pending?           asks T by its inbox; pending; fence; T is not in guest
//!   drain: lock, forget, unlock           lock T's inbox; the request is still there?
//!   T in the set? join, fence               ask T to forget the whole space; take T out
//! walk, access                            unlock
//! ```
//! *The set* is here the one of the address that T walks to, and that of the users.
//! S's request is still there, so T's next fence comes after S's: T finds it pending and drains, after S, and joins
//! again. Was it gone, T has been in guest since, may rely on the set as it saw it, and stays. Forbidden: T walks, and
//! is neither in the set nor asked. Model: `a_cpu_that_was_let_go_comes_back_seen` in `sync/tests/models/cpu_set.rs`;
//! explored by `faultless check schedules`; witness: `tests/native/shootdown.rs`.

use crate::addr::PageRange;
use crate::events::{Event, Events};
use crate::system::System;
use crate::translations::lanes::{Lanes, Walks};
use crate::translations::tlb::{SpaceId, Tlb};
use core::cell::UnsafeCell;
use core::ops::{Deref, DerefMut, Range};
use faultless_platform::{CpuSet, IrqOffGuard, Ordering, mutant};
use faultless_sync::{PerCpu, SpinMutex, SpinMutexGuard, lock_class};

/// Requests that an inbox holds before it asks for everything to be forgotten.
const INBOX: usize = 16;

#[derive(Clone, Copy)]
struct Request {
    space: SpaceId,
    /// Nothing means the whole space.
    range: Option<PageRange>,
    /// The CPU that asks: one request at a time.
    asker: usize,
}

impl Request {
    fn serve<P: System>(&self, tlb: &mut Tlb) {
        match self.range {
            Some(range) => tlb.invalidate(self.space, range),
            None => tlb.invalidate_space(self.space),
        }
        P::flush(self.space, self.range);
    }
}

/// The name that stands for all spaces, where a CPU's hardware is to forget everything; no space has it.
const ALL_SPACES: SpaceId = 0;

/// What others want a CPU to forget.
struct Inbox {
    requests: [Option<Request>; INBOX],
    len: usize,
    is_overflown: bool,
}

impl Inbox {
    fn push(&mut self, request: Request) {
        if self.len == INBOX {
            self.is_overflown = true;
        } else {
            self.requests[self.len] = Some(request);
            self.len += 1;
        }
    }

    fn drain_into<P: System>(&mut self, tlb: &mut Tlb) {
        if self.is_overflown {
            tlb.invalidate_all();
            P::flush(ALL_SPACES, None);
        } else {
            self.requests[..self.len].iter().flatten().for_each(|request| request.serve::<P>(tlb));
        }
        self.len = 0;
        self.is_overflown = false;
    }

    /// Makes all requests of a space one that is about all of it, if the asker's is among them: then the CPU has not
    /// drained since it was asked. Says whether it did; one that is lost in an overflow is taken for drained.
    fn widen(&mut self, space: SpaceId, asker: usize) -> bool {
        let is_of_space = |request: &Request| request.space == space;
        let mut of_space = self.requests[..self.len].iter().flatten().filter(|request| is_of_space(request));
        if self.is_overflown || !of_space.any(|request| request.asker == asker) {
            return false;
        }
        let all = core::mem::replace(&mut self.requests, [None; INBOX]);
        let others = all.into_iter().flatten().filter(|request| !is_of_space(request));
        let kept = others.chain([Request { space, range: None, asker }]);
        self.len = self.requests.iter_mut().zip(kept).map(|(place, request)| *place = Some(request)).count();
        true
    }
}

lock_class! {
    /// The locks of CPUs' queues of requests.
    InboxLock = "tlb_inbox"
}

struct Cpu<P: System> {
    tlb: UnsafeCell<Tlb>,
    inbox: SpinMutex<P, Inbox, InboxLock>,
    /// A known bug's: whom a gather of this CPU will ask.
    #[cfg(feature = "mutants")]
    early: UnsafeCell<Option<CpuSet>>,
}

/// Holds a CPU's inbox, with interrupts off (I4).
struct InboxGuard<'a, P: System> {
    // Dropped first: interrupts come on when the lock is free.
    inbox: SpinMutexGuard<'a, P, Inbox, InboxLock>,
    _irq: IrqOffGuard<P>,
}

impl<P: System> Deref for InboxGuard<'_, P> {
    type Target = Inbox;
    fn deref(&self) -> &Inbox {
        &self.inbox
    }
}

impl<P: System> DerefMut for InboxGuard<'_, P> {
    fn deref_mut(&mut self) -> &mut Inbox {
        &mut self.inbox
    }
}

/// The TLBs and inboxes of all CPUs of an instance.
pub struct Cpus<P: System> {
    cpus: PerCpu<P, Cpu<P>>,
}

// SAFETY: a TLB is touched by the slot's owner only (I1), the inbox under its lock.
unsafe impl<P: System> Sync for Cpus<P> {}
// SAFETY: nothing in it belongs to a thread.
unsafe impl<P: System> Send for Cpus<P> {}

impl<P: System> Cpus<P> {
    /// Returns empty TLBs for `nr_cpus` CPUs.
    pub fn new(nr_cpus: usize) -> Self {
        let inbox = || SpinMutex::classed(Inbox { requests: [None; INBOX], len: 0, is_overflown: false });
        let cpu = |_| Cpu {
            tlb: UnsafeCell::new(Tlb::new()),
            inbox: inbox(),
            #[cfg(feature = "mutants")]
            early: UnsafeCell::new(None),
        };
        Self { cpus: PerCpu::new(nr_cpus, cpu) }
    }

    /// Runs `act` with a CPU's TLB.
    ///
    /// # Safety
    /// The calling thread owns `cpu`, or nobody does and none can take it meanwhile; `act` does not call this again.
    #[inline(always)]
    pub unsafe fn with_tlb<R>(&self, cpu: usize, act: impl FnOnce(&mut Tlb) -> R) -> R {
        // SAFETY: the caller's promise.
        act(unsafe { &mut *self.cpus.get(cpu).tlb.get() })
    }

    #[track_caller]
    fn inbox(&self, cpu: usize) -> InboxGuard<'_, P> {
        let irq = IrqOffGuard::new();
        InboxGuard { inbox: self.cpus.get(cpu).inbox.lock(), _irq: irq }
    }

    /// Makes the calling thread's CPU forget what others asked for.
    #[cold]
    pub(crate) fn drain(&self, cpu: usize) {
        let mut inbox = self.inbox(cpu);
        // Under the inbox's lock: whoever sees the inbox empty may rely on the TLB being clean.
        // SAFETY: callers own the CPU (guest entry, waits) and are outside `with_tlb`.
        unsafe { self.with_tlb(cpu, |tlb| inbox.drain_into::<P>(tlb)) };
    }

    /// Takes the translations of `range` away from the CPUs that may have some, and waits for those that walk anywhere
    /// in `reach`, which holds the range; see the module.
    pub fn shoot_down(
        &self,
        events: &Events<P>,
        lanes: &Lanes<P>,
        space: SpaceId,
        range: PageRange,
        reach: &Range<u64>,
    ) {
        // ORDER: pairs with the fence in `Platform::guest_enter`; forbids that a CPU joins a set unseen and reads an
        // entry from before it was cleared (I2). Model: `tests/native/shootdown.rs`.
        P::fence(Ordering::SeqCst);
        let me = P::cpu();
        let targets = mutant!(LaneReadEarly, lanes.others(reach, me) => self.early_others(lanes, reach, me));
        // SAFETY: this thread owns its CPU and is in kernel state.
        unsafe { self.with_tlb(me, |tlb| tlb.invalidate(space, range)) };
        P::flush(space, Some(range));
        if let Some(targets) = targets {
            events.note(Event::TlbShootdown, range.start().get());
            self.ask(&targets, Request { space, range: Some(range), asker: me });
            let idle = targets.iter().filter(|&cpu| !P::WAITS_FOR_LOADED && P::is_idle(cpu));
            idle.for_each(|cpu| self.let_go(cpu, lanes, (space, reach), me));
        }
    }

    /// A known bug: whom the next shootdown of this CPU asks is decided now.
    #[cfg(feature = "mutants")]
    pub(crate) fn note_early(&self, targets: CpuSet) {
        // SAFETY: this thread owns its CPU.
        unsafe { *self.cpus.get(P::cpu()).early.get() = Some(targets) };
    }

    #[cfg(feature = "mutants")]
    fn early_others(&self, lanes: &Lanes<P>, reach: &Range<u64>, me: usize) -> Option<CpuSet> {
        // SAFETY: as in `note_early`.
        let early = unsafe { (*self.cpus.get(P::cpu()).early.get()).take() };
        let mut targets = early.unwrap_or(lanes.snapshot(reach));
        targets.remove(me);
        (!targets.is_empty()).then_some(targets)
    }

    /// Takes a CPU that nobody owns out of the sets that led to it, unless somebody has come to use it since `asker`
    /// asked (I3).
    #[cold]
    fn let_go(&self, cpu: usize, lanes: &Lanes<P>, (space, reach): (SpaceId, &Range<u64>), asker: usize) {
        let mut inbox = self.inbox(cpu);
        if inbox.widen(space, asker) {
            // Under the inbox's lock, which the CPU takes before it looks at the sets again.
            mutant!(LetGoOfUsersAlone, lanes.let_go(cpu, reach) => lanes.let_go_of_users_alone(cpu, reach));
        }
    }

    /// Makes the calling thread's CPU a member of a space's sets again, after it has drained its inbox in guest.
    #[cold]
    pub(crate) fn rejoin(&self, cpu: usize, lanes: &Lanes<P>, walks: Walks) {
        if mutant!(LaneNotRejoined, lanes.come_back(cpu, walks) => false) {
            // ORDER: as the fence in `guest_enter`, which came before (I2): pairs with the one in `shoot_down`.
            P::fence(Ordering::SeqCst);
        }
    }

    /// Takes the calling thread's CPU out of the sets of a space that the thread leaves.
    pub(crate) fn leave(&self, cpu: usize, lanes: &Lanes<P>, space: SpaceId) {
        if lanes.users().contains(cpu) {
            // SAFETY: this thread owns the CPU and is in kernel state.
            unsafe { self.with_tlb(cpu, |tlb| tlb.invalidate_space(space)) };
            P::flush(space, None);
            lanes.leave(cpu);
        }
    }

    fn ask(&self, targets: &CpuSet, request: Request) {
        targets.iter().for_each(|cpu| self.inbox(cpu).push(request));
        P::shoot_down(targets, |cpu| {
            let inbox = self.inbox(cpu);
            inbox.len == 0 && !inbox.is_overflown
        });
    }

    /// Visits the TLBs with what is still asked of them carried out, as each CPU will before it uses one.
    ///
    /// # Safety
    /// No thread uses the instance meanwhile.
    pub unsafe fn for_each_tlb(&self, mut visit: impl FnMut(usize, &Tlb)) {
        for cpu in 0..self.cpus.nr_cpus() {
            self.drain(cpu);
            // SAFETY: the caller keeps everybody else out.
            unsafe { self.with_tlb(cpu, |tlb| visit(cpu, tlb)) };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::addr::VirtAddr;
    use std::vec::Vec;

    const ASKERS: [usize; 2] = [3, 5];

    fn asked(spaces: &[SpaceId]) -> Inbox {
        let mut inbox = Inbox { requests: [None; INBOX], len: 0, is_overflown: false };
        for (&space, asker) in spaces.iter().zip(ASKERS.into_iter().cycle()) {
            let range = PageRange::between(VirtAddr::new(0x1000), VirtAddr::new(0x3000));
            inbox.push(Request { space, range, asker });
        }
        inbox
    }

    fn kept(inbox: &Inbox) -> Vec<(SpaceId, bool, usize)> {
        let requests = inbox.requests[..inbox.len].iter().flatten();
        requests.map(|request| (request.space, request.range.is_some(), request.asker)).collect()
    }

    #[test]
    fn a_widened_request_takes_the_place_of_its_spaces_and_of_no_others() {
        let mut inbox = asked(&[7, 8, 7, 9]);
        assert!(inbox.widen(7, ASKERS[0]));
        assert_eq!(kept(&inbox), [(8, true, ASKERS[1]), (9, true, ASKERS[1]), (7, false, ASKERS[0])]);
    }

    #[test]
    fn what_is_not_there_any_more_is_not_widened() {
        let mut drained = asked(&[]);
        assert!(!drained.widen(7, ASKERS[0]));
        let mut of_others = asked(&[8, 7]);
        assert!(!of_others.widen(7, ASKERS[0]), "the other CPU's request");
        assert_eq!(kept(&of_others).len(), 2);
        let mut overflown = asked(&[7; INBOX + 1]);
        assert!(overflown.is_overflown && !overflown.widen(7, ASKERS[0]));
    }
}
