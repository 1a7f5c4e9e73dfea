//! The one list of semaphores, from which the command, the oracle and the tests take them all.

use super::series::{Generation, Patches, Rules};
use super::{RwSemaphore, Rwsem};
use faultless_platform::Processor;

/// What is done with a semaphore chosen by name.
///
/// ```
/// use faultless_platform::native::Native;
/// use faultless_sync::{Generation, RwSemaphore, SEMAPHORES, SemaphoreVisitor, with_semaphore};
///
/// /// What a command does with the name that its user gave.
/// struct Size;
/// impl SemaphoreVisitor<Native> for Size {
///     type Output = usize;
///     fn visit<S: RwSemaphore<Native>>(self, _generation: S::Generation) -> usize {
///         size_of::<S>()
///     }
/// }
/// assert!(SEMAPHORES.iter().all(|name| with_semaphore::<Native, _>(name, Size).is_some()));
/// assert_eq!(with_semaphore::<Native, _>("no-such-lock", Size), None);
/// assert_eq!(Generation::named("rwsem-2012"), Some(Generation::RWSEM_2012));
/// ```
pub trait SemaphoreVisitor<P: Processor> {
    /// What comes out.
    type Output;
    /// Gets the semaphore's type, and which of its generations is meant.
    /// [`with_semaphore`] calls it once, if it knows the name.
    fn visit<S: RwSemaphore<P>>(self, generation: S::Generation) -> Self::Output;
}

/// Registers generations by their names; one with `=` is another name for a generation that has one.
macro_rules! generations {
    ($($name:literal $(= $alias:literal)? => $generation:expr),+ $(,)?) => {
        /// The names of all semaphores.
        pub const SEMAPHORES: &[&str] = &[$($name),+];

        impl Generation {
            /// Returns the generation of that name, if there is one.
            pub fn named(name: &str) -> Option<Self> {
                match name {
                    $($name $(| $alias)? => Some($generation),)+
                    _ => None,
                }
            }
        }
    };
}

const P1: Patches = Patches::LOOK_BEFORE_TRY;
const P4: Patches = Patches::LOOK_BEFORE_GRANT;
const P6: Patches = Patches::LEAN_MCS;
const P8: Patches = Patches::OPTIMISTIC_SPIN;
const P9: Patches = Patches::SPINNER_SPARES_WAKE;

const fn all_but(patch: Patches) -> Generation {
    Generation::stealing(Patches::ALL.without(patch))
}

generations! {
    "rwsem-2012" => Self::RWSEM_2012,
    "rwsem-steal" => Self::RWSEM_STEAL,
    "rwsem-steal+p1" => Self::stealing(P1),
    "rwsem-steal+p4" => Self::stealing(P4),
    // 5 to 7 are the queue that 8 needs.
    "rwsem-steal+p8" => Self::stealing(P8.and(P6)),
    "rwsem-steal+p8-p6" => Self::stealing(P8),
    // 9 does nothing without the spinners of 8.
    "rwsem-steal+p9" => Self::stealing(P9.and(P8).and(P6)),
    "rwsem-v8" => Self::RWSEM_V8,
    "rwsem-v8-p1" => all_but(P1),
    "rwsem-v8-p4" => all_but(P4),
    "rwsem-v8-p6" => all_but(P6),
    "rwsem-v8-p9" => all_but(P9),
    "rwsem-v8-no-optspin" = "rwsem-v8-p8" => all_but(P8),
    "rwsem-v8+readers" => Self::RWSEM_V8.with(Rules::SPINS_FOR_READERS),
    "handoff" => Self::HANDOFF,
    "phase-fair" => Self::PHASE_FAIR,
    "rwsem-2012+bravo" => Self::RWSEM_2012.with(Rules::BRAVO),
    "rwsem-v8+bravo" => Self::RWSEM_V8.with(Rules::BRAVO),
    "handoff+bravo" => Self::HANDOFF.with(Rules::BRAVO),
    "phase-fair+bravo" => Self::PHASE_FAIR.with(Rules::BRAVO),
    "rwsem-v8+cna" => Self::RWSEM_V8.with(Rules::CNA),
    "handoff+cna" => Self::HANDOFF.with(Rules::CNA),
    "handoff+cna+bravo" => Self::HANDOFF.with(Rules::CNA.and(Rules::BRAVO)),
}

/// Shows `visitor` the semaphore of that name; `None` if there is none, and then [`SEMAPHORES`] has those there are.
///
/// A visitor is compiled once for each type of semaphore, not for each of its generations.
pub fn with_semaphore<P: Processor, V: SemaphoreVisitor<P>>(name: &str, visitor: V) -> Option<V::Output> {
    Generation::named(name).map(|generation| visitor.visit::<Rwsem<P>>(generation))
}
