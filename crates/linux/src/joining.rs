//! Events for processes that run already: one set for each thread on each CPU.
//!
//! # Guarantee
//! From [`Joined::began_ns`] on every record of every thread of the processes, and of all that they make, is seen once.
//!
//! # Protocol
//! Threads come and go while events are opened for them. The list of threads is read again until two passes in a row find
//! no new one; the recording begins just before the second of these two.
//! ```text
//! pass 1: A B        open A, open B
//! pass 2: A B C      open C            (B made C before its own events were open)
//! pass 3: A B C  <-- complete_ns       whoever is made from here on is made by a thread whose events are all open,
//!                                      inherits them, and is told of by a record
//! pass 4: A B C  <-- began_ns          whoever was made before pass 3 and is not in its list has ended by now
//! ```
//! Between the last two passes each thread is waited for until it is seen outside of memory calls.
//!
//! A thread that was made while its maker's events were being opened, and ended before it could be listed, inherited some of
//! them: what they tell of it is a part, and none of it counts.
//! # Doubles
//! A thread that was made while its maker's events were being opened inherits some of them and is opened by itself too. So
//! each record carries its event's number, each event belongs to the thread that it was opened for, and of a thread only
//! the records of its own events count; of one that began later, those of its maker's ([`Joined::owners`]).

use std::collections::{HashMap, HashSet};
use std::io;
use std::thread;
use std::time::{Duration, Instant};

use faultless_trace::Mode;

use crate::costs::now_ns;
use crate::perf::{Begin, Event, Switches, Watch};
use crate::ring::Ring;
use crate::session::{Session, Setup, Sources, map_as_permitted, online_cpus};
use crate::target::{Kin, Target, Unjoinable, add_descendants, is_outside_calls};

/// So long the beginning waits at most for threads that may be inside a memory call whose arguments were not seen.
const SETTLING_MOST: Duration = Duration::from_millis(100);

/// So often they are looked at.
const SETTLING_LOOK: Duration = Duration::from_millis(1);

/// So often the threads are listed at most; a process that outpaces this makes threads faster than events can be opened.
const PASSES_MOST: usize = 1000;

/// A thread that was found running.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Member {
    pub(crate) pid: u32,
    pub(crate) tid: u32,
    pub(crate) name: String,
}

/// Who was joined.
#[derive(Clone, Debug, Default)]
pub(crate) struct Joined {
    /// The monotonic time from which on whoever is made inherits all events.
    pub(crate) complete_ns: u64,
    /// The monotonic time from which on everything is seen.
    pub(crate) began_ns: u64,
    /// The threads, in the order of the processes.
    pub(crate) members: Vec<Member>,
    /// The thread that each event was opened for, by the event's number.
    pub(crate) owners: HashMap<u64, u32>,
}

/// Opens and enables events for all threads of the processes.
pub(crate) fn join(
    sources: &Sources,
    setup: &Setup,
    targets: &mut Vec<Target>,
    kin: Kin,
) -> Result<(Session, Joined), (i32, Unjoinable)> {
    let fail = |pid: i32| move |error| (pid, Unjoinable::of(pid, "watching it", error));
    let first = targets.first().map_or(0, |target| target.pid);
    let mut joining = Joining::new(sources, setup).map_err(fail(first))?;
    let mut nr_quiet = 0;
    for _ in 0..PASSES_MOST {
        let now = now_ns();
        let mut is_quiet = kin == Kin::Later || add_descendants(targets) == 0;
        for target in targets.iter() {
            is_quiet &= joining.pass(target).map_err(fail(target.pid))? == 0;
        }
        if !is_quiet {
            nr_quiet = 0;
            continue;
        }
        nr_quiet += 1;
        if nr_quiet == 1 {
            joining.joined.complete_ns = now;
            joining.settle();
            continue;
        }
        joining.joined.began_ns = now;
        return Ok(joining.finish());
    }
    Err(fail(first)(io::Error::other("it makes threads faster than they can be watched")))
}

