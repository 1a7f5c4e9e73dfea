//! Drawing programs and schedules, and shortening those that fail.
//!
//! # A sequence
//! The schedules of a seed go round the worlds, under each design. In each such cell a program serves for [`GROUP`]
//! schedules: the first one lets each thread run until it stops, and shows which accesses touch what another thread
//! touches; the switches of the others are drawn among those, and now and then among all.

use std::collections::HashMap;

use faultless_explore::{Access, Arena, ArenaError, Failure, Machine, Policy, Random, Run, Switch, shrink};
use faultless_vm::registry::{self, Unknown};

use super::execution::{Order, Ran};
use super::line::Line;
use super::ops::{Op, Program, draw};
use super::worlds::{NR_CPUS, World};

/// Schedules of one program.
pub const GROUP: u64 = 16;
/// The memory of a world: enough for its children.
const ARENA_BYTES: usize = 1 << 20;
/// Steps after which a run of a small world is endless.
const STEP_LIMIT: u64 = 1_000_000;

/// Returns a machine for all worlds.
pub fn machine() -> Result<Machine, ArenaError> {
    let arena = Arena::new(ARENA_BYTES)?;
    Ok(Machine::with_arena(NR_CPUS, arena).with_step_limit(STEP_LIMIT))
}

/// A schedule that failed.
#[derive(Clone, Debug)]
pub struct Failed {
    /// The schedule.
    pub line: Line,
    /// What went wrong.
    pub failure: Failure,
    /// How many steps it took.
    pub nr_steps: u64,
}

/// The schedules of one design in one world.
pub struct Cell {
    design: String,
    semaphores: Vec<String>,
    world: &'static World,
    menus: Vec<Vec<Op>>,
    random: Random,
    nr_drawn: u64,
    program: Program,
    semaphore: String,
    profile: Profile,
}

/// What a program's first run showed, thread by thread.
#[derive(Default)]
struct Profile {
    threads: Vec<ThreadProfile>,
}

/// Steps of a thread before and after accesses to what others touch too.
#[derive(Default)]
struct ThreadProfile {
    /// How many steps there were.
    steps: u64,
    /// All of them.
    meetings: Vec<u64>,
    /// Those to tables, areas, spaces and pages.
    near: Vec<u64>,
    /// Of these, those after a write.
    marks: Vec<u64>,
}

impl Cell {
    /// Returns the cell's schedules under a seed.
    pub fn new(design: &str, semaphores: &[String], world: &'static World, seed: u64) -> Self {
        let name = design.bytes().chain(world.name.bytes());
        let mixed = name.fold(seed, |mixed, byte| mixed.wrapping_mul(0x100_0000_01b3) ^ u64::from(byte));
        Self {
            design: design.to_owned(),
            semaphores: semaphores.to_vec(),
            world,
            menus: world.menus(),
            random: Random::new(mixed),
            nr_drawn: 0,
            program: Program::default(),
            semaphore: String::new(),
            profile: Profile::default(),
        }
    }

    /// Returns the design's name.
    pub fn design(&self) -> &str {
        &self.design
    }

