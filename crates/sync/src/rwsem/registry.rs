//! The one list of semaphores, from which the command, the oracle and the tests take them all.

use super::series::{Patches, Series2012, SeriesV8};
use super::{RwSemaphore, Rwsem};
use faultless_platform::Processor;

/// What is done with a semaphore chosen by name.
pub trait SemaphoreVisitor<P: Processor> {
    /// What comes out.
    type Output;
    /// Gets the semaphore's type.
    fn visit<S: RwSemaphore<P>>(self) -> Self::Output;
}

/// Registers generations: their names, and the type behind each.
macro_rules! semaphores {
    ($($series:ty),+ $(,)?) => {
        /// The names of all semaphores.
        pub const SEMAPHORES: &[&str] = &[$(<$series as Patches>::NAME),+];

        /// Shows `visitor` the semaphore of that name; `None` if there is none, and then [`SEMAPHORES`] has those there are.
        pub fn with_semaphore<P: Processor, V: SemaphoreVisitor<P>>(name: &str, visitor: V) -> Option<V::Output> {
            $(if name == <$series as Patches>::NAME {
                return Some(visitor.visit::<Rwsem<P, $series>>());
            })+
            None
        }
    };
}

semaphores!(Series2012, SeriesV8);
