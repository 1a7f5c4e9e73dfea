//! Processes that come to a control group while it is recorded.
//!
//! # Guarantee
//! Each process that is found in the group is joined, unless it was recorded already; whoever could not be joined is
//! named. Of a process that was joined so, everything is seen from its company's beginning on.
//!
//! # Protocol
//! As in [`joining`](crate::joining), but for one process, and without events of its own: whoever runs is watched, by
//! programs that ask who it is, or on every CPU. So one list of the threads suffices.
//! ```text
//! watch it   <-- complete_ns      list its threads, wait until each is seen outside of memory calls
//!            <-- began_ns         look at its memory
//! ```
//!
//! # Who is new
//! Who was made by a recorded process after that one's beginning is recorded since it was made. `/proc` tells the
//! parent, unless that has ended, and the time to a hundredth of a second. Whoever may be new by that is looked at; the
//! recording leaves out who was in it already.

use std::collections::{BTreeMap, HashMap};
use std::path::Path;
use std::thread;
use std::time::Duration;

use crate::bpf::Watcher;
use crate::cgroup;
use crate::company::Company;
use crate::costs::now_ns;
use crate::freeze::Frozen;
use crate::joining::{Joined, Member, SETTLING_LOOK, Settled, Settling};
use crate::snapshot;
use crate::target::{self, Target, Unjoinable};

/// How whoever runs is watched.
#[derive(Clone, Debug)]
pub(crate) enum WatchMeans {
    /// By programs that must be told whom to watch.
    Programs(Watcher),
    /// By events of each CPU.
    Cpus,
    /// By events of each thread: nobody can be joined later.
    Threads,
}

/// Whether a process stands still while it is looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Look {
    Live,
    Frozen,
}

/// The watch over a group.
#[derive(Debug)]
pub(crate) struct Newcomers<'a> {
    path: &'a Path,
    means: WatchMeans,
    look: Look,
    /// Since when each member is recorded.
    since_ns: HashMap<i32, u64>,
    /// Who was found and was not joined, and the parent of each.
    pub(crate) unjoined: BTreeMap<u32, u32>,
    /// For how long processes stood still.
    pub(crate) frozen: Duration,
}

impl<'a> Newcomers<'a> {
    /// Begins with those who were joined with the recording's begin.
    pub(crate) fn new(path: &'a Path, means: WatchMeans, look: Look, targets: &[Target]) -> Self {
        let now = now_ns();
        let since_ns = targets.iter().map(|target| (target.pid, now)).collect();
        Self { path, means, look, since_ns, unjoined: BTreeMap::new(), frozen: Duration::ZERO }
    }

    /// Joins who is new in the group.
    pub(crate) fn join(&mut self) -> Vec<(Target, Company)> {
        let members = cgroup::members(self.path).unwrap_or_default();
        self.since_ns.retain(|pid, _| members.contains(pid));
        let mut joined = Vec::new();
        for pid in members.into_iter().filter(|&pid| pid > 0) {
            // A member that is made known by this list may be the parent of the next one.
            if self.since_ns.contains_key(&pid) || self.unjoined.contains_key(&(pid as u32)) {
                continue;
            }
            // It may have ended since the list was read.
            let Some(parent) = target::parent_of(pid) else { continue };
            let made_ns = target::made_ns(pid).unwrap_or_default();
            if self.since_ns.get(&parent).is_some_and(|&since_ns| since_ns <= made_ns) {
                self.since_ns.insert(pid, made_ns);
                continue;
            }
            match Target::find(pid).and_then(|target| self.join_one(&target).map(|company| (target, company))) {
                Ok((target, company)) => {
                    self.since_ns.insert(pid, now_ns());
                    joined.push((target, company));
                }
                Err(_) => drop(self.unjoined.insert(pid as u32, parent as u32)),
            }
        }
        joined
    }

    fn join_one(&mut self, target: &Target) -> Result<Company, Unjoinable> {
        match &self.means {
            WatchMeans::Programs(watcher) => watcher.watch(target.pid),
            WatchMeans::Cpus => {}
            WatchMeans::Threads => return Err(Unjoinable::Absent),
        }
        let now = now_ns();
        let mut joined = Joined { open_ns: now, complete_ns: now, ..Joined::default() };
        let pid = target.pid as u32;
        let member = |tid: u32| Member { pid, tid, name: target.thread_name(tid) };
        joined.members = target.threads().into_iter().map(member).collect();
        let mut settling = Settling::of(&joined);
        while settling.look(&mut joined) == Settled::No {
            thread::sleep(SETTLING_LOOK);
        }
        joined.began_ns = now_ns();
        let mut frozen = (self.look == Look::Frozen).then(Frozen::new);
        frozen.iter_mut().try_for_each(|frozen| frozen.freeze(std::slice::from_ref(target))).map_err(|(_, why)| why)?;
        let seen = vec![snapshot::look(target)?];
        self.frozen += frozen.map(|frozen| frozen.elapsed()).unwrap_or_default();
        Ok(Company { joined, seen, late: Vec::new() })
    }
}
