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
//!
//! A *busy* CPU that was asked [`patience`] times since it last drained in guest leaves the sets of a range in the same
//! way, under one more condition: it is in no RCU section, in which a fault may rely on its set (L1 of `lanes`).
//! ```text
//! CPU T, a fault                          CPU S, which has T's inbox locked, with its own request there
//! section begins; fence                   T leaves; fence
//! leaves T? fault under the lock          T in a section? leave T in the set
//! T in the set? rely on that              else take T out
//! section ends                            T stays (release)
//! ```
//! Of the two fences one comes first. T's: S sees the section. S's: T sees that it leaves, or, behind that, that it is
//! out. Forbidden: T relies on the set, and is out of it. So T never is out for a moment and in again, which a change
//! might miss. T drains in guest entry, or in a wait of its own; between its look at the set and guest entry it does
//! not wait, so that it drains before that look, and finds itself out, or after it, and joins again. Model:
//! `a_busy_cpu_leaves_between_its_sections` in `sync/tests/models/cpu_set.rs`, and one that fails without the look at
//! `leaves`; mutant `let-go-in-a-section`; world `busy`. Spaces without lanes let no busy CPU go.

use crate::addr::PageRange;
use crate::events::{Event, Events};
use crate::system::System;
use crate::translations::lanes::{Lanes, Walks};
use crate::translations::tlb::{SpaceId, Tlb};
use core::cell::UnsafeCell;
use core::ops::{Deref, DerefMut, Range};
use faultless_platform::{Atomic, CpuSet, IrqOffGuard, Ordering, mutant};
use faultless_sync::{PerCpu, Rcu, SpinMutex, SpinMutexGuard, lock_class};

/// Requests that an inbox holds before it asks for everything to be forgotten.
const INBOX: usize = 16;

/// Returns how often a CPU is asked, since it was last asked in guest, before it is let go although it is busy: it runs
/// in the kernel, and uses no translation.
///
/// Less where there are few CPUs: there it costs less to ask, and tests meet it.
const fn patience(nr_cpus: usize) -> u32 {
    let patience = 2 + nr_cpus as u32 / 8;
    if patience > 8 { 8 } else { patience }
}

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

/// Says that what the caller cleared lies before a sequentially consistent fence: nobody reads the sets without it.
///
/// The fence pairs with the one in `Platform::guest_enter`; it forbids that a CPU joins a set unseen and reads an entry
/// from before it was cleared (I2). Model: `tests/native/shootdown.rs`.
pub(crate) struct Fenced(());

impl Fenced {
    /// Orders what was cleared, by whatever stores.
    #[inline(always)]
    pub(crate) fn of<P: System>() -> Self {
        // ORDER: see the type.
        P::fence(Ordering::SeqCst);
        Self(())
    }

    /// As [`Fenced::of`], where a read-modify-write of this CPU was the last store that cleared something.
    #[inline(always)]
    pub(crate) fn after_rmw<P: System>() -> Self {
        // ORDER: see the type.
        P::fence_after_rmw();
        Self(())
    }
}

/// The name that stands for all spaces, where a CPU's hardware is to forget everything; no space has it.
const ALL_SPACES: SpaceId = 0;

/// What others want a CPU to forget.
struct Inbox {
    requests: [Option<Request>; INBOX],
    len: usize,
    is_overflown: bool,
    /// Whose requests were lost in the overflow.
    unnamed: CpuSet,
    /// Requests since the CPU last drained in guest.
    nr_asked: u32,
}

impl Inbox {
    fn new() -> Self {
        Self { requests: [None; INBOX], len: 0, is_overflown: false, unnamed: CpuSet::new(), nr_asked: 0 }
    }

    fn push(&mut self, request: Request) {
        self.nr_asked = self.nr_asked.saturating_add(1);
        if self.len == INBOX {
            self.is_overflown = true;
            self.unnamed.insert(request.asker);
        } else {
            self.requests[self.len] = Some(request);
            self.len += 1;
        }
    }

    fn drain_into<P: System>(&mut self, tlb: &mut Tlb) {
        if self.is_overflown {
            tlb.invalidate_all();
            P::flush(ALL_SPACES, None);
            self.unnamed = CpuSet::new();
        } else {
            self.requests[..self.len].iter().flatten().for_each(|request| request.serve::<P>(tlb));
        }
        self.len = 0;
        self.is_overflown = false;
    }

    /// Says whether the CPU has not drained since the asker's last request about a space.
    fn has(&self, space: SpaceId, asker: usize) -> bool {
        let mut requests = self.requests[..self.len].iter().flatten();
        requests.any(|request| request.space == space && request.asker == asker)
            || self.is_overflown && self.unnamed.contains(asker)
    }

