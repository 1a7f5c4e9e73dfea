//! All events that show one program, on every CPU, with a ring each.
//!
//! # Guarantee
//! A session either watches everything that its [`Sources`] name, on every CPU that was online, or could not be opened.

use std::fs;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};

use faultless_trace::Pace;

use crate::bpf::Programs;
use crate::perf::{Begin, Event, Switches, Watch};
use crate::ring::Ring;
use crate::sources::Sources;
use crate::spool::Rings;
use crate::stacks::StackOptions;

/// How a session is opened.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Setup {
    pub(crate) pid: i32,
    pub(crate) pace: Pace,
    pub(crate) begin: Begin,
    /// The size of a ring; without privilege it may come out smaller.
    pub(crate) ring_bytes: usize,
    /// How call chains are recorded, if they are.
    pub(crate) stacks: Option<StackOptions>,
}

/// The open events and rings.
#[derive(Debug)]
pub(crate) struct Session {
    /// One ring a CPU, then one a CPU for call chains, if they are recorded; dropped before the events that they belong
    /// to.
    rings: Vec<Ring>,
    /// The events that own the rings.
    leaders: Vec<Event>,
    others: Vec<Event>,
    /// The events of call chains. What they lose is no loss to the trace.
    chains: Vec<Event>,
    /// What writes into the others, if it is not the events themselves.
    programs: Option<Programs>,
}

/// Rings of call chains that are not yet part of a session.
#[derive(Debug, Default)]
pub(crate) struct StackRings {
    pub(crate) owners: Vec<Event>,
    pub(crate) rings: Vec<Ring>,
}

impl StackRings {
    /// Opens one for each CPU, if call chains are recorded. They belong to the recorder itself, so that they outlive
    /// every thread.
    pub(crate) fn open(sources: &Sources, setup: &Setup, cpus: &[i32]) -> io::Result<Self> {
        let mut stacks = Self::default();
        let Some(options) = setup.stacks else { return Ok(stacks) };
        let mut ring_bytes = sources.stack_ring_bytes(options, setup.ring_bytes, cpus.len());
        for &cpu in cpus {
            let wakeup_bytes = (ring_bytes / 4) as u32;
            // Its own records would be of the kind that all of its session's are.
            let begin = if setup.begin == Begin::Joining { Begin::Joining } else { Begin::WhenEnabled };
            let owner = Event::open(Watch::Nothing, 0, cpu, sources.reach(), begin, wakeup_bytes)?;
            stacks.rings.push(map_as_permitted(&owner, &mut ring_bytes)?);
            stacks.owners.push(owner);
        }
        Ok(stacks)
    }
}

impl Session {
    /// Opens everything, not yet recording.
    pub(crate) fn open(sources: &Sources, setup: &Setup) -> io::Result<Self> {
        let mut session = Self::of(Vec::new(), Vec::new(), Vec::new(), Vec::new(), None);
        let watches = sources.watches(setup.pace);
        let mut setup = *setup;
        let cpus = online_cpus()?;
        let stacks = StackRings::open(sources, &setup, &cpus)?;
        for &cpu in &cpus {
            session.open_cpu(sources, &watches, &mut setup, cpu)?;
        }
        for (&cpu, owner) in cpus.iter().zip(&stacks.owners) {
            let open = |watch| Event::open(watch, setup.pid, cpu, sources.reach(), setup.begin, 0);
            for (watch, filter) in setup.stacks.map(|stacks| sources.stack_watches(stacks)).unwrap_or_default() {
                let event = open(watch)?;
                filter.iter().try_for_each(|filter| event.set_filter(filter))?;
                event.redirect(owner)?;
                session.chains.push(event);
            }
        }
        session.rings.extend(stacks.rings);
        session.leaders.extend(stacks.owners);
        Ok(session)
    }

    /// Puts together what was opened one by one.
    pub(crate) fn of(
        rings: Vec<Ring>,
        leaders: Vec<Event>,
        others: Vec<Event>,
        chains: Vec<Event>,
        programs: Option<Programs>,
    ) -> Self {
        Self { rings, leaders, others, chains, programs }
    }

    fn open_cpu(
        &mut self,
        sources: &Sources,
        watches: &[(Watch, Option<String>)],
        setup: &mut Setup,
        cpu: i32,
    ) -> io::Result<()> {
        let switches = Switches::of(setup.pace);
        let wakeup_bytes = (setup.ring_bytes / 4) as u32;
        let open = |watch| Event::open(watch, setup.pid, cpu, sources.reach(), setup.begin, wakeup_bytes);
        let leader = open(Watch::Leader(switches))?;
        let events: Vec<_> = watches.iter().map(|(watch, _)| open(*watch)).collect::<io::Result<_>>()?;
        self.rings.push(map_as_permitted(&leader, &mut setup.ring_bytes)?);
        for (event, (_, filter)) in events.iter().zip(watches) {
            filter.iter().try_for_each(|filter| event.set_filter(filter))?;
            event.redirect(&leader)?;
        }
        self.leaders.push(leader);
        self.others.extend(events);
        Ok(())
    }

