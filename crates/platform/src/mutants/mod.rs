//! Known bugs, put back one at a time: the feature `mutants`.
//!
//! # Guarantee
//! Without the feature [`mutant!`](crate::mutant) is its first argument: the compiler sees nothing of a mutant. With it,
//! one mutant at most is on, on the OS thread that chose it, and only there.
//!
//! A mutant stands at the place where the bug happened: `mutant!(Name, right => wrong)`. What they are for, and
//! which of them dies how, is in `docs/schedules.md`. `mutants::orders` (feature `std`) has those of another kind:
//! orderings, which no schedule shows.

#[cfg(feature = "std")]
pub mod orders;

/// A bug that can be put back.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Mutant {
    /// Fork announces no change to the areas that it copies (fb49c455323f).
    ForkUnannounced = 1,
    /// A stack grows under the read lock, and index nodes are freed while readers walk them (CVE-2023-3269).
    StackGrowthUnderRead,
    /// Whether areas merge is decided by a root that a fault is about to set (c46000458d57).
    RootSetWithoutLock,
    /// An area is freed at once, and a fault that found it does not look again whether it is the one (ef626c1698c1).
    AreaReused,
    /// An area's words are used for the deferred free while readers may look at them (107d21077790).
    AreaSharesFreeLink,
    /// A speculative fault maps a page into an area without a root (e032f8a340e0).
    FaultWithoutRoot,
    /// mprotect walks the entries without announcing it to the area's faults (49b0638502da).
    ProtectUnannounced,
    /// mremap lets go of its lock before it takes the old translations away (CVE-2018-18281).
    MoveFlushedLate,
    /// An entry is cleared under the table's lock, and shot down after it (60bae7370896).
    ClearedThenFlushedUnlocked,
    /// A second zapper that finds nothing does not wait for the first one's flush (3ea277194daa).
    GathersIgnored,
    /// A store that broke a sharing once is tried again as a load (CVE-2016-5195).
    RetriedAsLoad,
    /// A page counts as nobody else's by its mappings in this space alone (CVE-2020-29374).
    ReuseByMapcount,
    /// A page table is freed while walkers may hold it (CVE-2024-50066).
    TablesFreedAtOnce,
    /// A frame's count of references wraps (6b3a70773630).
    CountWraps,
    /// The page of zeros is counted like any other.
    ZeroPageCounted,
    /// A store makes the page of zeros writable.
    ZeroPageWritable,
    /// Who ends last is decided before it has gone (f798a1d4f94d).
    LastUserTooEarly,
    /// A sequence count of two bits (CVE-2018-17182).
    SequenceWraps,
    /// A stack keeps a gap of one page instead of 256 (CVE-2017-1000364).
    GapOfOnePage,
    /// A writer that steals the lock forgets those in line (5.11 to 5.16).
    StealForgetsLine,
    /// A merge is missed because the wrong side's root is compared.
    MergeComparesWrongSide,
    /// A speculative fault does not look again under the table's lock.
    NoCheckUnderLock,
    /// Frames are given back before the translations are gone.
    PutBeforeFlush,
    /// A change is not announced to the areas that it removes.
    RemovedUnannounced,
    /// A speculative fault uses page tables outside an RCU section.
    TablesUnheld,
    /// A fault looks the index up outside an RCU section, where nothing else keeps its nodes.
    NodesUnheld,
    /// Nodes, areas and tables are freed at once also where other CPUs look without the semaphore.
    LookersIgnored,
    /// Whoever looks into a lane's index does not note it: what others take away there is used again at once.
    LaneLookersUnnoted,
    /// Who has looked into a lane's index is forgotten at once, not when its section has ended.
    ForgottenLookersUnawaited,
    /// A change is not noted in the stamps by which faults go that recall an area.
    ChangeUnstamped,
    /// A fault recalls an area whatever the stamps are.
    StampsIgnored,
    /// A speculative fault looks the index up without its lock.
    IndexReadUnlocked,
    /// A change does not wait for the faults that began before it was announced.
    FaultsUnawaited,
    /// A fault does not look whether a change was announced.
    AnnouncementIgnored,
    /// A fault does not look whether the area that it found still holds the address.
    BoundsIgnored,
    /// A copy on write leaves an empty entry for the time of its shootdown, although faults fill such without a lock.
    CopyLeavesEmpty,
    /// The index is changed without its lock.
    IndexWrittenUnlocked,
    /// A move takes entries out of a table without the table's lock.
    MoveUnlocked,
    /// The source of a move that stays is not told.
    KeptSourceUnannounced,
    /// A fault that misses an area does not wait for the removal that is under way.
    RemovalUnawaited,
    /// A writer relies on an area's having no reverse-map root without keeping faults from giving it one.
    RootUnpinned,
    /// A change of several pages is announced for the first one alone.
    RangeTooShort,
    /// Who is about addresses that a departure still has does not wait for its end.
    DepartureUnawaited,
    /// A CPU comes into a lane's set after it has walked there.
    LaneEnteredLate,
    /// Whom a shootdown asks is read before the entries are cleared.
    LaneReadEarly,
    /// A CPU that drained, and that somebody may have taken out of a lane's set, does not come back into it.
    LaneNotRejoined,
    /// A CPU is taken out of the space's users, and stays in lanes' sets.
    LetGoOfUsersAlone,
    /// A CPU is taken out of a lane's set beside a fault of its own that relies on that.
    LetGoInASection,
    /// A page table that serves several lanes is freed when one of them was asked.
    TableOfOneLane,
    /// A change waits for the faults of the first lane alone.
    FaultsOfOneLane,
    /// A writer has the range locked that it names, and not the areas that overlap or touch it.
    PartNotWidened,
    /// A writer that waited for a part locks what it chose before the wait.
    ChosenBeforeTheWait,
    /// The index is edited beside other edits.
    EditOfOldVersion,
    /// A page table is freed of which others have a part.
    TablesOfOthersFreed,
    /// Who wants everything does not wait for those who have parts.
    PartsUnawaited,
    /// A part that reaches its lane's bound is given out in that lane.
    LaneBoundTouched,
    /// Nobody notes that an area lies in several lanes.
    CrossingUnseen,
    /// Who has a part of a lane frees tables of a hole that others may fill.
    HoleBeyondLane,
    /// Who waited for a lane's table does not ask again whether its place is that lane's still.
    TableOfBefore,
    /// A lane is made of places that others hold a part of.
    AnnexOverParts,
    /// Who becomes a user while lanes come does not look for them again.
    LanesOverlooked,
    /// Who used the space before lanes came is not asked any more.
    UsersLeftBehind,
    /// A lane is made around an area, which stays in the index of before.
    AreaLeftBehind,
    /// Who has a part looks the index up outside an RCU section.
    PartLooksUnheld,
    /// Who finds a shared table takes it for his own, whoever else has it.
    SharedTableTaken,
    /// A space goes on to a table of its own without a shootdown.
    SharedTableUnflushed,
    /// A table is copied, and its entries keep the right to be written.
    SharedEntriesWritable,
    /// Fork lets the parent store through the table that the child gets.
    SharedTableWritable,
    /// Fork lists the child before it has edited the child's index and copied its entries.
    ChildListedEarly,
    /// Who goes along the list of spaces takes a reference to one whose last reference is gone.
    SpaceResurrected,
    /// A space leaves the list after it has ended, and is visited meanwhile.
    SpaceUnlinkedLate,
    /// A truncation zeroes the end of the last page while others may take the page away.
    TailZeroedUnheld,
    /// Two truncations or holes of one object are at work side by side.
    RemovalsOverlap,
    /// A page that was removed is freed without a grace period.
    RemovedPageUnawaited,
    /// A removal does not wait for what leaves a space that maps the object.
    RemovalBesideDeparture,
    /// A page that was fetched while its object was cut or punched is cached all the same.
    FetchedBesideRemoval,
    /// MADV_PAGEOUT takes an entry that was given up without another look whether it has become dirty.
    GivenUpUnchecked,
    /// A reference page is counted like any other.
    ReferencePageCounted,
    /// A store makes a reference page writable.
    ReferencePageWritable,
    /// A reference page is freed with its handle, although it is mapped.
    ReferenceFreedWhileMapped,
    /// A pin does not hold the reference page that it returns.
    ReferenceFreedWhilePinned,
    /// Areas of different reference pages are joined.
    ReferencesMerged,
    /// A child's area does not get the parent's reference page.
    ReferenceLostAtFork,
    /// Pages that MADV_DONTNEED dropped come back as zeros.
    ReferenceZeroAfterDontNeed,
    /// An MCS queue hands its head on without barriers (the seventh patch of the 2013 series).
    McsUnordered,
    /// A writer that goes leaves its name behind as the owner's (fixes of 5.11 to 5.16).
    OwnerStale,
    /// A spinner goes on beside an owner that does not run.
    OwnerTrusted,
}