/// Joining under way.
struct Joining<'a> {
    sources: &'a Sources,
    setup: &'a Setup,
    watches: Vec<(Watch, Option<String>)>,
    /// For each CPU, the event that owns the ring. It is the recorder's own, so that it outlives every thread.
    owners: Vec<(i32, Event)>,
    rings: Vec<Ring>,
    events: Vec<Event>,
    known: HashSet<u32>,
    joined: Joined,
}

impl<'a> Joining<'a> {
    fn new(sources: &'a Sources, setup: &'a Setup) -> io::Result<Self> {
        let mut joining = Self {
            sources,
            setup,
            watches: sources.watches(setup.pace),
            owners: Vec::new(),
            rings: Vec::new(),
            events: Vec::new(),
            known: HashSet::new(),
            joined: Joined::default(),
        };
        let mut ring_bytes = setup.ring_bytes;
        for cpu in online_cpus()? {
            let owner = joining.open(Watch::Nothing, 0, cpu)?;
            joining.rings.push(map_as_permitted(&owner, &mut ring_bytes)?);
            joining.owners.push((cpu, owner));
        }
        Ok(joining)
    }

    fn open(&self, watch: Watch, tid: i32, cpu: i32) -> io::Result<Event> {
        let wakeup_bytes = (self.setup.ring_bytes / 4) as u32;
        Event::open(watch, tid, cpu, self.sources.reach(), Begin::Joining, wakeup_bytes)
    }

    /// Opens events for the threads that were not known; returns how many those are.
    fn pass(&mut self, target: &Target) -> io::Result<usize> {
        let mut nr_new = 0;
        for tid in target.threads() {
            if self.known.insert(tid) {
                nr_new += 1;
                self.add(target, tid)?;
            }
        }
        Ok(nr_new)
    }

    /// Opens a thread's events, unless it has ended.
    fn add(&mut self, target: &Target, tid: u32) -> io::Result<()> {
        match self.open_all(tid) {
            Err(error) if error.raw_os_error() == Some(libc::ESRCH) => return Ok(()),
            result => result?,
        }
        let name = target.thread_name(tid);
        self.joined.members.push(Member { pid: target.pid as u32, tid, name });
        Ok(())
    }

    fn open_all(&mut self, tid: u32) -> io::Result<()> {
        let switches = Switches::of(self.setup.pace);
        for place in 0..self.owners.len() {
            let leader = (Watch::Leader(switches), None);
            let watches: Vec<_> = std::iter::once(&leader).chain(&self.watches).cloned().collect();
            for (watch, filter) in watches {
                let (cpu, ring_owner) = &self.owners[place];
                let event = self.open(watch, tid as i32, *cpu)?;
                filter.iter().try_for_each(|filter| event.set_filter(filter))?;
                event.redirect(ring_owner)?;
                self.joined.owners.insert(event.id()?, tid);
                event.enable()?;
                self.events.push(event);
            }
        }
        Ok(())
    }

    /// Waits until each thread was seen outside of memory calls: of every call that one is inside of from then on the
    /// arguments are known. A thread that computes all the time can't be seen so.
    fn settle(&self) {
        let begun = Instant::now();
        let mut unsettled: Vec<&Member> = self.joined.members.iter().collect();
        if self.sources.mode() == Mode::Unprivileged {
            return;
        }
        loop {
            unsettled.retain(|member| !is_outside_calls(member.pid, member.tid));
            if unsettled.is_empty() || begun.elapsed() > SETTLING_MOST {
                return;
            }
            thread::sleep(SETTLING_LOOK);
        }
    }

    fn finish(self) -> (Session, Joined) {
        let leaders = self.owners.into_iter().map(|(_, owner)| owner).collect();
        (Session::of(self.rings, leaders, self.events), self.joined)
    }
}
