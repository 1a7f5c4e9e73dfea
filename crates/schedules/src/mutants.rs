//! The mutants' table: which known bugs the schedules find, how soon, and what keeps the others out.
//!
//! # Guarantee
//! Every mutant meets the worlds, designs, semaphores and seeds that the unbroken code meets. A number is the count of
//! schedules that a mutant survived before the first that failed. A rare bug is looked for in the worlds that are about
//! it alone; the unbroken code meets those of all rare bugs as often, after all worlds.
//!
//! The orderings of [`WEAK_ORDERS`] are mutants that no schedule can find; the table names the model test that does.

use faultless_linux::space::has_interrupt;
pub use faultless_platform::mutants::Mutant;
pub use faultless_platform::mutants::orders::{Noticed, WEAK_ORDERS, WeakOrder};

use super::explore::{ExploreError, ExploreSetup, in_parallel, survives};
use super::search::Failed;
use super::worlds::World;

/// What stands in a row of the table.
#[derive(Clone, Copy, Debug)]
pub enum Entry {
    /// The bug is put back, at this place.
    PutBack(Mutant, &'static str),
    /// It can't happen here, because of this.
    Excluded(&'static str),
}

/// A known bug.
#[derive(Clone, Copy, Debug)]
pub struct KnownBug {
    /// Its number in the project's list; none for those that a review of this code suggested.
    pub number: Option<u32>,
    /// What it was.
    pub name: &'static str,
    /// What stands for it.
    pub entry: Entry,
    /// The worlds that are about it, if it is too rare to be found among all of them; else none.
    pub worlds: &'static [&'static str],
}

impl KnownBug {
    const fn rare(self, worlds: &'static [&'static str]) -> Self {
        Self { worlds, ..self }
    }
}

const fn listed(number: u32, name: &'static str, entry: Entry) -> KnownBug {
    KnownBug { number: Some(number), name, entry, worlds: &[] }
}

const fn reviewed(name: &'static str, entry: Entry) -> KnownBug {
    KnownBug { number: None, name, entry, worlds: &[] }
}

use Entry::{Excluded, PutBack};
use Mutant as M;

