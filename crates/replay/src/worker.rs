//! A recorded thread as a worker: its steps, one after the other, each compared with what the plan expects.
//!
//! # Guarantee
//! A step begins when all gates that it waits for are open, and opens its own gate when it is over. A worker that stops
//! early, because memory ran out somewhere, leaves its space as any thread does.

use std::ops::Range;

use faultless_phys::OutOfFrames;
use faultless_platform::{KernelEntry, Threads, Usual};
use faultless_trace::{Access, ThreadIndex};
use faultless_vm::design::Design;
use faultless_vm::{AccessError, CallError, FaultsTaken, Guest, SpaceRef, VirtAddr};

use super::content::{token, word_of};
use super::pass::Pass;
use super::vm_calls::VmCaller;
use faultless_pass::{ReplayError, Tally};
use faultless_plan::classes::Class;
use faultless_plan::decode::is_error;
use faultless_plan::ids::{ObjectIndex, SpaceIndex};
use faultless_plan::regions::{PAGE, page_floor};
use faultless_plan::space_users::Departure;
use faultless_plan::{Action, Before, Outcome, Step, Touch};

/// Whether to go on.
type Going = Result<(), ReplayError>;

/// What an access ended in: what it loaded, or the error.
type Ended = Result<(Option<u64>, FaultsTaken), AccessError>;

/// A thread of the plan.
pub(super) struct Worker<'a, 'vm, P: Threads<Embedding = Usual>, D: Design<P>> {
    pass: &'a Pass<'vm, P, D>,
    thread: ThreadIndex,
    guest: Option<Guest<'vm, P, D>>,
    tally: Tally,
}

impl<'a, 'vm, P: Threads<Embedding = Usual>, D: Design<P>> Worker<'a, 'vm, P, D> {
    /// Makes the thread, in the space that its maker gave it.
    pub(super) fn new(pass: &'a Pass<'vm, P, D>, thread: ThreadIndex) -> Self {
        let guest = pass.take_guest(thread);
        Self { pass, thread, guest, tally: Tally::default() }
    }

    /// SpaceUsers the thread's life; returns what it counted.
    pub(super) fn run(mut self) -> Tally {
        let pass = self.pass;
        let program = &pass.plan.programs[self.thread as usize];
        let mut waits = program.waits.iter();
        for step in &program.steps {
            for &gate in waits.by_ref().take(step.nr_waits as usize) {
                pass.gates[gate as usize].wait();
            }
            if pass.has_stopped() {
                break;
            }
            if let Err(error) = pass.in_turn(step, || self.take(step)) {
                pass.stop(error);
                break;
            }
            if let Some(gate) = step.gate {
                pass.gates[gate as usize].set();
            }
        }
        self.tally
    }

    fn take(&mut self, step: &Step) -> Going {
        if step.work_ns > 0 {
            P::work(step.work_ns);
        }
        let began_ns = P::now();
        if !matches!(step.action, Action::Restore(_)) {
            self.tally.began_ns.get_or_insert(began_ns);
        }
        self.tally.steps += 1;
        let result = match step.action {
            Action::Access(touch) => self.access(step, &touch, began_ns),
            Action::Call(call) => self.call(step, call, began_ns),
            Action::Restore(place) => self.restore(step, place),
            Action::Fork { child, space } => self.fork(step, child, space),
            Action::Spawn { child } => self.spawn(child),
            Action::Renew { old, new } => self.renew(step, old, new),
            Action::Leave(departure) => {
                self.depart(departure);
                Ok(())
            }
            Action::File { object, offset, len_bytes } => {
                self.move_bytes(step, object, offset..offset + u64::from(len_bytes))
            }
            Action::Pass => Ok(()),
        };
        self.tally.ended_ns = P::now();
        result
    }

    fn access(&mut self, step: &Step, touch: &Touch, began_ns: u64) -> Going {
        let Some(guest) = self.guest.as_ref() else { return Ok(()) };
        let ended: Ended = match touch.access {
            Access::Read => guest.load(VirtAddr::new(touch.address)).map(|(word, faults)| (Some(word), faults)),
            Access::Write => guest.store(VirtAddr::new(touch.address), token(step.event)).map(|faults| (None, faults)),
            Access::Fetch => guest.fetch(VirtAddr::new(touch.address)).map(|faults| (None, faults)),
        };
        let ended_ns = P::now();
        if let Err(AccessError::OutOfFrames(cause)) = ended {
            return Err(self.out_of_memory(step, cause));
        }
        if ended.is_ok_and(|(_, faults)| faults.count == 0) {
            self.differ(step, touch, "the access did not fault");
        } else {
            self.tally.faulted += 1;
            self.tally.fault_ns.note(ended_ns - began_ns);
            self.compare(step, touch, ended);
        }
        self.read_back(step, touch, ended);
        self.map_around(touch);
        Ok(())
    }

