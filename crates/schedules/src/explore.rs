//! Many schedules of many worlds under many designs.

use std::fmt;
use std::sync::atomic::{AtomicUsize, Ordering};

use faultless_explore::ArenaError;
use faultless_linux::space::has_interrupt;
use faultless_platform::mutants::Mutant;
use faultless_vm::registry::Unknown;

use super::line::Line;
use super::search::{Cell, Failed, machine, replay, shorten};
use super::worlds::World;

/// What to explore.
#[derive(Clone, Debug)]
pub struct ExploreSetup {
    /// Designs by name.
    pub designs: Vec<String>,
    /// Semaphores by name; each program gets one of them.
    pub semaphores: Vec<String>,
    /// Worlds.
    pub worlds: Vec<&'static World>,
    /// Names the sequence of schedules.
    pub seed: u64,
    /// How many schedules of each design, all worlds together.
    pub runs: u64,
    /// A bug to put back.
    pub mutant: Option<Mutant>,
    /// How many OS threads explore; makes no difference to what comes out.
    pub jobs: usize,
}

/// How the schedules of a cell went.
#[derive(Clone, Debug)]
pub struct CellOutcome {
    /// The design.
    pub design: String,
    /// The world.
    pub world: &'static World,
    /// How many schedules ran.
    pub runs: u64,
    /// The first one that failed, and its number among all of its design.
    pub failed: Option<(u64, Failed)>,
}

/// Why nothing was explored.
#[derive(Debug)]
pub enum ExploreError {
    /// A name that nobody knows.
    Unknown(Unknown),
    /// The host gave no room.
    Arena(ArenaError),
    /// A bug is to be put back, and this program was built without any.
    NoMutants,
    /// There is no such bug.
    UnknownMutant(String),
}

impl fmt::Display for ExploreError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unknown(name) => write!(f, "{name}"),
            Self::Arena(error) => write!(f, "{error}"),
            Self::NoMutants => write!(
                f,
                "this program has no mutants to put back: build it with them, \
                 `cargo run --release --features mutants -- check ...`"
            ),
            Self::UnknownMutant(name) => write!(f, "there is no mutant {name:?}"),
        }
    }
}

impl std::error::Error for ExploreError {}

impl From<Unknown> for ExploreError {
    fn from(unknown: Unknown) -> Self {
        Self::Unknown(unknown)
    }
}

impl From<ArenaError> for ExploreError {
    fn from(error: ArenaError) -> Self {
        Self::Arena(error)
    }
}

/// Puts a bug back on the calling OS thread, or none.
pub(super) fn choose(mutant: Option<Mutant>) -> Result<(), ExploreError> {
    #[cfg(feature = "mutants")]
    faultless_platform::mutants::choose(mutant);
    #[cfg(not(feature = "mutants"))]
    if mutant.is_some() {
        return Err(ExploreError::NoMutants);
    }
    Ok(())
}

impl ExploreSetup {
    /// Returns the turns of one round: each design in each world, as often as its weight says.
    ///
    /// The worlds of a design come in turn, and so do the designs: the n-th schedules of all designs come before the
    /// n + 1st of any.
    fn round(&self) -> Vec<usize> {
        let most = self.worlds.iter().map(|world| world.weight).max().unwrap_or(0);
        let places =
            (0..most).flat_map(|turn| (0..self.worlds.len()).filter(move |&place| turn < self.worlds[place].weight));
        places.collect()
    }

    fn cell(&self, design: &str, world: usize) -> Cell {
        Cell::new(design, &self.semaphores, self.worlds[world], self.seed)
    }

    /// Returns how many of a design's schedules are a world's, and the number of its n-th one.
    fn runs_of(&self, world: usize) -> u64 {
        let round = self.round();
        let (full, rest) = (self.runs / round.len() as u64, (self.runs % round.len() as u64) as usize);
        let turns = |turns: &[usize]| turns.iter().filter(|&&place| place == world).count() as u64;
        full * turns(&round) + turns(&round[..rest])
    }

    /// Returns the number, among its design's schedules, of the n-th one of a world.
    fn number_of(&self, world: usize, nth: u64) -> u64 {
        let round = self.round();
        let own: Vec<u64> = (0..round.len()).filter(|&turn| round[turn] == world).map(|turn| turn as u64).collect();
        let weight = own.len().max(1) as u64;
        nth / weight * round.len() as u64 + own.get((nth % weight) as usize).copied().unwrap_or(0)
    }
}

/// Explores; `progress` is told how many schedules more are done. Each cell ends with its first failure, or with an
/// interrupt.
pub fn explore(setup: &ExploreSetup, progress: &(dyn Fn(u64) + Sync)) -> Result<Vec<CellOutcome>, ExploreError> {
    choose(setup.mutant)?;
    let pairs = setup.designs.iter().flat_map(|design| (0..setup.worlds.len()).map(move |world| (design, world)));
    in_parallel(setup.jobs, pairs.collect(), |(design, world)| {
        choose(setup.mutant)?;
        run_cell(setup, setup.cell(design, world), world, progress)
    })
}