/// The table.
pub const KNOWN_BUGS: &[KnownBug] = &[
    listed(
        1,
        "fork beside speculative faults (fb49c455323f)",
        PutBack(M::ForkUnannounced, "space::fork: areas are not told"),
    ),
    listed(
        2,
        "StackRot (CVE-2023-3269)",
        PutBack(M::StackGrowthUnderRead, "space::stack, index::edit: grows under the read lock, frees nodes at once"),
    ),
    listed(
        3,
        "merge decided before locking (c46000458d57)",
        PutBack(M::RootSetWithoutLock, "design::vma_lock: a fault under the area's lock gives the root"),
    ),
    listed(
        4,
        "area used again under a lookup (ef626c1698c1)",
        PutBack(M::AreaReused, "space, design::spf_v11: areas are freed at once, and not counted"),
    ),
    listed(
        5,
        "free link inside the area (107d21077790)",
        PutBack(M::AreaSharesFreeLink, "phys::slab, design::vma_lock: bounds read first, over the link"),
    ),
    listed(
        6,
        "fault without a root (e032f8a340e0)",
        PutBack(M::FaultWithoutRoot, "design: a first store is not left to the semaphore"),
    ),
    listed(
        7,
        "walkers without the areas' locks (49b0638502da)",
        PutBack(M::ProtectUnannounced, "space::protect: areas are not told"),
    ),
    listed(
        8,
        "mremap's late flush (CVE-2018-18281)",
        PutBack(M::MoveFlushedLate, "space::remap: flushes after the lock"),
    )
    .rare(&["carry"]),
    listed(
        9,
        "flush outside the table's lock (60bae7370896)",
        PutBack(M::ClearedThenFlushedUnlocked, "fault::copy: the lock is dropped before the flush"),
    ),
    listed(
        10,
        "a second zapper does not flush (3ea277194daa)",
        PutBack(M::GathersIgnored, "gather: others at work are ignored"),
    ),
    listed(11, "Dirty COW (CVE-2016-5195)", PutBack(M::RetriedAsLoad, "guest: a store is tried again as a load")),
    listed(
        12,
        "sharing decided by mapcount (CVE-2020-29374)",
        PutBack(M::ReuseByMapcount, "fault::copy: other holders do not count"),
    ),
    listed(13, "tables freed under walkers (CVE-2024-50066)", PutBack(M::TablesFreedAtOnce, "frames: no grace period")),
    listed(
        14,
        "anon_vma used again (CVE-2022-42703)",
        Excluded(
            "missing feature: there is no anon_vma to use again. A root is a number of 64 bits that Vm::fresh_root gives \
             once; nothing is counted, freed or reached through it",
        ),
    ),
    listed(15, "reference count wraps (CVE-2019-11487)", PutBack(M::CountWraps, "phys::page: no limit, four bits")),
    listed(
        16,
        "page of zeros counted",
        PutBack(M::ZeroPageCounted, "instance, fault::anonymous: counted like any other"),
    ),
    listed(17, "page of zeros writable", PutBack(M::ZeroPageWritable, "fault::copy: made writable in place")),
    listed(
        18,
        "teardown twice (f798a1d4f94d)",
        PutBack(M::LastUserTooEarly, "space::life: who is last is decided after it has left"),
    ),
    listed(19, "sequence wraps (CVE-2018-17182)", PutBack(M::SequenceWraps, "sync::seqcount: two bits")),
    listed(20, "stack clash (CVE-2017-1000364)", PutBack(M::GapOfOnePage, "space::stack: a gap of one page")),
    listed(
        21,
        "lost wake-up of the rw-semaphore",
        PutBack(M::StealForgetsLine, "sync::rwsem: a thief clears the waiters' bit"),
    ),
    listed(
        22,
        "a merge missed for 15 years",
        PutBack(M::MergeComparesWrongSide, "area: the lower one's root is not compared"),
    ),
    reviewed(
        "no check after the walk",
        Excluded(
            "without it nothing goes wrong: whoever commits looks again under the table's lock (design::speculation)",
        ),
    ),
    reviewed("no check under the table's lock", PutBack(M::NoCheckUnderLock, "design::speculation")),
    reviewed("frames given back before the flush", PutBack(M::PutBeforeFlush, "gather")),
    reviewed("removed areas are not told", PutBack(M::RemovedUnannounced, "space::change")),
    reviewed("tables without an RCU section", PutBack(M::TablesUnheld, "design::speculation")),
    reviewed("index nodes without an RCU section", PutBack(M::NodesUnheld, "design::spf_srcu, design::vma_lock")),
    reviewed("lookers on other CPUs are not waited for", PutBack(M::LookersIgnored, "space: no grace period")),
    reviewed("lookers in a lane are not noted", PutBack(M::LaneLookersUnnoted, "index, space::lane_rooms"))
        .rare(&["busy"]),
    reviewed("forgotten lookers are not waited for", PutBack(M::ForgottenLookersUnawaited, "sync::lookers, index"))
        .rare(&["lately"]),
    reviewed("a change is not noted in the stamps", PutBack(M::ChangeUnstamped, "space::lookups")).rare(&["recall"]),
    reviewed("stamps are not compared", PutBack(M::StampsIgnored, "design::recall")).rare(&["recall"]),
    reviewed("lookup without the index lock", PutBack(M::IndexReadUnlocked, "design::spf_v11")),
    reviewed("update without the index lock", PutBack(M::IndexWrittenUnlocked, "design::spf_v9, design::spf_v11")),
    reviewed("a change does not wait for faults", PutBack(M::FaultsUnawaited, "design::faultless")),
    reviewed("an announced change is not noticed", PutBack(M::AnnouncementIgnored, "design::faultless")),
    reviewed("an area's bounds are not looked at again", PutBack(M::BoundsIgnored, "design::faultless")),
    reviewed("a copy leaves an entry that others fill", PutBack(M::CopyLeavesEmpty, "fault::copy")),
    reviewed("a move without the source's table lock", PutBack(M::MoveUnlocked, "space::remap")),
    reviewed("a kept source is not told", PutBack(M::KeptSourceUnannounced, "space::remap")),
    reviewed("a fault beside a removal does not wait", PutBack(M::RemovalUnawaited, "space::removal")),
    reviewed("a writer relies on a root that a fault gives", PutBack(M::RootUnpinned, "area")),
    reviewed("a change is announced for its first page alone", PutBack(M::RangeTooShort, "space::change"))
        .rare(&["late"]),
    reviewed("nobody waits for what leaves", PutBack(M::DepartureUnawaited, "space::departure")),
    reviewed("a CPU comes into a lane after it walked", PutBack(M::LaneEnteredLate, "hardware, guest")),
    reviewed("who is asked is read before entries go", PutBack(M::LaneReadEarly, "translations::shootdown, gather")),
    reviewed("a CPU that drained stays out of its lane", PutBack(M::LaneNotRejoined, "translations::shootdown")),
    reviewed("a CPU is let go of the users alone", PutBack(M::LetGoOfUsersAlone, "translations::shootdown, lanes"))
        .rare(&["return"]),
    reviewed("a CPU is let go beside its own fault", PutBack(M::LetGoInASection, "translations::shootdown"))
        .rare(&["busy"]),
    reviewed("a table of several lanes goes with one", PutBack(M::TableOfOneLane, "translations::gather"))
        .rare(&["verge"]),
    reviewed("a change waits for its first lane's faults", PutBack(M::FaultsOfOneLane, "design::faultless")),
    reviewed("a part is not widened to its areas", PutBack(M::PartNotWidened, "space::ranges")),
    reviewed("what a part is, was chosen before the wait", PutBack(M::ChosenBeforeTheWait, "sync::range_lock"))
        .rare(&["hint"]),
    reviewed("the index is edited beside other edits", PutBack(M::EditOfOldVersion, "space::change")),
    reviewed("a table is freed that others have a part of", PutBack(M::TablesOfOthersFreed, "space::holes"))
        .rare(&["apart"]),
    reviewed("who wants everything waits for no part", PutBack(M::PartsUnawaited, "sync::range_lock")),
    reviewed("a part reaches over its lane's bound", PutBack(M::LaneBoundTouched, "space::lane_rooms"))
        .rare(&["bounds"]),
    reviewed("nobody sees an area of several lanes", PutBack(M::CrossingUnseen, "space::lane_rooms")),
    reviewed("a lane's hole is thought to go on beyond it", PutBack(M::HoleBeyondLane, "space::holes"))
        .rare(&["bounds"]),
    reviewed("a part is entered in a table that lost its place", PutBack(M::TableOfBefore, "sync::range_lock"))
        .rare(&["annex"]),
    reviewed("a lane comes over what others have a part of", PutBack(M::AnnexOverParts, "space::annexes"))
        .rare(&["annex"]),
    reviewed("an area stays behind when its lane comes", PutBack(M::AreaLeftBehind, "space::annexes")).rare(&["annex"]),
    reviewed(
        "who used a space before its lanes came is asked no more",
        PutBack(M::UsersLeftBehind, "translations::lanes"),
    )
    .rare(&["second"]),
    reviewed("a new user overlooks lanes that come", PutBack(M::LanesOverlooked, "translations::lanes"))
        .rare(&["second"]),
    reviewed("a part's holder looks up without an RCU section", PutBack(M::PartLooksUnheld, "space::permit"))
        .rare(&["apart"]),
    reviewed("a table that others have is taken", PutBack(M::SharedTableTaken, "translations::sharing"))
        .rare(&["family"]),
    reviewed("the way to a table is not shot down", PutBack(M::SharedTableUnflushed, "translations::sharing"))
        .rare(&["stray"]),
    reviewed(
        "a shared page stays writable when its table is copied",
        PutBack(M::SharedEntriesWritable, "translations::sharing"),
    )
    .rare(&["family"]),
    reviewed("the parent stores through a shared table", PutBack(M::SharedTableWritable, "translations::sharing"))
        .rare(&["family"]),
    reviewed("a child is listed before it is whole", PutBack(M::ChildListedEarly, "space::fork")),
    reviewed(
        "a visitor's reference brings a space back",
        PutBack(M::SpaceResurrected, "space::spaces: one of which no reference is left is visited"),
    ),
    reviewed("a space leaves the list when it has ended", PutBack(M::SpaceUnlinkedLate, "space::life")),
    reviewed(
        "the last page's end is zeroed while the page may go",
        PutBack(M::TailZeroedUnheld, "object::removal: without the object's lock of changes"),
    ),
    reviewed(
        "two removals of one object overlap",
        PutBack(M::RemovalsOverlap, "object::removal: nobody takes the object's lock of changes"),
    ),
    reviewed("a removed page is freed at once", PutBack(M::RemovedPageUnawaited, "object::removal: no grace period"))
        .rare(&["shrink"]),
    reviewed(
        "a page is removed beside an unmapping that will shoot it down",
        PutBack(M::RemovalBesideDeparture, "space::truncate: what leaves is not waited for"),
    )
    .rare(&["leave"]),
    reviewed("a fetch beside a removal is cached", PutBack(M::FetchedBesideRemoval, "object")),
    reviewed(
        "a page given up goes although it was stored to",
        PutBack(M::GivenUpUnchecked, "translations::zap: the entry is not looked at again"),
    ),
    reviewed("a reference page is counted", PutBack(M::ReferencePageCounted, "reference, fault::reference")),
    reviewed("a reference page is writable", PutBack(M::ReferencePageWritable, "fault::copy: made writable in place")),
    reviewed("a reference page goes with its handle", PutBack(M::ReferenceFreedWhileMapped, "reference")),
    reviewed("a pin does not hold a reference page", PutBack(M::ReferenceFreedWhilePinned, "pin")),
    reviewed("areas of two reference pages are joined", PutBack(M::ReferencesMerged, "area")),
    reviewed("a child loses the reference page", PutBack(M::ReferenceLostAtFork, "space::fork")),
    reviewed(
        "dropped pages of a reference come back as zeros",
        PutBack(M::ReferenceZeroAfterDontNeed, "fault::reference"),
    ),
    reviewed("an owner that has gone is still named", PutBack(M::OwnerStale, "sync::rwsem::owner")),
    reviewed("a spinner waits for an owner off its CPU", PutBack(M::OwnerTrusted, "sync::rwsem::spin")),
    reviewed(
        "no SRCU section",
        Excluded(
            "an area waits for RCU, too, behind SRCU, and the section that keeps the nodes lasts as long (design::spf_srcu)",
        ),
    ),
    reviewed(
        "no look at the sequence before the table's lock",
        Excluded(
            "what lies between this look and the one under the lock is kept by the RCU section and changes nothing",
        ),
    ),
    reviewed(
        "no look at the parent's entry",
        Excluded(
            "a table goes only with the areas that it spans, whose sequences are odd for good before its lock is taken to empty it",
        ),
    ),
];