    /// Returns the world.
    pub fn world(&self) -> &'static World {
        self.world
    }

    /// Runs the next schedule.
    pub fn step(&mut self, machine: &Machine) -> Result<Option<Failed>, Unknown> {
        let is_first = self.nr_drawn.is_multiple_of(GROUP);
        if is_first {
            self.program = draw(&mut self.random, &self.menus, &self.world.warmth);
            self.semaphore.clone_from(self.random.one_of(&self.semaphores));
        }
        self.nr_drawn += 1;
        let policy = if is_first { self.in_turn() } else { self.draw_policy() };
        let ran = run(machine, self.world, (&self.design, &self.semaphore), &self.program, policy, is_first)?;
        if is_first {
            self.profile = Profile::of(&ran.run, |address| is_in_frame(machine, address));
        }
        Ok(ran.failure.clone().map(|failure| self.failed(ran.run, failure)))
    }

    fn failed(&self, run: Run, failure: Failure) -> Failed {
        let line = Line {
            design: self.design.clone(),
            semaphore: self.semaphore.clone(),
            world: self.world,
            mutant: None,
            program: self.program.clone(),
            first: run.first,
            switches: run.switches,
        };
        Failed { line, failure, nr_steps: run.steps.iter().sum() }
    }

    fn in_turn(&mut self) -> Policy {
        Policy::in_turn(self.random.below(self.program.parts.len() as u64) as usize)
    }

    fn draw_policy(&mut self) -> Policy {
        if self.random.one_in(4) {
            let period = *self.random.one_of(&[3, 10, 30, 100]);
            return Policy::Random { seed: self.random.below(u64::MAX), period };
        }
        let order = self.draw_order();
        let nr_drops = 1 + self.random.below(3) as usize;
        // Half of them stop one thread after the other, each where it leads.
        let leaders = order.iter().copied().cycle().take(nr_drops.min(order.len() - 1));
        let threads: Vec<usize> = match self.random.one_in(2) {
            true => leaders.collect(),
            false => (0..nr_drops).map(|_| *self.random.one_of(&order)).collect(),
        };
        let drops = threads.into_iter().filter_map(|thread| Some((thread, self.draw_step(thread)?))).collect();
        Policy::Priorities { order, drops }
    }

    /// Draws an order of priorities; half of them are the one that the world calls likely.
    fn draw_order(&mut self) -> Vec<usize> {
        let nr_threads = self.program.parts.len();
        if !self.world.likely.is_empty() && self.random.one_in(2) {
            return self.world.likely.iter().copied().filter(|&thread| thread < nr_threads).collect();
        }
        let mut order: Vec<usize> = (0..nr_threads).collect();
        self.random.shuffle(&mut order);
        order
    }

    /// Draws a step of a thread's, mostly one that matters to others.
    fn draw_step(&mut self, thread: usize) -> Option<u64> {
        let Self { random, profile, .. } = self;
        let own = profile.threads.get(thread)?;
        let places = [&own.marks, &own.marks, &own.near, &own.near, &own.meetings][random.below(5) as usize];
        if !places.is_empty() && !random.one_in(5) {
            return Some(*random.one_of(places));
        }
        Some(1 + random.below(own.steps))
    }
}

impl Profile {
    /// `is_near` says whether an address is in a frame, and not in the allocators' own words.
    fn of(run: &Run, is_near: impl Fn(usize) -> bool) -> Self {
        /// Who touched an address, and whether anybody wrote.
        #[derive(Default)]
        struct Touched {
            threads: u64,
            is_written: bool,
        }
        let place = |access: &Access| (access.address, access.life);
        let mut touched: HashMap<(usize, u32), Touched> = HashMap::new();
        for access in &run.accesses {
            let touched = touched.entry(place(access)).or_default();
            touched.threads |= 1 << access.thread;
            touched.is_written |= access.is_write;
        }
        let meets = |access: &Access| {
            touched.get(&place(access)).is_some_and(|touched| touched.is_written && touched.threads.count_ones() > 1)
        };
        let mut threads: Vec<ThreadProfile> =
            run.steps.iter().map(|&steps| ThreadProfile { steps, ..ThreadProfile::default() }).collect();
        for access in run.accesses.iter().filter(|access| meets(access)) {
            let own = &mut threads[access.thread];
            own.meetings.extend([access.step, access.step + 1]);
            if is_near(access.address) {
                own.near.extend([access.step, access.step + 1]);
                own.marks.extend(access.is_write.then_some(access.step + 1));
            }
        }
        Self { threads }
    }
}