fn run_cell(
    setup: &ExploreSetup,
    mut cell: Cell,
    world: usize,
    progress: &(dyn Fn(u64) + Sync),
) -> Result<CellOutcome, ExploreError> {
    const TOLD: u64 = 64;
    let (machine, runs) = (machine()?, setup.runs_of(world));
    let mut failed = None;
    let mut done = 0;
    while done < runs && failed.is_none() && !has_interrupt() {
        failed = cell.step(&machine)?.map(|failed| (setup.number_of(world, done), failed));
        done += 1;
        if done.is_multiple_of(TOLD) {
            progress(TOLD);
        }
    }
    progress(done % TOLD);
    Ok(CellOutcome { design: cell.design().to_owned(), world: cell.world(), runs: done, failed })
}

/// Does pieces of work on several OS threads; the results come in the order of the work.
///
/// Each piece gets a thread of its own: a run that failed leaves its OS thread with a panic that never ended.
pub(super) fn in_parallel<W: Send, R: Send, E: Send>(
    jobs: usize,
    work: Vec<W>,
    act: impl Fn(W) -> Result<R, E> + Sync,
) -> Result<Vec<R>, E> {
    let nr_pieces = work.len();
    let pieces: Vec<std::sync::Mutex<Option<W>>> = work.into_iter().map(|piece| Some(piece).into()).collect();
    let results: Vec<std::sync::Mutex<Option<Result<R, E>>>> = (0..nr_pieces).map(|_| None.into()).collect();
    let next = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for _ in 0..jobs.clamp(1, nr_pieces.max(1)) {
            scope.spawn(|| {
                while let Some(place) = Some(next.fetch_add(1, Ordering::Relaxed)).filter(|&place| place < nr_pieces) {
                    let piece = super::execution::lock(&pieces[place]).take();
                    let result = std::thread::scope(|scope| scope.spawn(|| piece.map(&act)).join());
                    match result {
                        Ok(result) => *super::execution::lock(&results[place]) = result,
                        Err(panic) => std::panic::resume_unwind(panic),
                    }
                }
            });
        }
    });
    let taken = results.into_iter().map(|result| result.into_inner().unwrap_or_else(|poison| poison.into_inner()));
    taken.map(|result| result.expect("every piece was done")).collect()
}

/// A failure with the shortest schedule that was found for it.
#[derive(Clone, Debug)]
pub struct Shortened {
    /// As it happened.
    pub failed: Failed,
    /// As short as it became.
    pub shortest: Failed,
}

/// Looks for a shorter schedule that fails.
pub fn shortened(setup: &ExploreSetup, failed: &Failed) -> Result<Shortened, ExploreError> {
    let failed = Failed { line: named(failed.line.clone(), setup.mutant), ..failed.clone() };
    on_a_thread(|| {
        choose(setup.mutant)?;
        let shortest = shorten(&machine()?, &failed);
        Ok(Shortened { failed: failed.clone(), shortest })
    })
}

fn named(line: Line, mutant: Option<Mutant>) -> Line {
    Line { mutant: mutant.map(|mutant| mutant.name().to_owned()), ..line }
}

/// Returns the mutant of a name.
pub fn mutant_named(name: &str) -> Result<Mutant, ExploreError> {
    let found = Mutant::ALL.into_iter().find(|mutant| mutant.name() == name);
    found.ok_or_else(|| ExploreError::UnknownMutant(name.to_owned()))
}

/// Replays a line; returns what went wrong, if anything did.
pub fn replay_line(line: &Line) -> Result<Option<Failed>, ExploreError> {
    let mutant = line.mutant.as_deref().map(mutant_named).transpose()?;
    on_a_thread(|| {
        choose(mutant)?;
        Ok(replay(&machine()?, line)?)
    })
}

/// Runs `act` on an OS thread of its own: see [`in_parallel`].
fn on_a_thread<R: Send>(act: impl FnOnce() -> R + Send) -> R {
    match std::thread::scope(|scope| scope.spawn(act).join()) {
        Ok(result) => result,
        Err(panic) => std::panic::resume_unwind(panic),
    }
}

/// Counts the schedules of each design until the first failure under any: how many a mutant survives.
pub(super) fn survives(setup: &ExploreSetup) -> Result<(u64, Option<Failed>), ExploreError> {
    choose(setup.mutant)?;
    let machine = machine()?;
    let worlds = 0..setup.worlds.len();
    let mut cells: Vec<Vec<Cell>> =
        setup.designs.iter().map(|design| worlds.clone().map(|world| setup.cell(design, world)).collect()).collect();
    let round = setup.round();
    for number in 0..setup.runs {
        if has_interrupt() {
            return Ok((number, None));
        }
        let world = round[(number % round.len() as u64) as usize];
        for cells in &mut cells {
            let failed = cells[world].step(&machine)?;
            if failed.is_some() {
                return Ok((number, failed));
            }
        }
    }
    Ok((setup.runs, None))
}