impl Mutant {
    /// Those that only a weaker memory order or a model shows: no schedule finds them, a model test does.
    pub const MODELLED: [Self; 1] = [Self::McsUnordered];

    /// Every mutant that schedules can find.
    pub const ALL: [Self; 86] = [
        Self::ForkUnannounced,
        Self::StackGrowthUnderRead,
        Self::RootSetWithoutLock,
        Self::AreaReused,
        Self::AreaSharesFreeLink,
        Self::FaultWithoutRoot,
        Self::ProtectUnannounced,
        Self::MoveFlushedLate,
        Self::ClearedThenFlushedUnlocked,
        Self::GathersIgnored,
        Self::RetriedAsLoad,
        Self::ReuseByMapcount,
        Self::TablesFreedAtOnce,
        Self::CountWraps,
        Self::ZeroPageCounted,
        Self::ZeroPageWritable,
        Self::LastUserTooEarly,
        Self::SequenceWraps,
        Self::GapOfOnePage,
        Self::StealForgetsLine,
        Self::MergeComparesWrongSide,
        Self::NoCheckUnderLock,
        Self::PutBeforeFlush,
        Self::RemovedUnannounced,
        Self::TablesUnheld,
        Self::NodesUnheld,
        Self::LookersIgnored,
        Self::LaneLookersUnnoted,
        Self::ForgottenLookersUnawaited,
        Self::ChangeUnstamped,
        Self::StampsIgnored,
        Self::IndexReadUnlocked,
        Self::FaultsUnawaited,
        Self::AnnouncementIgnored,
        Self::BoundsIgnored,
        Self::CopyLeavesEmpty,
        Self::IndexWrittenUnlocked,
        Self::MoveUnlocked,
        Self::KeptSourceUnannounced,
        Self::RemovalUnawaited,
        Self::RootUnpinned,
        Self::RangeTooShort,
        Self::DepartureUnawaited,
        Self::LaneEnteredLate,
        Self::LaneReadEarly,
        Self::LaneNotRejoined,
        Self::LetGoOfUsersAlone,
        Self::LetGoInASection,
        Self::TableOfOneLane,
        Self::FaultsOfOneLane,
        Self::PartNotWidened,
        Self::ChosenBeforeTheWait,
        Self::EditOfOldVersion,
        Self::TablesOfOthersFreed,
        Self::PartsUnawaited,
        Self::LaneBoundTouched,
        Self::CrossingUnseen,
        Self::HoleBeyondLane,
        Self::TableOfBefore,
        Self::AnnexOverParts,
        Self::LanesOverlooked,
        Self::UsersLeftBehind,
        Self::AreaLeftBehind,
        Self::PartLooksUnheld,
        Self::SharedTableTaken,
        Self::SharedTableUnflushed,
        Self::SharedEntriesWritable,
        Self::SharedTableWritable,
        Self::ChildListedEarly,
        Self::SpaceResurrected,
        Self::SpaceUnlinkedLate,
        Self::TailZeroedUnheld,
        Self::RemovalsOverlap,
        Self::RemovedPageUnawaited,
        Self::RemovalBesideDeparture,
        Self::FetchedBesideRemoval,
        Self::GivenUpUnchecked,
        Self::ReferencePageCounted,
        Self::ReferencePageWritable,
        Self::ReferenceFreedWhileMapped,
        Self::ReferenceFreedWhilePinned,
        Self::ReferencesMerged,
        Self::ReferenceLostAtFork,
        Self::ReferenceZeroAfterDontNeed,
        Self::OwnerStale,
        Self::OwnerTrusted,
    ];

