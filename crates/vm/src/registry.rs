//! The designs by name; the command, the oracle and the tests take them all from here.

use crate::design::{Design, Faultless, FaultlessQueued, GenerationOf, MmapSem, SpfSrcu, SpfV9, SpfV11, VmaLock};
use crate::system::System;
use core::fmt;
use core::marker::PhantomData;
use faultless_sync::{RwSemaphore, SEMAPHORES, SemaphoreVisitor, with_semaphore};

/// What is done with a design chosen by name.
///
/// ```
/// use faultless_platform::native::Native;
/// use faultless_vm::design::{Design, GenerationOf};
/// use faultless_vm::registry::{DESIGNS, DesignVisitor, Unknown, with_design};
///
/// /// What a command does with the names that its user gave.
/// struct Name;
/// impl DesignVisitor<Native> for Name {
///     type Output = &'static str;
///     fn visit<D: Design<Native>>(self, _semaphore: GenerationOf<Native, D>) -> &'static str {
///         D::NAME
///     }
/// }
/// for name in DESIGNS {
///     assert_eq!(with_design::<Native, _>(name, "rwsem-v8", Name), Ok(*name));
/// }
/// assert_eq!(with_design::<Native, _>("no-such-design", "rwsem-v8", Name), Err(Unknown::Design));
/// assert_eq!(with_design::<Native, _>("vma-lock", "no-such-semaphore", Name), Err(Unknown::Semaphore));
/// ```
pub trait DesignVisitor<P: System> {
    /// What comes out.
    type Output;
    /// Called by [`with_design`], once, if it knows both names: gets the design's type, and the generation of its
    /// semaphore, for [`Vm::with_semaphore`](crate::Vm::with_semaphore).
    fn visit<D: Design<P>>(self, semaphore: GenerationOf<P, D>) -> Self::Output;
}

/// A name that the registry doesn't know.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unknown {
    /// No such design; [`DESIGNS`] has those there are.
    Design,
    /// No such semaphore; [`SEMAPHORES`] has those there are.
    Semaphore,
}

impl fmt::Display for Unknown {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Design => "there is no such design",
            Self::Semaphore => "there is no such semaphore",
        })
    }
}

impl core::error::Error for Unknown {}

macro_rules! designs {
    ($($name:literal => $design:ident),+ $(,)?) => {
        /// The names of all designs.
        pub const DESIGNS: &[&str] = &[$($name),+];

        struct WithSemaphore<'a, P, V>(&'a str, V, PhantomData<fn() -> P>);

        impl<P: System, V: DesignVisitor<P>> SemaphoreVisitor<P> for WithSemaphore<'_, P, V> {
            type Output = Result<V::Output, Unknown>;
            fn visit<S: RwSemaphore<P>>(self, generation: S::Generation) -> Self::Output {
                match self.0 {
                    $($name => Ok(self.1.visit::<$design<S>>(generation)),)+
                    _ => Err(Unknown::Design),
                }
            }
        }
    };
}

designs! {
    "mmap-sem" => MmapSem,
    "spf-srcu" => SpfSrcu,
    "spf-v9" => SpfV9,
    "spf-v11" => SpfV11,
    "vma-lock" => VmaLock,
    "faultless-queued" => FaultlessQueued,
    "faultless" => Faultless,
}

/// Shows `visitor` the design of that name over the semaphore of that name.
///
/// The visitor is compiled once for each design: semaphores of one family differ by a value.
pub fn with_design<P: System, V: DesignVisitor<P>>(
    design: &str,
    semaphore: &str,
    visitor: V,
) -> Result<V::Output, Unknown> {
    if !DESIGNS.contains(&design) {
        return Err(Unknown::Design);
    }
    debug_assert!(!SEMAPHORES.is_empty());
    with_semaphore(semaphore, WithSemaphore(design, visitor, PhantomData)).unwrap_or(Err(Unknown::Semaphore))
}
