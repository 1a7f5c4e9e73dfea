//! From a recorded fault to one access and to what must come of it.
//!
//! # Guarantee
//! The rules of [`super::classes`], one function each. A fault is strict if it has no class, its page is of 4 KiB, the
//! kernel had no known reason to take it, what it holds is known, and the recording saw everything.

use std::iter;
use std::ops::Range;

use faultless_trace::{Access, EventKind, Fault, HugePages, Side};

use super::around::Cover;
use super::build::Builder;
use super::classes::Class;
use super::contents::{ObjectPage, Stored};
use super::edges::Wait;
use super::ids::{EventIndex, NONE, SpaceIndex};
use super::pages::{Content, Page};
use super::regions::{Backing, PAGE, Region, Root, Sharing, Traits, page_floor};
use super::space::{AddressState, Space, copies_on_write, filled};
use super::{Action, Before, ObjectPlan, Outcome, Touch};

/// Linux makes anonymous memory of blocks of four pages or more (`hugepages-16kB`).
const SMALLEST_HUGE_BYTES: u64 = 4 * PAGE;

/// Stacks without a limit may grow this far.
const UNLIMITED_STACK_BYTES: u64 = 1 << 40;

/// A fault with all that surrounds it.
pub(super) struct FaultContext {
    place: EventIndex,
    thread: u32,
    pub(super) space: SpaceIndex,
    pub(super) fault: Fault,
    pub(super) region: Option<Region>,
    pub(super) page: Page,
    /// What the region grew by.
    grown: Range<u64>,
}

impl FaultContext {
    fn is_allowed(&self) -> bool {
        let is_guarded = self.page.content == Content::Guard;
        !is_guarded && self.region.is_some_and(|region| region.allows(self.fault.access()))
    }

    /// Returns whether it is a fetch from where nothing may be fetched, and no page is: Linux makes the page, as for a
    /// load, and the fetch faults once more and is refused then (arch/x86/mm/fault.c, `access_error`).
    fn is_fetch_that_loads(&self) -> bool {
        let is_absent = !self.fault.is_present() && self.page.content == Content::Absent;
        let may_be_used = self.region.is_some_and(|region| !region.prot.is_empty());
        self.fault.access() == Access::Fetch && is_absent && may_be_used && !self.is_allowed()
    }

    fn has_trait(&self, traits: Traits) -> bool {
        self.region.is_some_and(|region| region.traits.intersects(traits))
    }

    pub(super) fn object_sharing(&self) -> Option<Sharing> {
        match self.region?.backing {
            Backing::Object { sharing, .. } => Some(sharing),
            Backing::Anonymous => None,
        }
    }

    /// Returns the object's page that the access reaches: none if the page is a copy of its own, or nothing is
    /// accessed.
    fn object_page(&self) -> Option<ObjectPage> {
        let region = self.region.filter(|_| self.is_allowed() && self.page.content != Content::Own)?;
        let Backing::Object { object, offset, .. } = region.backing else { return None };
        let page_index = offset.wrapping_add(page_floor(self.fault.address) - region.start) / PAGE;
        Some(ObjectPage { object, page_index: u32::try_from(page_index).ok()? })
    }

    /// Returns whether the access changes what others see.
    fn stores_into_object(&self) -> bool {
        self.is_write() && self.object_sharing() == Some(Sharing::Shared)
    }

    fn is_write(&self) -> bool {
        self.fault.access() == Access::Write
    }
}

