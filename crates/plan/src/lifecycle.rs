//! Threads and spaces that begin and end, and threads that wake each other.
//!
//! # Guarantee
//! A fork, and the end of a space, come after everything that happened in the space and before everything after them.

use faultless_trace::ThreadIndex;

use super::Action;
use super::build::Builder;
use super::edges::Wait;
use super::ids::{EventIndex, NONE, SpaceIndex};
use super::space_users::{Departure, UserChange};

impl Builder<'_> {
    /// Plans an event that begins or ends something.
    pub(super) fn change_users(&mut self, place: EventIndex, thread: ThreadIndex) {
        let Some(&change) = self.space_users.changes.get(&place) else { return };
        match change {
            UserChange::Fork { child, space, is_vfork } => self.fork(place, child, space, is_vfork),
            UserChange::Spawn { child, is_vfork } => self.spawn(place, child, is_vfork),
            UserChange::Renew { old, new } => self.renew(place, thread, old, new),
            UserChange::Leave(departure) => {
                let step = self.depart(place, thread, departure, Action::Leave(departure));
                self.release(step);
            }
        }
        self.expect_stack(change);
    }

    fn fork(&mut self, place: EventIndex, child: ThreadIndex, space: SpaceIndex, is_vfork: bool) {
        let (thread, parent) = (self.trace.events[place as usize].thread, self.space_of(place));
        self.await_everything(parent);
        let step = self.push(place, thread, Action::Fork { child, space });
        self.spaces[space as usize] = self.spaces[parent as usize].fork(self.now, place);
        self.doubt_beside_forks(place, space);
        self.note_contest(place, space);
        if self.is_shared(parent) {
            self.spaces[parent as usize].order.set_barrier(step);
        }
        self.begin(child, space, step, is_vfork);
    }

    /// Doubts the pages of a space that calls beside forks make come or go, and those of their neighbours: an area that
    /// is joined with one that has a root is copied as that is.
    pub(super) fn doubt_beside_forks(&mut self, event: EventIndex, space: SpaceIndex) {
        let (reached, space) = (self.windows.beside_forks.get(&event), &mut self.spaces[space as usize]);
        for range in reached.into_iter().flatten() {
            let widened = space.regions.with_neighbours(range);
            space.doubt(&widened);
        }
    }

    fn spawn(&mut self, place: EventIndex, child: ThreadIndex, is_vfork: bool) {
        let (thread, space) = (self.trace.events[place as usize].thread, self.space_of(place));
        let step = self.push(place, thread, Action::Spawn { child });
        self.spaces[space as usize].order.note(step);
        self.begin(child, space, step, is_vfork);
    }

    fn begin(&mut self, child: ThreadIndex, space: SpaceIndex, maker: Wait, is_vfork: bool) {
        self.plan.programs[child as usize].home = Some(space);
        self.inherit(child, maker);
        self.is_traced[child as usize] = self.is_traced[maker.thread as usize];
        if is_vfork {
            self.vfork_child[maker.thread as usize] = child;
        }
    }

    fn renew(&mut self, place: EventIndex, thread: ThreadIndex, old: Option<Departure>, new: SpaceIndex) {
        let action = Action::Renew { old, new };
        let step = match old {
            Some(departure) => self.depart(place, thread, departure, action),
            None => self.push(place, thread, action),
        };
        self.release(step);
    }

    /// Gives a thread without a known beginning a space; only where records were lost.
    pub(super) fn adopt(&mut self, place: EventIndex, thread: ThreadIndex, new: SpaceIndex) {
        self.push(place, thread, Action::Renew { old: None, new });
        self.skip("beginning of a thread", 1);
    }

    fn depart(&mut self, place: EventIndex, thread: ThreadIndex, departure: Departure, action: Action) -> Wait {
        let Departure { space, is_last } = departure;
        if is_last {
            self.await_everything(space);
        }
        let step = self.push(place, thread, action);
        if is_last {
            self.bury(space);
        } else {
            self.spaces[space as usize].order.note(step);
        }
        step
    }

    /// Adds up what a space needed, and forgets it.
    fn bury(&mut self, space: SpaceIndex) {
        let state = std::mem::take(&mut self.spaces[space as usize]);
        let blocks = state.pages.nr_blocks();
        let demand = &mut self.plan.demand;
        demand.own_pages += state.resident.peak;
        demand.made_pages += state.resident.made;
        demand.table_pages += table_pages(blocks);
    }

    fn await_everything(&mut self, space: SpaceIndex) {
        if self.is_shared(space) {
            let order = &self.spaces[space as usize].order;
            self.waits.extend(order.barrier);
            self.waits.extend(order.everything());
        }
    }

    fn release(&mut self, step: Wait) {
        let released = &mut self.released[step.thread as usize];
        if *released == NONE {
            *released = step.step;
        }
    }

    /// Lets the threads leave that the recording never ends.
    pub(super) fn end_threads(&mut self) {
        let after = self.trace.events.len() as EventIndex;
        for (thread, departure) in std::mem::take(&mut self.space_users.endings) {
            self.depart(after, thread, departure, Action::Leave(departure));
        }
    }

    /// Notes a wake, for the woken thread's next turn on a CPU.
    pub(super) fn wake(&mut self, place: EventIndex, woken: ThreadIndex) {
        let thread = self.trace.events[place as usize].thread;
        let step = self.push(place, thread, Action::Pass);
        self.woken_by[woken as usize] = Some(step);
    }

    /// A thread that was woken goes on after the wake.
    pub(super) fn switch_in(&mut self, place: EventIndex, thread: ThreadIndex) {
        let wake = self.woken_by[thread as usize].take();
        self.waits.extend(wake);
        self.push(place, thread, Action::Pass);
    }
}

/// Returns the frames of the tables that map so many blocks of 2 MiB: one for each, and those above, far apart.
fn table_pages(blocks: u64) -> u64 {
    const UPPER_LEVELS: u64 = 2;
    blocks * (1 + UPPER_LEVELS) + 8
}
