//! The address spaces of a trace, and which thread uses which of them when.
//!
//! # Guarantee
//! Every event gets a space that exists at that moment, and of every space exactly one thread is the last to leave it,
//! also in a trace that lost records or was interrupted.
//!
//! A thread that the trace never ends leaves at the end. What a thread without a known beginning does happens in a new
//! and empty space (an adoption): only traces with losses have such threads, apart from the first.

use faultless_trace::{CloneTask, Event, EventKind, ThreadIndex, Trace};
use rustc_hash::FxHashMap;

use super::ids::{EventIndex, SpaceIndex};

/// How an event changes which thread uses which space.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UserChange {
    /// A thread begins, in a copy of the maker's space.
    Fork {
        /// The new thread.
        child: ThreadIndex,
        /// The copy.
        space: SpaceIndex,
        /// Whether the maker waits for the child's exec or end.
        is_vfork: bool,
    },
    /// A thread begins, in the maker's space.
    Spawn {
        /// The new thread.
        child: ThreadIndex,
        /// Whether the maker waits for the child's exec or end.
        is_vfork: bool,
    },
    /// The thread goes on in a new and empty space.
    Renew {
        /// What it leaves.
        old: Option<Departure>,
        /// What it gets.
        new: SpaceIndex,
    },
    /// The thread ends.
    Leave(Departure),
}

/// A thread leaves a space.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Departure {
    /// Which space.
    pub space: SpaceIndex,
    /// Whether it is the last one, and the space goes with it.
    pub is_last: bool,
}

/// How many use a space.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct UserCounts {
    /// Threads that use it now.
    users: u32,
    /// The most that ever used it at once.
    pub most_users: u32,
}

/// Which thread of a trace uses which space, event by event.
#[derive(Debug, Default)]
pub struct SpaceUsers {
    /// The space of each event; for one that renews it, the new one.
    pub space_of: Vec<SpaceIndex>,
    /// All spaces.
    pub spaces: Vec<UserCounts>,
    /// Threads that no event makes: the first, and those whose making was lost.
    pub roots: Vec<ThreadIndex>,
    /// What events mean, by event; two for one that needs an adoption first.
    pub changes: FxHashMap<EventIndex, UserChange>,
    /// Spaces given to threads without a known one, just before the event.
    pub adoptions: FxHashMap<EventIndex, SpaceIndex>,
    /// Departures of threads that the trace never ends, in order, after the last event.
    pub endings: Vec<(ThreadIndex, Departure)>,
    /// Clones of threads that had begun before; only where records were lost.
    pub impossible_clones: u64,
    has_joined_threads: bool,
    homes: Vec<Option<SpaceIndex>>,
    is_born: Vec<bool>,
}

impl SpaceUsers {
    /// Follows a trace.
    pub fn of(trace: &Trace) -> Self {
        let nr_threads = trace.threads.len();
        let mut space_users =
            Self { homes: vec![None; nr_threads], is_born: vec![false; nr_threads], ..Self::default() };
        space_users.space_of.reserve_exact(trace.events.len());
        trace.snapshot.spaces.iter().for_each(|state| space_users.join(&state.threads));
        for (place, event) in trace.events.iter().enumerate() {
            space_users.follow(place as EventIndex, event);
        }
        space_users.end();
        space_users
    }

    /// Returns whether two threads use one space and none of them sleeps until the other leaves it.
    pub fn has_threads(&self) -> bool {
        let has_joined = self.has_joined_threads;
        has_joined || self.changes.values().any(|change| matches!(change, UserChange::Spawn { is_vfork: false, .. }))
    }

    /// Lets threads live in a space before the first event.
    fn join(&mut self, threads: &[ThreadIndex]) {
        let space = self.new_space();
        self.has_joined_threads |= threads.len() > 1;
        for &thread in threads {
            self.is_born[thread as usize] = true;
            self.settle(thread, space);
        }
    }

    fn follow(&mut self, place: EventIndex, event: &Event) {
        let thread = event.thread;
        if !std::mem::replace(&mut self.is_born[thread as usize], true) {
            self.roots.push(thread);
        }
        match event.kind {
            EventKind::Exec => self.renew(place, thread),
            _ if self.homes[thread as usize].is_none() => self.adopt(place, thread),
            _ => {}
        }
        self.space_of.push(self.homes[thread as usize].unwrap_or_default());
        match event.kind {
            EventKind::Clone(clone) => self.begin(place, thread, clone),
            EventKind::Exit => self.leave(place, thread),
            _ => {}
        }
    }

    fn renew(&mut self, place: EventIndex, thread: ThreadIndex) {
        let old = self.homes[thread as usize].take().map(|space| self.depart(space));
        let new = self.new_space();
        self.settle(thread, new);
        self.changes.insert(place, UserChange::Renew { old, new });
    }

    fn adopt(&mut self, place: EventIndex, thread: ThreadIndex) {
        let space = self.new_space();
        self.settle(thread, space);
        self.adoptions.insert(place, space);
    }

    fn begin(&mut self, place: EventIndex, parent: ThreadIndex, clone: CloneTask) {
        let child = clone.child;
        if std::mem::replace(&mut self.is_born[child as usize], true) {
            self.impossible_clones += 1;
            return;
        }
        let (home, is_vfork) = (self.homes[parent as usize].unwrap_or_default(), clone.is_vfork());
        let (space, change) = if clone.shares_memory() {
            (home, UserChange::Spawn { child, is_vfork })
        } else {
            let space = self.new_space();
            (space, UserChange::Fork { child, space, is_vfork })
        };
        self.settle(child, space);
        self.changes.insert(place, change);
    }

    fn leave(&mut self, place: EventIndex, thread: ThreadIndex) {
        if let Some(space) = self.homes[thread as usize].take() {
            let departure = self.depart(space);
            self.changes.insert(place, UserChange::Leave(departure));
        }
    }

    fn end(&mut self) {
        for thread in 0..self.homes.len() {
            if let Some(space) = self.homes[thread].take() {
                let departure = self.depart(space);
                self.endings.push((thread as ThreadIndex, departure));
            }
        }
    }

    fn new_space(&mut self) -> SpaceIndex {
        self.spaces.push(UserCounts::default());
        self.spaces.len() as SpaceIndex - 1
    }

    fn settle(&mut self, thread: ThreadIndex, space: SpaceIndex) {
        self.homes[thread as usize] = Some(space);
        let life = &mut self.spaces[space as usize];
        life.users += 1;
        life.most_users = life.most_users.max(life.users);
    }

    fn depart(&mut self, space: SpaceIndex) -> Departure {
        let life = &mut self.spaces[space as usize];
        life.users -= 1;
        Departure { space, is_last: life.users == 0 }
    }
}