    /// Maps the pages that the recorded fault mapped with its own.
    fn map_around(&self, touch: &Touch) {
        let Some(addresses) = self.pass.plan.arounds.get(touch.around as usize) else { return };
        let Some(guest) = self.guest.as_ref() else { return };
        for &address in addresses {
            // One that can't be mapped is missed by the fault that shows it.
            let _ = guest.load(VirtAddr::new(address));
        }
    }

    /// Compares an access that faulted with the recorded fault.
    fn compare(&mut self, step: &Step, touch: &Touch, ended: Ended) {
        match (touch.outcome, ended) {
            (Outcome::Done, Err(error)) => self.differ(step, touch, &format!("it ended in {error}")),
            (Outcome::Refused, Ok(_)) => self.differ(step, touch, "it was allowed"),
            (Outcome::Refused, Err(_)) if self.is_present(touch.address) == touch.is_present => {}
            (Outcome::Done, Ok((_, faults))) if faults.count > 1 => {
                self.differ(step, touch, &format!("it faulted {} times", faults.count));
            }
            (Outcome::Done, Ok((_, faults))) if faults.first_was_present == touch.is_present => {}
            _ if touch.is_present => self.differ(step, touch, "the page was not present"),
            _ => self.differ(step, touch, "the page was present"),
        }
    }

    /// Returns whether an address that may not be accessed has a page.
    fn is_present(&self, address: u64) -> bool {
        let Some(guest) = self.guest.as_ref() else { return false };
        guest.space().entry_at(VirtAddr::new(address)).is_present()
    }

    fn differ(&mut self, step: &Step, touch: &Touch, what: &str) {
        match touch.class {
            Some(class) => self.tally.classify(class),
            // Pages are made, and stay, in another order than the recorded one: that is what was asked for.
            None if self.pass.objects.filling().is_some() => self.tally.classify(Class::Populated),
            None => self.tally.mismatch(step.event, described(touch, what)),
        }
    }

    /// Reads back what the page must hold: an earlier store's token, zeros, or the file's content.
    fn read_back(&mut self, step: &Step, touch: &Touch, ended: Ended) {
        let Ok((loaded, _)) = ended else { return };
        let Some((address, expected)) = self.expected(touch) else { return };
        let is_same_word = address & !7 == touch.address & !7;
        let found = match (loaded, is_same_word) {
            (Some(word), true) => word,
            (None, true) if touch.access == Access::Write => return,
            _ => match self.guest.as_ref().map(|guest| guest.load(VirtAddr::new(address))) {
                Some(Ok((word, _))) => word,
                _ => return,
            },
        };
        let is_filled = expected == 0 && self.pass.objects.filling().is_some_and(|filling| filling.word() == found);
        if found == expected || is_filled {
            self.tally.read_back += 1;
        } else {
            let what = format!("the word at {address:#x} holds {found:#x} instead of {expected:#x}");
            self.tally.mismatch(step.event, what);
        }
    }

    /// Returns a word of the page and what it must hold.
    fn expected(&self, touch: &Touch) -> Option<(u64, u64)> {
        let page = page_floor(touch.address);
        let beside = if touch.access == Access::Write { touch.address ^ 8 } else { touch.address };
        match touch.before {
            Before::Unknown => None,
            // A store's page was just zeroed: looking at it costs more than it tells, unless costs don't matter.
            Before::Zeros if touch.access == Access::Write && !self.pass.checks_each_step() => None,
            Before::Zeros => Some((beside, 0)),
            Before::Token { event, word } => Some((page + u64::from(word) * 8, token(event))),
            Before::Content { object, page_index, is_ordered } => {
                let plan = &self.pass.plan.objects[object as usize];
                let word = match plan.is_memory {
                    true => 0,
                    false => word_of(u64::from(object), u64::from(page_index), (beside - page) / 8),
                };
                (is_ordered || !plan.has_stores).then_some((beside, word))
            }
        }
    }

