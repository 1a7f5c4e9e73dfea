//! The default design, as a type alone: `vma_lock` implements it.

use core::marker::PhantomData;
use faultless_sync::Rwsem;

/// A lock for each area, as Linux has since 6.4: see `vma_lock`.
pub struct VmaLock<S>(PhantomData<fn() -> S>);

/// The design of a [`Vm`](crate::Vm) that says nothing else: a lock for each area, as Linux has since 6.4.
pub type DefaultDesign<P> = VmaLock<Rwsem<P>>;
