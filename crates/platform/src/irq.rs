//! Interrupts held off, as a guard.

use crate::Processor;
use core::marker::PhantomData;

/// While it lives, this CPU serves no shootdown; nests.
///
/// ```
/// # #[cfg(feature = "std")] {
/// use faultless_platform::{IrqOffGuard, native::{Native, holds_irq_off}};
///
/// let guard = IrqOffGuard::<Native>::new();
/// assert!(holds_irq_off());
/// drop(guard);
/// assert!(!holds_irq_off());
/// # }
/// ```
///
/// Having it tells you that no interrupt handler runs on this CPU. Nobody parks, allocates or sleeps under it.
#[must_use = "interrupts are on again as soon as the guard is dropped"]
#[derive(Debug)]
pub struct IrqOffGuard<P: Processor>(PhantomData<*const P>);

impl<P: Processor> IrqOffGuard<P> {
    /// Switches interrupts off on this CPU.
    #[inline]
    pub fn new() -> Self {
        P::irq_off();
        Self(PhantomData)
    }
}

impl<P: Processor> Default for IrqOffGuard<P> {
    fn default() -> Self {
        Self::new()
    }
}

impl<P: Processor> Drop for IrqOffGuard<P> {
    #[inline]
    fn drop(&mut self) {
        P::irq_on();
    }
}
