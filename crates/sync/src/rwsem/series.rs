//! The generations of the semaphore: which patches of the 2013 series each has, and which rules came after it.
//!
//! # Guarantee
//! A [`Generation`] is a small value that each semaphore keeps beside its word: one body of code runs as any of them,
//! and two semaphores of different generations are of one type. Asking costs a plain load of a line that the lock's
//! user has.
//!
//! Source: the series "rwsem performance optimizations", version 8, October 2013, nine patches; [`SERIES`] says what
//! became of each. Stealing is older than the series: it is the base that the series was measured on (`rwsem-steal`).
//! A writer begins to spin beside a running writer alone, and goes on while readers have the lock, as in that version's
//! patch 8. Ours differs where the original knows no bound: a spinner gives up after a time, a spinner that waits may
//! leave the queue, a sleeper is overtaken at most [`Generation::patience`] times in a row. Ours wakes sleepers after
//! the queue's lock is dropped, as Linux does since 2016. [`Rules::HANDOFF`]: Linux 5.1 to 6.x. [`Rules::PHASE_FAIR`]:
//! Brandenburg and Anderson 2010, whose lock spins; here both sides sleep. [`Rules::CNA`]: Dice and Kogan 2019.

use super::word::MAX_PATIENCE;
use core::ops::BitOr;

/// A set of the series' patches.
///
/// ```
/// use faultless_sync::Patches;
///
/// let some = Patches::LOOK_BEFORE_TRY.and(Patches::LOOK_BEFORE_GRANT);
/// assert!(Patches::ALL.contain(some) && !some.contain(Patches::OPTIMISTIC_SPIN));
/// assert_eq!(Patches::ALL.without(some), Patches::OPTIMISTIC_SPIN | Patches::SPINNER_SPARES_WAKE | Patches::LEAN_MCS);
/// assert_eq!(Patches::NONE.and(some), some);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Patches(u8);

impl Patches {
    /// None of them.
    pub const NONE: Self = Self(0);
    /// Patch 1: `try_write` looks at the word before it writes it.
    pub const LOOK_BEFORE_TRY: Self = Self(1);
    /// Patch 4: a waker looks for a writer before it counts a reader in.
    pub const LOOK_BEFORE_GRANT: Self = Self(2);
    /// Patches 5, 7 and 8: a writer spins, in an MCS queue, while the owner runs.
    pub const OPTIMISTIC_SPIN: Self = Self(4);
    /// Patch 9: a release leaves the waking to a spinner when the queue's lock is busy. It does nothing without
    /// spinners. (The original has a flag instead, and leaves it to whoever is about to wake; a spinner came later.)
    pub const SPINNER_SPARES_WAKE: Self = Self(8);
    /// Patch 6: a spinner that finds the MCS queue empty does not note that in its own node.
    pub const LEAN_MCS: Self = Self(16);
    /// All of them.
    pub const ALL: Self = Self(31);

    /// Says whether all of `others` are among them.
    #[inline]
    pub const fn contain(self, others: Self) -> bool {
        self.0 & others.0 == others.0
    }

    /// Returns these and `others`.
    pub const fn and(self, others: Self) -> Self {
        Self(self.0 | others.0)
    }

    /// Returns these without `others`.
    pub const fn without(self, others: Self) -> Self {
        Self(self.0 & !others.0)
    }
}

impl BitOr for Patches {
    type Output = Self;

    fn bitor(self, others: Self) -> Self {
        self.and(others)
    }
}

/// A set of rules that came after the series.
///
/// ```
/// use faultless_sync::Rules;
///
/// let rules = Rules::HANDOFF.and(Rules::SPINS_FOR_READERS);
/// assert!(rules.contain(Rules::HANDOFF) && !rules.contain(Rules::PHASE_FAIR));
/// assert_eq!(Rules::NONE.and(Rules::BRAVO), Rules::BRAVO);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rules(u8);

impl Rules {
    /// None of them.
    pub const NONE: Self = Self(0);
    /// Linux today: thieves are not counted, but whoever is first in line shuts the door to them after some
    /// milliseconds (the generation's patience); all readers in line come in together; a reader may go ahead of those
    /// in line if the last owner was a writer; writers spin for a short time while readers are inside. Unlike Linux's
    /// they do so ever more seldom where few readers are inside and such waits end without the lock.
    pub const HANDOFF: Self = Self(1);
    /// Phases of readers and of one writer take turns: a writer that leaves lets all waiting readers in, and the last
    /// of these readers to leave hands the lock to the first writer.
    pub const PHASE_FAIR: Self = Self(2);
    /// Readers show themselves in a [`ReaderTable`](super::ReaderTable) while no writer comes.
    pub const BRAVO: Self = Self(4);
    /// A writer begins to spin while no writer is named as the owner, too: one may be about to be. Linux 3.16 did so
    /// before its release; "Allow conservative optimistic spinning when readers have lock" ended it.
    pub const SPINS_FOR_READERS: Self = Self(8);
    /// Spinners of the head's NUMA node go first: see [`CnaQueue`](crate::CnaQueue). It does nothing without
    /// [`Patches::OPTIMISTIC_SPIN`].
    pub const CNA: Self = Self(16);