/// How a bug fared.
#[derive(Clone, Debug)]
pub struct Row {
    /// The bug.
    pub bug: KnownBug,
    /// For each seed, how many schedules it survived; none for a bug that is excluded.
    pub survived: Vec<u64>,
    /// How many seeds found it.
    pub nr_killed: usize,
    /// One failure.
    pub example: Option<Failed>,
}

/// The whole table.
#[derive(Clone, Debug)]
pub struct Table {
    /// Schedules of each seed.
    pub runs: u64,
    /// The seeds.
    pub seeds: Vec<u64>,
    /// How the code without mutants fared; nothing if an interrupt came before.
    pub unbroken: Option<Row>,
    /// How the bugs did.
    pub rows: Vec<Row>,
    /// Whether all of them are there: an interrupt leaves out the one at work and those behind it.
    pub is_whole: bool,
}

impl Row {
    /// Returns the median of what was survived, the lower one of two.
    pub fn median(&self) -> Option<u64> {
        let mut sorted = self.survived.clone();
        sorted.sort_unstable();
        sorted.get(sorted.len().checked_sub(1)? / 2).copied()
    }

    /// Returns the most that was survived.
    pub fn worst(&self) -> Option<u64> {
        self.survived.iter().max().copied()
    }

    /// Says whether every seed found it, or it is excluded.
    pub fn is_settled(&self) -> bool {
        self.nr_killed == self.survived.len()
    }
}