    /// Makes all requests of a space one that is about all of it, if the asker's is among them ([`Inbox::has`]). Says
    /// whether it is.
    fn widen(&mut self, space: SpaceId, asker: usize) -> bool {
        if !self.has(space, asker) {
            return false;
        }
        // After an overflow everything is forgotten anyway.
        if !self.is_overflown {
            let all = core::mem::replace(&mut self.requests, [None; INBOX]);
            let others = all.into_iter().flatten().filter(|request| request.space != space);
            let kept = others.chain([Request { space, range: None, asker }]);
            self.len = self.requests.iter_mut().zip(kept).map(|(place, request)| *place = Some(request)).count();
        }
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
    /// Whether somebody takes the CPU out of sets just now; written by who has the inbox locked.
    leaves: P::AtomicBool,
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
        let cpu = |_| Cpu {
            tlb: UnsafeCell::new(Tlb::new()),
            inbox: SpinMutex::classed(Inbox::new()),
            leaves: P::AtomicBool::new(false),
            #[cfg(feature = "mutants")]
            early: UnsafeCell::new(None),
        };
        let cpus = PerCpu::new(nr_cpus, cpu);
        cpus.tell("a CPU's TLB and its requests");
        Self { cpus }
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

    /// Makes the calling thread's CPU, which waits, forget what others asked for.
    #[cold]
    pub(crate) fn drain(&self, cpu: usize) {
        self.drain_locked(cpu, &mut self.inbox(cpu));
    }

    /// As [`Cpus::drain`], of a CPU in guest: it uses translations.
    #[cold]
    pub(crate) fn drain_in_guest(&self, cpu: usize) {
        let mut inbox = self.inbox(cpu);
        inbox.nr_asked = 0;
        self.drain_locked(cpu, &mut inbox);
    }

    fn drain_locked(&self, cpu: usize, inbox: &mut Inbox) {
        // Under the inbox's lock: whoever sees the inbox empty may rely on the TLB being clean.
        // SAFETY: callers own the CPU (guest entry, waits) and are outside `with_tlb`.
        unsafe { self.with_tlb(cpu, |tlb| inbox.drain_into::<P>(tlb)) };
    }

    /// Takes the translations of `range` away from the CPUs that may have some, and waits for those that walk anywhere
    /// in `reach`, which holds the range; see the module.
    pub(crate) fn shoot_down(
        &self,
        (events, rcu): (&Events<P>, &Rcu<P>),
        lanes: &Lanes<P>,
        space: SpaceId,
        range: PageRange,
        reach: &Range<u64>,
        _fenced: Fenced,
    ) {
        let me = P::cpu();
        let targets = mutant!(LaneReadEarly, lanes.others(reach, me) => self.early_others(lanes, reach, me));
        // SAFETY: this thread owns its CPU and is in kernel state.
        unsafe { self.with_tlb(me, |tlb| tlb.invalidate(space, range)) };
        P::flush(space, Some(range));
        if let Some(targets) = targets {
            events.note(Event::TlbShootdown, range.start().get());
            let tired = self.ask(&targets, Request { space, range: Some(range), asker: me });
            if P::WAITS_FOR_LOADED {
                return;
            }
            let may_leave = |cpu| P::is_idle(cpu) || tired.contains(cpu) && lanes.are_of_a_part(reach);
            let leaving = targets.iter().filter(|&cpu| may_leave(cpu));
            leaving.for_each(|cpu| self.let_go(cpu, (lanes, rcu), (space, reach), me));
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

    /// Takes a CPU that nobody owns, or that is busy in the kernel, out of the sets that led to it, unless it has come
    /// to use translations since `asker` asked (I3), or is in an RCU section.
    #[cold]
    fn let_go(
        &self,
        cpu: usize,
        (lanes, rcu): (&Lanes<P>, &Rcu<P>),
        (space, reach): (SpaceId, &Range<u64>),
        asker: usize,
    ) {
        let mut inbox = self.inbox(cpu);
        let leaves = &self.cpus.get(cpu).leaves;
        // Relaxed: the fence orders it.
        leaves.store(true, Ordering::Relaxed);
        // ORDER: pairs with the fence that begins a section; forbids that a fault there misses this, and is missed.
        // Model: `a_busy_cpu_leaves_between_its_sections`.
        P::fence(Ordering::SeqCst);
        if mutant!(LetGoInASection, !rcu.is_cpu_reading(cpu) => true) && inbox.widen(space, asker) {
            // Under the inbox's lock, which the CPU takes before it looks at the sets again.
            mutant!(LetGoOfUsersAlone, lanes.let_go(cpu, reach) => lanes.let_go_of_users_alone(cpu, reach));
        }
        // ORDER: Release pairs with the Acquire in `leaves`: who sees this sees that the CPU is out.
        leaves.store(false, Ordering::Release);
    }

    /// Says whether somebody takes a CPU out of sets just now; asked by its owner, in a section whose beginning is
    /// fenced, before a look at a set on which it relies.
    #[inline]
    pub(crate) fn leaves(&self, cpu: usize) -> bool {
        // ORDER: Acquire pairs with the Release in `let_go`.
        self.cpus.get(cpu).leaves.load(Ordering::Acquire)
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

    /// Returns those that were asked in vain for long ([`patience`]).
    fn ask(&self, targets: &CpuSet, request: Request) -> CpuSet {
        let mut tired = CpuSet::new();
        for cpu in targets.iter() {
            let mut inbox = self.inbox(cpu);
            inbox.push(request);
            if inbox.nr_asked >= patience(self.cpus.nr_cpus()) {
                tired.insert(cpu);
            }
        }
        P::shoot_down(targets, |cpu| {
            let inbox = self.inbox(cpu);
            inbox.len == 0 && !inbox.is_overflown
        });
        tired
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
        let mut inbox = Inbox::new();
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
    }

    #[test]
    fn who_asked_in_an_overflow_is_known() {
        let mut overflown = asked(&[7; INBOX]);
        overflown.push(Request { space: 8, range: None, asker: 6 });
        assert!(overflown.is_overflown && overflown.widen(8, 6), "lost, and the CPU will forget everything");
        assert!(overflown.widen(7, ASKERS[0]) && !overflown.widen(8, ASKERS[0]));
        assert_eq!((kept(&overflown).len(), overflown.nr_asked), (INBOX, INBOX as u32 + 1));
    }

    #[test]
    fn the_more_cpus_there_are_the_more_patient_is_who_asks_up_to_a_limit() {
        assert_eq!([1, 4, 8, 47, 48, 384].map(patience), [2, 2, 3, 7, 8, 8]);
    }
}