    /// Says whether all of `others` are among them.
    #[inline]
    pub const fn contain(self, others: Self) -> bool {
        self.0 & others.0 == others.0
    }

    /// Returns these and `others`.
    pub const fn and(self, others: Self) -> Self {
        Self(self.0 | others.0)
    }

    /// Returns these without `others`.
    const fn without(self, others: Self) -> Self {
        Self(self.0 & !others.0)
    }
}

/// What became of a patch of the series.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    /// It can be measured: the semaphore of the second name has it, and that of the first lacks nothing else.
    Measured(&'static str, &'static str),
    /// It changes the source and nothing that runs.
    NoBehaviour,
    /// It mends a bug, which this mutant puts back and a model finds.
    Mutant(&'static str),
}

/// A patch of the series.
///
/// ```
/// use faultless_sync::{Effect, SERIES, SeriesPatch};
///
/// // What each patch is measured between.
/// let SeriesPatch { number, effect, .. } = SERIES[7];
/// assert_eq!((number, effect), (8, Effect::Measured("rwsem-steal", "rwsem-steal+p8")));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SeriesPatch {
    /// Its number, 1 to 9.
    pub number: u8,
    /// What it says it does, shortened.
    pub title: &'static str,
    /// What became of it.
    pub effect: Effect,
}

const fn patch(number: u8, title: &'static str, effect: Effect) -> SeriesPatch {
    SeriesPatch { number, title, effect }
}

/// The series, patch by patch.
pub const SERIES: [SeriesPatch; 9] = [
    patch(1, "look before the exchange in down_write_trylock", Effect::Measured("rwsem-steal", "rwsem-steal+p1")),
    patch(2, "no label `out` in do_wake", Effect::NoBehaviour),
    patch(3, "no label `try_reader_grant` in do_wake", Effect::NoBehaviour),
    patch(4, "a waker looks before it counts a reader in", Effect::Measured("rwsem-steal", "rwsem-steal+p4")),
    patch(5, "the MCS lock in a file of its own", Effect::NoBehaviour),
    patch(6, "MCS lock: one store less", Effect::Measured("rwsem-steal+p8-p6", "rwsem-steal+p8")),
    patch(7, "MCS lock: barriers", Effect::Mutant("mcs-unordered")),
    patch(8, "writers spin before they sleep", Effect::Measured("rwsem-steal", "rwsem-steal+p8")),
    patch(9, "a spinner spares the wake-up", Effect::Measured("rwsem-steal+p8", "rwsem-steal+p9")),
];

/// What tells one generation from another.
///
/// ```
/// use faultless_sync::{Generation, Patches, Rules};
///
/// let own = Generation::new(2, Patches::OPTIMISTIC_SPIN).with(Rules::HANDOFF);
/// assert!(own.follows(Rules::HANDOFF) && own.has(Patches::OPTIMISTIC_SPIN));
/// assert!(own.patience() > 0 && Generation::MAX_PATIENCE > 2 && own.shuts_after_ns() > 0);
/// assert_eq!(Generation::stealing(Patches::ALL), Generation::RWSEM_V8);
/// assert!(Generation::named("phase-fair") == Some(Generation::PHASE_FAIR));
/// # let _ = (Generation::RWSEM_2012, Generation::RWSEM_STEAL, Generation::HANDOFF);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Generation {
    patience: u8,
    patches: Patches,
    rules: Rules,
}

impl Generation {
    /// The semaphore of 2012: a queue in order of arrival, in which everyone sleeps.
    pub const RWSEM_2012: Self = Self::new(0, Patches::NONE);
    /// The kernel that the series was measured on: writers may steal, nobody spins, none of the patches.
    pub const RWSEM_STEAL: Self = Self::stealing(Patches::NONE);
    /// The semaphore of October 2013 with all nine patches.
    pub const RWSEM_V8: Self = Self::stealing(Patches::ALL);
    /// Linux's semaphore of today (since 5.1): the first in line has the door shut to thieves after 4 ms.
    pub const HANDOFF: Self = Self::new(4, Patches::ALL.without(Patches::SPINNER_SPARES_WAKE)).with(Rules::HANDOFF);
    /// The phase-fair lock, as a semaphore: everyone sleeps, nobody overtakes.
    pub const PHASE_FAIR: Self = Self::new(0, Patches::LOOK_BEFORE_GRANT).with(Rules::PHASE_FAIR);
    /// The largest patience: the word counts no further.
    pub const MAX_PATIENCE: u8 = MAX_PATIENCE;