impl Table {
    /// Says whether the unbroken code survived all, and no mutant did.
    pub fn is_clean(&self) -> bool {
        self.unbroken.iter().all(|row| row.nr_killed == 0) && self.rows.iter().all(Row::is_settled)
    }
}

/// How far the table is.
#[derive(Clone, Copy, Debug)]
pub enum Step<'a> {
    /// A bug is put back now.
    Begun(&'a KnownBug),
    /// One more seed is done with it.
    Seed,
    /// Its row is complete.
    Ended(&'a Row),
}

/// Returns how many [`Step::Seed`]s a table of `nr_seeds` seeds has.
pub fn nr_steps(nr_seeds: u64) -> u64 {
    let nr_put_back = KNOWN_BUGS.iter().filter(|bug| matches!(bug.entry, PutBack(..))).count() as u64;
    nr_seeds * (nr_put_back + 1)
}

/// Runs the unbroken code and every mutant, under `nr_seeds` seeds from the setup's on.
pub fn table(setup: &ExploreSetup, nr_seeds: u64, progress: &(dyn Fn(Step<'_>) + Sync)) -> Result<Table, ExploreError> {
    let seeds: Vec<u64> = (0..nr_seeds).map(|number| setup.seed.wrapping_add(number)).collect();
    let bugs = KNOWN_BUGS.iter().copied();
    let unbroken = reviewed("no mutant", Excluded(""));
    let mut rows = Vec::new();
    for bug in std::iter::once(unbroken).chain(bugs) {
        progress(Step::Begun(&bug));
        let row = row(setup, bug, rows.is_empty(), &seeds, progress)?;
        if has_interrupt() {
            break;
        }
        rows.push(row);
        rows.last().into_iter().for_each(|row| progress(Step::Ended(row)));
    }
    let is_whole = rows.len() == KNOWN_BUGS.len() + 1;
    let unbroken = if rows.is_empty() { None } else { Some(rows.remove(0)) };
    Ok(Table { runs: setup.runs, seeds, unbroken, rows, is_whole })
}

fn row(
    setup: &ExploreSetup,
    bug: KnownBug,
    is_unbroken: bool,
    seeds: &[u64],
    progress: &(dyn Fn(Step<'_>) + Sync),
) -> Result<Row, ExploreError> {
    let mutant = match bug.entry {
        PutBack(mutant, _) => Some(mutant),
        Excluded(_) if is_unbroken => None,
        Excluded(_) => return Ok(Row { bug, survived: Vec::new(), nr_killed: 0, example: None }),
    };
    let about =
        |bug: &KnownBug| setup.worlds.iter().copied().filter(|world| bug.worlds.contains(&world.name)).collect();
    let mut turns: Vec<Vec<&'static World>> = vec![about(&bug)];
    if turns[0].is_empty() {
        turns[0].clone_from(&setup.worlds);
    }
    if is_unbroken {
        turns.push(KNOWN_BUGS.iter().flat_map(about).collect());
    }
    let results = in_parallel(setup.jobs, seeds.to_vec(), |seed| {
        let setup = ExploreSetup { seed, mutant, ..setup.clone() };
        let result = survives_all(&setup, &turns);
        progress(Step::Seed);
        result
    })?;
    let nr_killed = results.iter().filter(|(_, failed)| failed.is_some()).count();
    let example = results.iter().find_map(|(_, failed)| failed.clone());
    Ok(Row { bug, survived: results.into_iter().map(|(survived, _)| survived).collect(), nr_killed, example })
}

/// As [`survives`], in each of several groups of worlds, with all schedules for each group.
fn survives_all(setup: &ExploreSetup, groups: &[Vec<&'static World>]) -> Result<(u64, Option<Failed>), ExploreError> {
    let mut survived = 0;
    for worlds in groups.iter().filter(|worlds| !worlds.is_empty()) {
        let (more, failed) = survives(&ExploreSetup { worlds: worlds.clone(), ..setup.clone() })?;
        survived += more;
        if failed.is_some() || has_interrupt() {
            return Ok((survived, failed));
        }
    }
    Ok((survived, None))
}