impl Builder<'_> {
    /// Plans the access that replays a fault.
    pub(super) fn fault(&mut self, place: EventIndex, fault: Fault) {
        let mut context = self.context(place, fault);
        if context.is_fetch_that_loads() {
            context.fault.error_code &= !Fault::FETCH;
        }
        let fault = context.fault;
        let mut is_as_forecast = self.forecast(&context) == Some(fault.is_present());
        let is_contested =
            self.is_unlike(&context) || self.spaces[context.space as usize].contested.contains(&fault.address);
        let mut class = match is_contested {
            true => Some(Class::Ambiguous),
            false if is_as_forecast => None,
            false => self.class_of(&context),
        };
        if class.is_some() && !is_as_forecast && !is_contested {
            self.note_unexplained(&context);
        }
        if class == Some(Class::FaultAround) && self.is_mapped_before(&mut context) {
            (class, is_as_forecast) = (None, true);
        }
        let before = if self.is_blind || is_contested { Before::Unknown } else { self.before(&context) };
        let is_strict = class.is_none() && self.is_strict_ground(&context, before, is_as_forecast);
        let touch = Touch {
            address: fault.address,
            access: fault.access(),
            side: fault.side,
            is_present: fault.is_present(),
            outcome: if context.is_allowed() { Outcome::Done } else { Outcome::Refused },
            class,
            is_strict,
            before,
            around: NONE,
        };
        self.count(&context, &touch);
        if class.is_none() && !is_as_forecast {
            self.surprises.insert(place);
        }
        self.collect_waits(&context);
        let step = self.push(place, context.thread, Action::Access(touch));
        self.settle(&context, step, class);
    }

    fn context(&mut self, place: EventIndex, fault: Fault) -> FaultContext {
        let (thread, space) = (self.trace.events[place as usize].thread, self.space_of(place));
        let start_before = self.spaces[space as usize].regions.at_or_after(fault.address).map(|region| region.start);
        let region = self.region_at(place, fault.address);
        let state = &self.spaces[space as usize];
        let page = state.page(fault.address, region.as_ref());
        let grown = region.zip(start_before).map_or(0..0, |(region, before)| region.start..before);
        FaultContext { place, thread, space, fault, region, page, grown }
    }

    /// Returns the region that a fault finds, which may grow to it.
    pub(super) fn region_at(&mut self, place: EventIndex, address: u64) -> Option<Region> {
        let limit_bytes = self.trace.header.limits.stack_bytes.unwrap_or(UNLIMITED_STACK_BYTES);
        // The limit may have been raised since.
        let stack_bytes = if self.is_told_to_grow(place, address) { UNLIMITED_STACK_BYTES } else { limit_bytes };
        let space = self.space_of(place);
        let state = &mut self.spaces[space as usize];
        match state.address_state(address, stack_bytes) {
            AddressState::Mapped(region) => Some(region),
            AddressState::Growable(region) => {
                let start = page_floor(address);
                state.regions.grow_down(region.start, start);
                self.plan.stack_bytes = self.plan.stack_bytes.max(region.end - start);
                Some(Region { start, ..region })
            }
            AddressState::Nothing => None,
        }
    }

    /// Returns whether the kernel told, next of all that the thread does, of memory that reaches down to an address.
    fn is_told_to_grow(&self, fault: EventIndex, address: u64) -> bool {
        match self.trace.events.get(self.races.after(fault) as usize).map(|event| event.kind) {
            Some(EventKind::Mapped(told)) => {
                told.file.is_none() && (told.start..told.start + told.len_bytes).contains(&address)
            }
            _ => false,
        }
    }

    fn count(&mut self, context: &FaultContext, touch: &Touch) {
        let totals = &mut self.plan.totals;
        totals.faults += 1;
        totals.strict += u64::from(touch.is_strict);
        totals.outside += u64::from(context.region.is_none());
        totals.forbidden += u64::from(context.region.is_some() && touch.outcome == Outcome::Refused);
        if let Some(class) = touch.class {
            *totals.may_differ.entry(class).or_default() += 1;
        }
    }

    /// Returns the present bit that a fault shows if the events so far are all that happened to the page; nothing if
    /// such an access does not fault then.
    fn forecast(&self, context: &FaultContext) -> Option<bool> {
        let Some(region) = context.region.filter(|region| !region.prot.is_empty()) else { return Some(false) };
        let forked_at = self.spaces[context.space as usize].forked_at;
        let is_shared_copy = context.page.content == Content::Own && context.page.since <= forked_at;
        match context.page.content {
            Content::Absent | Content::Guard => Some(false),
            _ if !context.is_allowed() => Some(true),
            Content::Zero | Content::Object if context.is_write() && copies_on_write(&region) => Some(true),
            Content::Own if context.is_write() && is_shared_copy => Some(true),
            Content::Object if context.is_write() && self.is_first_store(context) => Some(true),
            _ => None,
        }
    }

    /// Returns whether no store went through the page's entry yet, so that it surely lets none into its file: a file
    /// system is told of the first one (mm/vma.c, `vma_wants_writenotify`). Memory that lives nowhere else is not.
    fn is_first_store(&self, context: &FaultContext) -> bool {
        let Some(Backing::Object { object, sharing: Sharing::Shared, .. }) =
            context.region.map(|region| region.backing)
        else {
            return false;
        };
        let ObjectPlan { is_memory, is_drivers, .. } = self.plan.objects[object as usize];
        let Page { lets_stores_in, is_doubtful, .. } = context.page;
        let is_clean = !lets_stores_in && !is_doubtful && !context.has_trait(Traits::RECLAIMABLE);
        is_clean && !is_memory && !is_drivers
    }

    fn is_strict_ground(&self, context: &FaultContext, before: Before, is_as_forecast: bool) -> bool {
        const FILLED_OR_TAKEN: Traits = Traits::FILLED.union(Traits::RECLAIMABLE);
        let is_determined = context.region.is_some_and(|region| match region.backing {
            Backing::Anonymous => true,
            // Nothing is held where nothing may be accessed.
            Backing::Object { .. } => !context.is_allowed() || self.is_certain(before),
        });
        // What a call fills or lets the kernel take follows from it, but where the fault shows otherwise.
        let is_otherwise = context.has_trait(FILLED_OR_TAKEN) && !is_as_forecast;
        is_determined && !self.is_blind && !context.has_trait(Traits::HUGE) && !is_otherwise
    }

    /// Returns whether it is known what the page holds, whatever comes later.
    fn is_certain(&self, before: Before) -> bool {
        match before {
            Before::Zeros | Before::Token { .. } => true,
            Before::Content { is_ordered, .. } => is_ordered,
            Before::Unknown => false,
        }
    }

    /// Returns why the fault is not as forecast, by the first rule that applies.
    fn class_of(&self, context: &FaultContext) -> Option<Class> {
        let is_ambiguous = self.is_ambiguous(context);
        if !is_ambiguous && is_impossible(context) {
            return None;
        }
        let rules: [(Class, bool); 9] = [
            (Class::Inherited, context.page.is_inherited),
            (Class::Ambiguous, is_ambiguous),
            (Class::Raced, self.is_raced(context)),
            (Class::Populated, self.is_populated(context)),
            (Class::Reclaimed, self.is_cut(context)),
            (Class::FaultAround, self.is_around_another(context)),
            (Class::Huge, self.is_huge(context)),
            (Class::Reclaimed, is_reclaimed(context) && !self.is_just_touched(context)),
            (Class::Raced, self.is_behind_its_time(context)),
        ];
        rules.into_iter().find(|&(_, applies)| applies).map(|(class, _)| class)
    }

    fn is_ambiguous(&self, context: &FaultContext) -> bool {
        self.is_blind
            || context.page.is_doubtful
            || self.is_reached_into(context.space)
            || self.windows.uncertain.contains(context.place)
            || self.may_lack_its_page(context)
            || self.is_behind_a_failed_fork(context)
            || self.is_second_try(context)
            || self.is_repeated(context)
    }

    /// A fork failed since the page became what it is, perhaps after it had copied the tables and taken the right to
    /// store from their entries (kernel/fork.c, `copy_process`: a limit of processes is looked at after `copy_mm`).
    fn is_behind_a_failed_fork(&self, context: &FaultContext) -> bool {
        let Space { fork_failed_at, .. } = self.spaces[context.space as usize];
        let is_private = context.page.content == Content::Own && context.is_write();
        is_private && context.fault.is_present() && context.page.since <= fork_failed_at && fork_failed_at > 0
    }

    /// A page is gone that may never have come: a file may have ended before it, so that the access before was a bus
    /// error. How long a file was at the time is not recorded, only how long it was in the end.
    fn may_lack_its_page(&self, context: &FaultContext) -> bool {
        let Some(Region { start, backing: Backing::Object { object, offset, .. }, .. }) = context.region else {
            return false;
        };
        let is_gone = context.page.content.is_mapped() && !context.fault.is_present();
        let place = offset.wrapping_add(page_floor(context.fault.address) - start);
        let file = self.trace.files.get(object as usize);
        is_gone && file.is_some_and(|file| file.size_bytes.is_none_or(|size_bytes| place >= size_bytes))
    }

    /// The thread's last event was the same fault of the same instruction, on a page that is there now, and the entry
    /// may have changed between the kernel's first look and its second, so that it left the rest to another fault
    /// (mm/memory.c, `handle_pte_fault`, `pte_same`); or another CPU still held it as it was before. Both need another
    /// thread of the space, or that this one was switched out: the CPU that faults drops what it holds of the page.
    /// That the page was not there at first needs another thread, which made it come for loads.
    fn is_repeated(&self, context: &FaultContext) -> bool {
        let Page { event, .. } = context.page;
        let on_a_page_that_is_there = |fault: Fault| Fault { error_code: fault.error_code | Fault::PRESENT, ..fault };
        let Some(first) = self.fault_at(event).filter(|_| self.is_in_a_row(context)) else { return false };
        let has_moved = || self.races.may_have_moved(context.thread, event, context.place);
        let may_change = self.is_shared(context.space) || first.is_present() && has_moved();
        context.fault == on_a_page_that_is_there(first) && may_change
    }

    /// The page's last fault was the thread's own last event.
    fn is_in_a_row(&self, context: &FaultContext) -> bool {
        let Page { thread, event, .. } = context.page;
        event != NONE && thread == context.thread && self.races.is_next(event, context.place)
    }

    fn fault_at(&self, event: EventIndex) -> Option<Fault> {
        match self.trace.events.get(event as usize)?.kind {
            EventKind::Fault(fault) => Some(fault),
            _ => None,
        }
    }

    /// The kernel touched the page again in a row: before with page faults switched off, so that only one of the
    /// faults mapped it (a signal's frame, a futex, the source of a write). It may try so more than once; it is other
    /// code that makes it come in the end. Only the walk along a stack for call chains never does.
    fn is_second_try(&self, context: &FaultContext) -> bool {
        let Some(first) = self.fault_at(context.page.event) else { return false };
        self.is_in_a_row(context)
            && (first.side, context.fault.side) == (Side::Kernel, Side::Kernel)
            && (first.access(), first.is_present()) == (context.fault.access(), context.fault.is_present())
            && (first.ip != context.fault.ip || !self.trace.stacks.is_empty() || self.goes_on_elsewhere(context))
    }

    /// Returns whether other code of the kernel touches the page before the thread does anything else.
    fn goes_on_elsewhere(&self, context: &FaultContext) -> bool {
        let event_after = |&event: &EventIndex| Some(self.races.after(event)).filter(|&event| event != NONE);
        let faults = std::iter::successors(event_after(&context.place), event_after).map_while(|event| {
            match self.trace.events[event as usize].kind {
                EventKind::Fault(fault) => Some(fault),
                _ => None,
            }
        });
        let is_the_pages = |fault: &Fault| {
            fault.side == Side::Kernel && page_floor(fault.address) == page_floor(context.fault.address)
        };
        faults.take_while(is_the_pages).any(|fault| fault.ip != context.fault.ip)
    }

    /// Another thread's fault on the page may not have been over.
    fn is_raced(&self, context: &FaultContext) -> bool {
        let Page { thread, event, .. } = context.page;
        self.is_neighbours(context) && thread != context.thread && self.races.is_under_way(event, context.place)
    }

    /// Returns whether the page's last fault happened in this space, and not in the one that it is a copy of.
    fn is_neighbours(&self, context: &FaultContext) -> bool {
        let event = context.page.event;
        event != NONE && self.space_of(event) == context.space
    }

    /// The kernel filled the page, or must have: it is there though no fault made it, and a fork explains that, or a
    /// process that reaches into this one's memory.
    fn is_populated(&self, context: &FaultContext) -> bool {
        let is_unexplained = context.fault.is_present() && context.page.content == Content::Absent;
        let was_copied = self.spaces[context.space as usize].forked_at > 0;
        let is_private = context.region.is_some_and(|region| region.is_private_anonymous());
        let is_traced = self.is_traced[context.thread as usize];
        context.has_trait(Traits::SPECIAL)
            || self.is_drivers(context)
            || context.has_trait(Traits::FILLED) && !self.is_stored_alone(context)
            || is_unexplained && (context.has_trait(Traits::ARGUMENTS) || is_private && was_copied || is_traced)
    }

    /// A driver is mapped there, which puts pages in.
    fn is_drivers(&self, context: &FaultContext) -> bool {
        let backing = context.region.map(|region| region.backing);
        matches!(backing, Some(Backing::Object { object, .. }) if self.plan.objects[object as usize].is_drivers)
    }

    /// The page holds what was stored into it in this space since the last fork: what fills pages lets it be.
    fn is_stored_alone(&self, context: &FaultContext) -> bool {
        let Page { content, since, store, .. } = context.page;
        content == Content::Own && store != NONE && since > self.spaces[context.space as usize].forked_at
    }

    /// A huge page may have mapped the page with its neighbours, or was split, collapsed or zeroed as one.
    fn is_huge(&self, context: &FaultContext) -> bool {
        let Some(region) = context.region else { return false };
        let block = context.fault.address - context.fault.address % SMALLEST_HUGE_BYTES;
        let fits = region.start <= block && block + SMALLEST_HUGE_BYTES <= region.end;
        let is_allowed = self.trace.header.huge_pages == HugePages::AsSystem;
        context.has_trait(Traits::HUGE) || is_allowed && fits && region.is_private_anonymous()
    }

    /// The page is an object's, and a fault beside it may have mapped it. A load that is allowed would not have faulted
    /// then.
    fn is_around_another(&self, context: &FaultContext) -> bool {
        let Some(region) = context.region.filter(|_| context.object_sharing().is_some()) else { return false };
        let is_covered = self.spaces[context.space as usize].around.covers(context.fault.address / PAGE, &region);
        let faults_though_mapped = context.is_write() || !context.is_allowed();
        context.page.content == Content::Absent && context.fault.is_present() && faults_though_mapped && is_covered
    }

    /// Lets the fault that must have mapped the page with its own map it in the replay too, if there is one of this
    /// space that surely can: nothing that is not ordered with it has ever changed the page. Returns whether it does,
    /// so that the page is as it was.
    fn is_mapped_before(&mut self, context: &mut FaultContext) -> bool {
        let number = context.fault.address / PAGE;
        let state = &self.spaces[context.space as usize];
        let Some(cover) = state.around.last_over(number).filter(|cover| cover.now > state.forked_at).cloned() else {
            return false;
        };
        let never_changed = context.page.event == NONE && state.order.calls.at(context.fault.address) == cover.call;
        let page = Page { content: Content::Object, since: cover.now, ..context.page };
        let mapped = FaultContext { page, grown: 0..0, ..*context };
        let is_explained = self.forecast(&mapped) == Some(context.fault.is_present());
        if self.is_shared(context.space) && !never_changed || !is_explained || !self.map_around(&cover, number * PAGE) {
            return false;
        }
        context.page = page;
        self.waits.extend(cover.step);
        self.spaces[context.space as usize].resident.add(1);
        self.plan.demand.object_pages += 1;
        true
    }

    /// Adds a page to those that a fault's step maps beside its own.
    fn map_around(&mut self, cover: &Cover, address: u64) -> bool {
        let Some(Wait { thread, step }) = cover.step else { return false };
        let step = &mut self.plan.programs[thread as usize].steps[step as usize];
        let Action::Access(touch) = &mut step.action else { return false };
        if touch.around == NONE {
            touch.around = self.plan.arounds.len() as u32;
            self.plan.arounds.push(Vec::new());
        }
        self.plan.arounds[touch.around as usize].push(address);
        true
    }

    /// The thread has just made the page come, and did nothing since but touch other pages: to take the page, Linux
    /// must look at it twice (mm/vmscan.c, `folio_check_references`), which takes longer than clocks differ. Writing a
    /// file's page back takes the right to store at once, and leaves the page.
    fn is_just_touched(&self, context: &FaultContext) -> bool {
        let Some(page) = context.object_page() else { return false };
        let is_memory = self.plan.objects[page.object as usize].is_memory;
        let Page { thread, event, .. } = context.page;
        let is_own = event != NONE && thread == context.thread && (is_memory || !context.fault.is_present());
        if !is_own || self.time_ns(event) + self.clock_error_ns() < self.time_ns(context.place) {
            return false;
        }
        let after = |&event: &EventIndex| Some(self.races.after(event));
        let mut since = std::iter::successors(after(&event), after).take_while(|&event| event < context.place);
        since.all(|event| self.fault_at(event).is_some())
    }

    fn time_ns(&self, event: EventIndex) -> u64 {
        self.trace.events[event as usize].time_ns
    }

    fn clock_error_ns(&self) -> u64 {
        self.trace.header.clock_error_ns
    }

    /// The entry allows the access, made so on another CPU, or by a call: this one still held the entry as it was
    /// before.
    fn is_behind_its_time(&self, context: &FaultContext) -> bool {
        let is_own =
            context.page.content == Content::Own && context.page.since > self.spaces[context.space as usize].forked_at;
        let is_elsewhere = || context.page.thread != context.thread || self.was_copied_elsewhere(context);
        let is_stale = || self.is_neighbours(context) && is_elsewhere();
        is_own && context.is_allowed() && context.fault.is_present() && (context.page.is_let_in || is_stale())
    }

    /// The thread itself copied the page, or got it for itself, after a fork, and may have come to another CPU since;
    /// which may have seen the entry in between, by this thread or by another.
    fn was_copied_elsewhere(&self, context: &FaultContext) -> bool {
        let Space { forked_at, forked_by, .. } = self.spaces[context.space as usize];
        let may_have_moved = |earlier, later| self.races.may_have_moved(context.thread, earlier, later);
        let copied = context.page.event;
        let is_seen = || self.is_shared(context.space) || may_have_moved(forked_by, copied);
        forked_at > 0 && may_have_moved(copied, context.place) && is_seen()
    }

    /// Returns what the page holds before the access.
    fn before(&self, context: &FaultContext) -> Before {
        let Some(region) = context.region else { return Before::Unknown };
        if matches!(region.backing, Backing::Object { object, .. } if self.uncertain_objects.contains(&object)) {
            return Before::Unknown;
        }
        if let Some(page) = context.object_page() {
            let ObjectPage { object, page_index } = page;
            let content = Before::Content { object, page_index, is_ordered: true };
            return self
                .contents
                .stored(page)
                .map_or(content, |Stored { event, word, .. }| Before::Token { event, word });
        }
        match region.backing {
            Backing::Object { sharing: Sharing::Shared, .. } => Before::Unknown,
            _ if context.page.store != NONE => self.token_of(context.page.store),
            Backing::Anonymous => Before::Zeros,
            Backing::Object { object, offset, .. } => {
                let page_index = offset.wrapping_add(page_floor(context.fault.address) - region.start) / PAGE;
                let content = |page_index| Before::Content { object, page_index, is_ordered: false };
                u32::try_from(page_index).map_or(Before::Unknown, content)
            }
        }
    }

    fn token_of(&self, store: EventIndex) -> Before {
        match self.trace.events[store as usize].kind {
            EventKind::Fault(fault) => Before::Token { event: store, word: (fault.address % PAGE / 8) as u16 },
            _ => Before::Unknown,
        }
    }

    /// Collects what the access must wait for.
    fn collect_waits(&mut self, context: &FaultContext) {
        if let Some(page) = context.object_page() {
            match context.stores_into_object() {
                true => self.contents.await_for_store(page, &mut self.waits),
                false => self.contents.await_for_load(page, &mut self.waits),
            }
        }
        if !self.is_shared(context.space) {
            return;
        }
        let order = &self.spaces[context.space as usize].order;
        self.waits.extend(order.barrier);
        self.waits.extend(order.calls.at(context.fault.address));
        if !context.grown.is_empty() {
            // Whoever made what it grew from.
            self.waits.extend(order.calls.at(context.grown.end));
        }
        let Page { thread, step, .. } = context.page;
        self.waits.extend(self.is_neighbours(context).then_some(Wait { thread, step }));
    }

    /// Notes what the fault made of its page.
    fn settle(&mut self, context: &FaultContext, step: Wait, class: Option<Class>) {
        self.doubt_simultaneous(context);
        self.note_content(context, step);
        let (now, is_shared) = (self.now, self.is_shared(context.space));
        let is_uncertain = self.windows.uncertain.contains(context.place);
        let page = self.page_after(context, step, class);
        // A load that found nothing has looked at the object, whatever was thought to be there.
        let is_objects = page.content == Content::Object
            || !context.is_write() && !context.fault.is_present() && context.object_sharing().is_some();
        let around = context.region.filter(|_| is_objects && self.maps_around(context));
        let call = self.spaces[context.space as usize].order.calls.at(context.fault.address);
        let around = around.map(|region| {
            let page = context.fault.address / PAGE;
            let space = &self.spaces[context.space as usize];
            let area = space.area_of(&region, &(page..page + 1));
            let pages = space.around.reach(page, &area);
            (Cover { pages, step: Some(step), call, now, event: context.place }, area)
        });
        let space = &mut self.spaces[context.space as usize];
        if !context.page.content.is_mapped() && page.content.is_mapped() {
            space.resident.add(1);
        }
        if page.content == Content::Own && page.since == now {
            space.resident.made += 1;
            let root = if is_uncertain { Root::Uncertain } else { Root::Present };
            space.regions.give_root(context.fault.address, root);
        }
        space.pages.set(context.fault.address / PAGE, page);
        if let Some((cover, area)) = around {
            space.around.cover(cover, &area);
        }
        if is_shared {
            space.order.note(step);
            if !context.grown.is_empty() {
                space.order.calls.note(context.grown.clone(), step);
            }
            if is_uncertain {
                let start = page_floor(context.fault.address);
                space.cover_tables(iter::once(start..start + PAGE), now);
            }
        }
        if page.content == Content::Object && context.page.content == Content::Absent {
            self.plan.demand.object_pages += 1;
        }
    }

    /// Notes what the access means for the object's page.
    fn note_content(&mut self, context: &FaultContext, step: Wait) {
        let Some(page) = context.object_page() else { return };
        let word = (context.fault.address % PAGE / 8) as u16;
        match context.stores_into_object() {
            true => self.contents.store(page, Stored { event: context.place, word, step }),
            false => self.contents.load(page, step),
        }
    }

    /// Returns whether the kernel maps neighbours of an object's page together with it.
    fn maps_around(&self, context: &FaultContext) -> bool {
        let around = &self.spaces[context.space as usize].around;
        context.is_allowed() && (!context.is_write() || around.stores_bring_neighbours())
    }

    fn page_after(&self, context: &FaultContext, step: Wait, class: Option<Class>) -> Page {
        // A load that found nothing where a store had been may have come before it, so that the page is no copy yet.
        let is_before_store =
            class.is_some() && self.is_shared(context.space) && !context.is_write() && !context.fault.is_present();
        let is_doubtful = self.windows.uncertain.contains(context.place) || is_before_store;
        let noted = Page {
            event: context.place,
            thread: step.thread,
            step: step.step,
            is_doubtful,
            is_inherited: false,
            is_let_in: false,
            ..context.page
        };
        let Some(region) = context.region.filter(|_| context.is_allowed()) else {
            // What is refused makes nothing, and leaves what is not known.
            return Page { is_doubtful: is_doubtful || context.page.is_doubtful, ..noted };
        };
        let is_own = context.is_write() && copies_on_write(&region);
        let content = filled(context.page.content, region.backing, is_own);
        let store = if context.is_write() { context.place } else { context.page.store };
        let since = if content != context.page.content || is_own { self.now } else { context.page.since };
        let lets_stores_in = context.page.lets_stores_in || context.is_write();
        Page { content, lets_stores_in, store, since, ..noted }
    }

    /// Explains the page's previous fault too when it is another thread's and the order of the two is not certain.
    fn doubt_simultaneous(&mut self, context: &FaultContext) {
        let Page { event, thread, step, .. } = context.page;
        let is_other = self.is_neighbours(context) && thread != context.thread;
        if !is_other || !self.races.is_simultaneous(event, context.place) || !self.surprises.remove(&event) {
            return;
        }
        let Action::Access(touch) = &mut self.plan.programs[thread as usize].steps[step as usize].action else {
            return;
        };
        touch.class = Some(Class::Raced);
        self.plan.totals.strict -= u64::from(std::mem::take(&mut touch.is_strict));
        *self.plan.totals.may_differ.entry(Class::Raced).or_default() += 1;
    }
}

/// A load finds a page that is there, though the area allows loads: no entry forbids it, nor does one that some CPU
/// still holds. A key of the page's may (other bits tell so).
fn is_impossible(context: &FaultContext) -> bool {
    const LOAD: u32 = Fault::PRESENT | Fault::USER;
    context.is_allowed() && context.fault.is_present() && context.fault.error_code & !LOAD == 0
}

/// The kernel may have taken the page away: advice let it, or it is an object's page that was mapped and isn't any
/// more.
fn is_reclaimed(context: &FaultContext) -> bool {
    let is_mapped = context.page.content == Content::Object;
    let is_gone = is_mapped && !context.fault.is_present();
    let is_cleaned = is_mapped && context.is_write() && context.object_sharing() == Some(Sharing::Shared);
    context.has_trait(Traits::RECLAIMABLE) || context.object_sharing().is_some() && (is_gone || is_cleaned)
}