    /// Returns a generation of one's own. A patience above [`Generation::MAX_PATIENCE`] is taken for that.
    pub const fn new(patience: u8, patches: Patches) -> Self {
        let patience = if patience > MAX_PATIENCE { MAX_PATIENCE } else { patience };
        Self { patience, patches, rules: Rules::NONE }
    }

    /// Returns the generation with `rules` too. [`Rules::PHASE_FAIR`] takes the place of [`Rules::HANDOFF`]: where
    /// phases take turns there is nobody to shut the door on.
    pub const fn with(self, rules: Rules) -> Self {
        let rules = self.rules.and(rules);
        let rules = if rules.contain(Rules::PHASE_FAIR) { rules.without(Rules::HANDOFF) } else { rules };
        Self { rules, ..self }
    }

    /// Returns the series' base with some of its patches.
    pub const fn stealing(patches: Patches) -> Self {
        Self::new(MAX_PATIENCE, patches)
    }

    /// Returns how often in a row a writer may take the lock before those in line; 0: never, and a writer in line is
    /// handed the lock. Under [`Rules::HANDOFF`] it is the time that counts; under [`Rules::PHASE_FAIR`] nobody
    /// overtakes: a phase ends by handing the lock on.
    #[inline]
    pub const fn patience(self) -> u32 {
        match (self.follows(Rules::PHASE_FAIR), self.follows(Rules::HANDOFF)) {
            (true, _) => 0,
            (false, true) => MAX_PATIENCE as u32,
            (false, false) => self.patience as u32,
        }
    }

    /// Returns how long the first in line lets others overtake under [`Rules::HANDOFF`].
    pub const fn shuts_after_ns(self) -> u64 {
        self.patience as u64 * 1_000_000
    }

    /// Says whether it follows all of these rules.
    #[inline]
    pub const fn follows(self, rules: Rules) -> bool {
        self.rules.contain(rules)
    }

    /// Says whether it has all of these patches.
    #[inline]
    pub const fn has(self, patches: Patches) -> bool {
        self.patches.contain(patches)
    }
}

/// The one that Linux had when the designs met.
impl Default for Generation {
    fn default() -> Self {
        Self::RWSEM_V8
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::SEMAPHORES;

    /// A waiter that takes a phase-fair lock instead of being handed it would leave the others to a phase that never
    /// ends.
    #[test]
    fn nobody_overtakes_where_phases_take_turns() {
        for base in [Generation::RWSEM_STEAL, Generation::RWSEM_V8, Generation::HANDOFF, Generation::PHASE_FAIR] {
            let generation = base.with(Rules::PHASE_FAIR);
            assert_eq!((generation.patience(), generation.follows(Rules::HANDOFF)), (0, false));
        }
    }

    #[test]
    fn a_generation_has_what_it_was_made_of() {
        let both = Patches::LOOK_BEFORE_TRY | Patches::OPTIMISTIC_SPIN;
        let own = Generation::new(200, both);
        assert_eq!(own.patience(), 63);
        assert!(own.has(both) && own.has(Patches::OPTIMISTIC_SPIN) && own.has(Patches::NONE));
        assert!(!own.has(Patches::LOOK_BEFORE_GRANT) && !own.has(Patches::ALL));
        let all = Patches::LOOK_BEFORE_GRANT | Patches::SPINNER_SPARES_WAKE | Patches::LEAN_MCS | both;
        assert!(all == Patches::ALL && Generation::RWSEM_V8.has(all) && !Generation::RWSEM_2012.has(both));
        assert_eq!(Patches::ALL.without(both) | both, Patches::ALL);
    }

    #[test]
    fn each_patch_is_measured_between_two_names_that_differ_by_it() {
        let added = [1, 4, 6, 8, 9].map(|number| {
            let Effect::Measured(without, with) = SERIES[number - 1].effect else { panic!("patch {number}") };
            assert!(SEMAPHORES.contains(&without) && SEMAPHORES.contains(&with));
            let [without, with] = [without, with].map(|name| Generation::named(name).expect("registered"));
            assert_eq!((without.patience, with.patches.and(without.patches)), (with.patience, with.patches));
            with.patches.without(without.patches)
        });
        let spin = Patches::OPTIMISTIC_SPIN | Patches::LEAN_MCS;
        let [one, four, nine] = [Patches::LOOK_BEFORE_TRY, Patches::LOOK_BEFORE_GRANT, Patches::SPINNER_SPARES_WAKE];
        assert_eq!(added, [one, four, Patches::LEAN_MCS, spin, nine]);
        assert!(SERIES.iter().zip(1..).all(|(patch, number)| patch.number == number));
    }
}