    /// Returns the name by which users choose it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::ForkUnannounced => "fork-unannounced",
            Self::StackGrowthUnderRead => "stack-growth-under-read",
            Self::RootSetWithoutLock => "root-set-without-lock",
            Self::AreaReused => "area-reused",
            Self::AreaSharesFreeLink => "area-shares-free-link",
            Self::FaultWithoutRoot => "fault-without-root",
            Self::ProtectUnannounced => "protect-unannounced",
            Self::MoveFlushedLate => "move-flushed-late",
            Self::ClearedThenFlushedUnlocked => "cleared-then-flushed-unlocked",
            Self::GathersIgnored => "gathers-ignored",
            Self::RetriedAsLoad => "retried-as-load",
            Self::ReuseByMapcount => "reuse-by-mapcount",
            Self::TablesFreedAtOnce => "tables-freed-at-once",
            Self::CountWraps => "count-wraps",
            Self::ZeroPageCounted => "zero-page-counted",
            Self::ZeroPageWritable => "zero-page-writable",
            Self::LastUserTooEarly => "last-user-too-early",
            Self::SequenceWraps => "sequence-wraps",
            Self::GapOfOnePage => "gap-of-one-page",
            Self::StealForgetsLine => "steal-forgets-line",
            Self::MergeComparesWrongSide => "merge-compares-wrong-side",
            Self::NoCheckUnderLock => "no-check-under-lock",
            Self::PutBeforeFlush => "put-before-flush",
            Self::RemovedUnannounced => "removed-unannounced",
            Self::TablesUnheld => "tables-unheld",
            Self::NodesUnheld => "nodes-unheld",
            Self::LookersIgnored => "lookers-ignored",
            Self::LaneLookersUnnoted => "lane-lookers-unnoted",
            Self::ForgottenLookersUnawaited => "forgotten-lookers-unawaited",
            Self::ChangeUnstamped => "change-unstamped",
            Self::StampsIgnored => "stamps-ignored",
            Self::IndexReadUnlocked => "index-read-unlocked",
            Self::FaultsUnawaited => "faults-unawaited",
            Self::AnnouncementIgnored => "announcement-ignored",
            Self::BoundsIgnored => "bounds-ignored",
            Self::CopyLeavesEmpty => "copy-leaves-empty",
            Self::IndexWrittenUnlocked => "index-written-unlocked",
            Self::MoveUnlocked => "move-unlocked",
            Self::KeptSourceUnannounced => "kept-source-unannounced",
            Self::RemovalUnawaited => "removal-unawaited",
            Self::RootUnpinned => "root-unpinned",
            Self::RangeTooShort => "range-too-short",
            Self::DepartureUnawaited => "departure-unawaited",
            Self::LaneEnteredLate => "lane-entered-late",
            Self::LaneReadEarly => "lane-read-early",
            Self::LaneNotRejoined => "lane-not-rejoined",
            Self::LetGoOfUsersAlone => "let-go-of-users-alone",
            Self::LetGoInASection => "let-go-in-a-section",
            Self::TableOfOneLane => "table-of-one-lane",
            Self::FaultsOfOneLane => "faults-of-one-lane",
            Self::PartNotWidened => "part-not-widened",
            Self::ChosenBeforeTheWait => "chosen-before-the-wait",
            Self::EditOfOldVersion => "edit-of-old-version",
            Self::TablesOfOthersFreed => "tables-of-others-freed",
            Self::PartsUnawaited => "parts-unawaited",
            Self::LaneBoundTouched => "lane-bound-touched",
            Self::CrossingUnseen => "crossing-unseen",
            Self::HoleBeyondLane => "hole-beyond-lane",
            Self::TableOfBefore => "table-of-before",
            Self::AnnexOverParts => "annex-over-parts",
            Self::LanesOverlooked => "lanes-overlooked",
            Self::UsersLeftBehind => "users-left-behind",
            Self::AreaLeftBehind => "area-left-behind",
            Self::PartLooksUnheld => "part-looks-unheld",
            Self::SharedTableTaken => "shared-table-taken",
            Self::SharedTableUnflushed => "shared-table-unflushed",
            Self::SharedEntriesWritable => "shared-entries-writable",
            Self::SharedTableWritable => "shared-table-writable",
            Self::ChildListedEarly => "child-listed-early",
            Self::SpaceResurrected => "space-resurrected",
            Self::SpaceUnlinkedLate => "space-unlinked-late",
            Self::TailZeroedUnheld => "tail-zeroed-unheld",
            Self::RemovalsOverlap => "removals-overlap",
            Self::RemovedPageUnawaited => "removed-page-unawaited",
            Self::RemovalBesideDeparture => "removal-beside-departure",
            Self::FetchedBesideRemoval => "fetched-beside-removal",
            Self::GivenUpUnchecked => "given-up-unchecked",
            Self::ReferencePageCounted => "reference-page-counted",
            Self::ReferencePageWritable => "reference-page-writable",
            Self::ReferenceFreedWhileMapped => "reference-freed-while-mapped",
            Self::ReferenceFreedWhilePinned => "reference-freed-while-pinned",
            Self::ReferencesMerged => "references-merged",
            Self::ReferenceLostAtFork => "reference-lost-at-fork",
            Self::ReferenceZeroAfterDontNeed => "reference-zero-after-dontneed",
            Self::McsUnordered => "mcs-unordered",
            Self::OwnerStale => "owner-stale",
            Self::OwnerTrusted => "owner-trusted",
        }
    }
}