    fn call(&mut self, step: &Step, place: u32, began_ns: u64) -> Going {
        let Some(guest) = self.guest.as_ref() else { return Ok(()) };
        let call = &self.pass.plan.calls[place as usize];
        let Some((expected, is_certain)) = call.verdict.compared() else { return Ok(()) };
        let hand = VmCaller { guest, space: guest.space(), objects: &self.pass.objects };
        P::enter_kernel(KernelEntry::Call);
        let found = hand.perform(&call.memory_call).map_err(|cause| self.out_of_memory(step, cause))?;
        self.tally.call_ns.note(P::now() - began_ns);
        if found == expected {
            return Ok(());
        }
        if self.pass.plan.is_blind || !is_certain {
            // The call that made the difference may be one that the recording lacks.
            self.tally.classify(Class::Ambiguous);
        } else {
            let name = call.call.map_or("mapping", faultless_trace::Call::name);
            let what = format!("{name} returned {} instead of {}", shown(found), shown(expected));
            self.tally.mismatch(step.event, what);
        }
        Ok(())
    }

    /// Makes a call that reads bytes of an object or writes them: both go through the object's pages, each looked up
    /// and mapped, and the bytes are copied.
    fn move_bytes(&mut self, step: &Step, object: ObjectIndex, bytes: Range<u64>) -> Going {
        P::enter_kernel(KernelEntry::Call);
        let lent = self.pass.objects.get(object).map_err(|cause| self.out_of_memory(step, cause))?;
        let mut words = [0; PAGE as usize / 8];
        let mut from = bytes.start & !7;
        while from < bytes.end {
            let to = (page_floor(from) + PAGE).min(bytes.end.next_multiple_of(8));
            let nr_words = (to - from) as usize / 8;
            let moved = self.pass.read(lent.handle(), from, &mut words[..nr_words]);
            moved.map_err(|error| self.refused(step, error))?;
            from = to;
        }
        Ok(())
    }

    /// Makes the space that stood before the first event.
    fn restore(&mut self, step: &Step, place: u32) -> Going {
        let restoration = &self.pass.plan.restorations[place as usize];
        self.renew(step, None, restoration.space)?;
        let Some(guest) = self.guest.as_ref() else { return Ok(()) };
        let hand = VmCaller { guest, space: guest.space(), objects: &self.pass.objects };
        for memory_call in &restoration.memory_calls {
            P::enter_kernel(KernelEntry::Call);
            let found = hand.perform(memory_call).map_err(|cause| self.out_of_memory(step, cause))?;
            if is_error(found) {
                self.tally
                    .mismatch(step.event, format!("restoring what stood before: {memory_call:x?} returned {found}"));
            }
        }
        Ok(())
    }

    fn fork(&mut self, step: &Step, child: ThreadIndex, space: SpaceIndex) -> Going {
        if let Some(guest) = self.guest.as_ref() {
            let copy = guest.space().fork().map_err(|error| self.refused(step, error))?;
            self.pass.hand_over(child, Guest::new(&copy));
            self.pass.settle(space, copy);
        }
        self.pass.start(child)
    }

    fn spawn(&mut self, child: ThreadIndex) -> Going {
        if let Some(guest) = self.guest.as_ref() {
            self.pass.hand_over(child, Guest::new(guest.space()));
        }
        self.pass.start(child)
    }

    fn renew(&mut self, step: &Step, old: Option<Departure>, new: SpaceIndex) -> Going {
        if let Some(departure) = old {
            self.depart(departure);
        }
        let space: SpaceRef<'vm, P, D> = self.pass.create_space().map_err(|error| self.refused(step, error))?;
        self.guest = Some(Guest::new(&space));
        self.pass.settle(new, space);
        Ok(())
    }

    fn depart(&mut self, departure: Departure) {
        self.guest = None;
        if let Some(space) = departure.is_last.then(|| self.pass.vacate(departure.space)).flatten() {
            self.tally.peak_pages = self.tally.peak_pages.max(space.peak_resident_pages());
        }
    }

    fn refused(&self, step: &Step, error: CallError) -> ReplayError {
        match error {
            CallError::OutOfFrames(cause) => self.out_of_memory(step, cause),
            error => self.pass.out_of_memory(Some(step.event), error.to_string()),
        }
    }

    fn out_of_memory(&self, step: &Step, cause: OutOfFrames) -> ReplayError {
        self.pass.out_of_memory(Some(step.event), cause.to_string())
    }
}

fn described(touch: &Touch, what: &str) -> String {
    let access = match touch.access {
        Access::Read => "read",
        Access::Write => "write",
        Access::Fetch => "fetch",
    };
    let presence = if touch.is_present { "present" } else { "absent" };
    format!("{access} of {:#x}, recorded as a fault on a page that was {presence}: {what}", touch.address)
}

/// Returns a call's result for people.
pub(super) fn shown(result: i64) -> String {
    if (-4095..=0).contains(&result) { result.to_string() } else { format!("{result:#x}") }
}