    /// Begins to record at once.
    pub(crate) fn enable(&self) -> io::Result<()> {
        self.events().chain(&self.chains).try_for_each(Event::enable)
    }

    /// Stops to record.
    pub(crate) fn disable(&self) -> io::Result<()> {
        self.programs.iter().for_each(Programs::stop);
        self.chains.iter().chain(self.events()).try_for_each(Event::disable)
    }

    /// Returns how many records found no room, as far as the kernel can tell.
    pub(crate) fn lost(&self) -> u64 {
        self.events().map(Event::lost).sum::<u64>() + self.programs.as_ref().map_or(0, Programs::lost)
    }

    /// Returns how many call chains found no room.
    pub(crate) fn chains_lost(&self) -> u64 {
        self.chains.iter().map(Event::lost).sum()
    }

    /// Returns what the rings hold that are not of programs, in their order.
    pub(crate) fn kinds(&self) -> Vec<Rings> {
        let has_chains = !self.chains.is_empty();
        let nr_events = if has_chains { self.rings.len() / 2 } else { self.rings.len() };
        (0..self.rings.len()).map(|place| if place < nr_events { Rings::Events } else { Rings::Stacks }).collect()
    }

    /// Returns the rings, in the order of the leaders.
    pub(crate) fn rings_mut(&mut self) -> &mut [Ring] {
        &mut self.rings
    }

    /// Returns the programs, whose rings come after the others.
    pub(crate) fn programs(&self) -> Option<&Programs> {
        self.programs.as_ref()
    }

    /// Returns the events whose descriptors tell that a ring has filled.
    pub(crate) fn leaders(&self) -> &[Event] {
        &self.leaders
    }

    /// Returns the events that own no ring.
    pub(crate) fn others(&self) -> &[Event] {
        &self.others
    }

    fn events(&self) -> impl Iterator<Item = &Event> {
        self.leaders.iter().chain(&self.others)
    }
}

/// Descriptors that tell when everyone whom a session watches has ended, those included that were made meanwhile.
#[derive(Debug)]
pub(crate) struct Ends(Vec<OwnedFd>);

impl Ends {
    /// Returns the ends of what these events watch.
    pub(crate) fn of<'a>(events: impl IntoIterator<Item = &'a Event>) -> io::Result<Self> {
        events.into_iter().map(Event::descriptor).collect::<io::Result<_>>().map(Self)
    }

    /// Returns whether all have ended: an event hangs up when its task and all that inherited it are gone.
    pub(crate) fn are_all(&self) -> bool {
        let mut polls: Vec<libc::pollfd> =
            self.0.iter().map(|fd| libc::pollfd { fd: fd.as_raw_fd(), events: 0, revents: 0 }).collect();
        // SAFETY: the slice is as long as its length says.
        unsafe { libc::poll(polls.as_mut_ptr(), polls.len() as libc::nfds_t, 0) };
        polls.iter().all(|poll| poll.revents & libc::POLLHUP != 0)
    }
}

/// Maps a ring, halving it while the user's share of locked memory does not suffice; the next CPU begins at that size.
pub(crate) fn map_as_permitted(leader: &Event, ring_bytes: &mut usize) -> io::Result<Ring> {
    const SMALLEST_BYTES: usize = 64 << 10;
    loop {
        match Ring::map(leader, *ring_bytes) {
            Err(error) if error.raw_os_error() == Some(libc::EPERM) && *ring_bytes > SMALLEST_BYTES => *ring_bytes /= 2,
            result => return result,
        }
    }
}

/// Returns the CPUs that are online.
pub(crate) fn online_cpus() -> io::Result<Vec<i32>> {
    let text = fs::read_to_string("/sys/devices/system/cpu/online")?;
    parse_cpus(text.trim()).ok_or_else(|| io::Error::other(format!("cannot understand the CPU list '{}'", text.trim())))
}

/// Parses a list such as `0-3,8,10-11`.
fn parse_cpus(list: &str) -> Option<Vec<i32>> {
    let mut cpus = Vec::new();
    for part in list.split(',') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last): (i32, i32) = (first.parse().ok()?, last.parse().ok()?);
        cpus.extend(first..=last);
    }
    Some(cpus)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cpu_lists_are_understood() {
        assert_eq!(parse_cpus("0-2,8,10-11"), Some(vec![0, 1, 2, 8, 10, 11]));
        assert_eq!(parse_cpus("0"), Some(vec![0]));
        assert_eq!(parse_cpus("a"), None);
    }
}