#[cfg(feature = "mutants")]
std::thread_local! {
    static CHOSEN: core::cell::Cell<Option<Mutant>> = const { core::cell::Cell::new(None) };
}

/// Says whether a bug is put back; what [`mutant!`](crate::mutant) asks.
#[cfg(feature = "mutants")]
#[inline]
pub fn is_on(mutant: Mutant) -> bool {
    CHOSEN.with(core::cell::Cell::get) == Some(mutant)
}

/// `mutant!(Name, right => wrong)` is `right`, and `mutant!(Name => wrong);` is nothing at all; with the feature
/// `mutants`, and where this [`Mutant`](crate::mutants::Mutant) is chosen, both are `wrong`.
///
/// ```
/// use faultless_platform::mutant;
///
/// assert_eq!(mutant!(CountWraps, 7 => 0), 7);
/// ```
#[cfg(not(feature = "mutants"))]
#[macro_export]
macro_rules! mutant {
    ($mutant:ident, $right:expr => $wrong:expr) => {
        $right
    };
    ($mutant:ident => $wrong:expr) => {};
}

/// `mutant!(Name, right => wrong)` is `wrong` where this [`Mutant`](crate::mutants::Mutant) is chosen, else `right`;
/// `mutant!(Name => wrong);` is `wrong` there, else nothing.
#[cfg(feature = "mutants")]
#[macro_export]
macro_rules! mutant {
    ($mutant:ident, $right:expr => $wrong:expr) => {
        if $crate::mutants::is_on($crate::mutants::Mutant::$mutant) { $wrong } else { $right }
    };
    ($mutant:ident => $wrong:expr) => {
        if $crate::mutants::is_on($crate::mutants::Mutant::$mutant) {
            $wrong
        }
    };
}

/// Puts a bug back on the calling OS thread, or none.
#[cfg(feature = "mutants")]
pub fn choose(mutant: Option<Mutant>) {
    CHOSEN.with(|chosen| chosen.set(mutant));
}
