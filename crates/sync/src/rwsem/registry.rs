//! The one list of semaphores, from which the command, the oracle and the tests take them all.

use super::series::Generation;
use super::{RwSemaphore, Rwsem};
use faultless_platform::Processor;

/// What is done with a semaphore chosen by name.
pub trait SemaphoreVisitor<P: Processor> {
    /// What comes out.
    type Output;
    /// Gets the semaphore's type, and which of its generations is meant.
    fn visit<S: RwSemaphore<P>>(self, generation: S::Generation) -> Self::Output;
}

/// Registers generations by their names.
macro_rules! generations {
    ($($name:literal => $generation:ident),+ $(,)?) => {
        /// The names of all semaphores.
        pub const SEMAPHORES: &[&str] = &[$($name),+];

        impl Generation {
            /// Returns the generation of that name, if there is one.
            pub fn named(name: &str) -> Option<Self> {
                match name {
                    $($name => Some(Self::$generation),)+
                    _ => None,
                }
            }
        }
    };
}

generations! {
    "rwsem-2012" => RWSEM_2012,
    "rwsem-v8" => RWSEM_V8,
}

/// Shows `visitor` the semaphore of that name; `None` if there is none, and then [`SEMAPHORES`] has those there are.
///
/// A visitor is compiled once for each type of semaphore, not for each of its generations.
pub fn with_semaphore<P: Processor, V: SemaphoreVisitor<P>>(name: &str, visitor: V) -> Option<V::Output> {
    Generation::named(name).map(|generation| visitor.visit::<Rwsem<P>>(generation))
}