/// Says whether an address is in a frame: one 64th of the arena, at its start, is what is known of the frames.
fn is_in_frame(machine: &Machine, address: usize) -> bool {
    machine.arena().is_some_and(|arena| {
        let offset = address.wrapping_sub(arena.base().as_ptr().addr());
        (arena.len_bytes() / 64..arena.len_bytes()).contains(&offset)
    })
}

/// Runs one schedule of a program.
fn run(
    machine: &Machine,
    world: &'static World,
    names: (&str, &str),
    program: &Program,
    policy: Policy,
    noting: bool,
) -> Result<Ran, Unknown> {
    registry::with_design(names.0, names.1, Order { machine, world, program, policy, noting })
}

/// Replays a schedule; returns what went wrong, if anything did.
pub fn replay(machine: &Machine, line: &Line) -> Result<Option<Failed>, Unknown> {
    let policy = Policy::Replay { first: line.first, switches: line.switches.clone() };
    let ran = run(machine, line.world, (&line.design, &line.semaphore), &line.program, policy, false)?;
    let nr_steps = ran.run.steps.iter().sum();
    Ok(ran.failure.map(|failure| Failed { line: line.clone(), failure, nr_steps }))
}

/// Returns a schedule that still fails, with fewer operations and switches, as far as any is found.
pub fn shorten(machine: &Machine, failed: &Failed) -> Failed {
    let mut best = failed.clone();
    loop {
        let before = (count_ops(&best.line.program), best.line.switches.len());
        best = without_switches(machine, best);
        best = without_ops(machine, best);
        if (count_ops(&best.line.program), best.line.switches.len()) == before {
            return best;
        }
    }
}

fn count_ops(program: &Program) -> usize {
    program.parts.iter().map(|part| part.ops.len() + usize::from(part.is_warm)).sum()
}

fn fails(machine: &Machine, line: &Line) -> Option<Failed> {
    replay(machine, line).ok().flatten()
}

fn without_switches(machine: &Machine, failed: Failed) -> Failed {
    let line = failed.line.clone();
    let with = |switches: &[Switch]| Line { switches: switches.to_vec(), ..line.clone() };
    let fewer = shrink(line.switches.clone(), |switches| fails(machine, &with(switches)).is_some());
    fails(machine, &with(&fewer)).unwrap_or(failed)
}

/// Leaves out single operations, with the switches as they are or with new ones.
fn without_ops(machine: &Machine, failed: Failed) -> Failed {
    let mut best = failed;
    let mut place = (0, 0);
    while place.0 < best.line.program.parts.len() {
        if place.1 >= best.line.program.parts[place.0].ops.len() {
            place = (place.0 + 1, 0);
            continue;
        }
        let mut line = best.line.clone();
        line.program.parts[place.0].ops.remove(place.1);
        match fails(machine, &line).or_else(|| fails_somehow(machine, &line)) {
            Some(shorter) => best = shorter,
            None => place.1 += 1,
        }
    }
    best
}

/// Tries other schedules of a line's program.
fn fails_somehow(machine: &Machine, line: &Line) -> Option<Failed> {
    const TRIES: u64 = 4 * GROUP;
    let mut cell = Cell::new(&line.design, std::slice::from_ref(&line.semaphore), line.world, 0);
    cell.program = line.program.clone();
    cell.semaphore.clone_from(&line.semaphore);
    let first = Policy::in_turn(line.first);
    let ran = run(machine, line.world, (&line.design, &line.semaphore), &line.program, first, true).ok()?;
    cell.profile = Profile::of(&ran.run, |address| is_in_frame(machine, address));
    for _ in 0..TRIES {
        let policy = cell.draw_policy();
        let ran = run(machine, line.world, (&line.design, &line.semaphore), &line.program, policy, false).ok()?;
        if let Some(failure) = ran.failure {
            let failed = cell.failed(ran.run, failure);
            return Some(Failed { line: Line { mutant: line.mutant.clone(), ..failed.line }, ..failed });
        }
    }
    None
}
