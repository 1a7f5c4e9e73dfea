//! Atomics as traits, named and behaving like those of `core::sync::atomic`.
//!
//! # Guarantee
//! An implementation gives each operation the meaning that the C11 memory model gives it for the passed
//! ordering, or a stronger one. [`InPlace`] types have the size, alignment and bit pattern of their value,
//! so that an atomic can be viewed inside memory that holds plain values (page-table entries in a frame).

use core::sync::atomic::Ordering;

/// An atomic cell of a `Copy` value.
///
/// ```
/// # #[cfg(feature = "std")] {
/// use faultless_platform::{Atomic, Ordering, Processor, native::Native};
///
/// type Word = <Native as Processor>::AtomicU32;
/// let word = Word::new(1);
/// word.store(2, Ordering::Relaxed);
/// assert_eq!(word.swap(3, Ordering::AcqRel), 2);
/// assert_eq!(word.compare_exchange(2, 9, Ordering::AcqRel, Ordering::Relaxed), Err(3));
/// // The weak one may fail without reason, so it stands in a loop.
/// while word.compare_exchange_weak(3, 4, Ordering::AcqRel, Ordering::Relaxed).is_err() {}
/// assert_eq!(word.load(Ordering::Relaxed), 4);
/// # }
/// ```
pub trait Atomic: Send + Sync {
    /// The plain value held.
    type Value: Copy + Eq;

    /// Returns a cell that holds `value`.
    fn new(value: Self::Value) -> Self;
    /// Reads the value.
    fn load(&self, order: Ordering) -> Self::Value;
    /// Writes the value.
    fn store(&self, value: Self::Value, order: Ordering);
    /// Writes `value` and returns the one it replaced.
    fn swap(&self, value: Self::Value, order: Ordering) -> Self::Value;
    /// Writes `new` if the cell holds `current`; returns what it held, as `Ok` if it wrote.
    fn compare_exchange(
        &self,
        current: Self::Value,
        new: Self::Value,
        success: Ordering,
        failure: Ordering,
    ) -> Result<Self::Value, Self::Value>;
    /// As [`Atomic::compare_exchange`], but may fail without reason; for loops.
    fn compare_exchange_weak(
        &self,
        current: Self::Value,
        new: Self::Value,
        success: Ordering,
        failure: Ordering,
    ) -> Result<Self::Value, Self::Value>;
}

/// An atomic integer: arithmetic wraps around.
///
/// ```
/// # #[cfg(feature = "std")] {
/// use faultless_platform::{Atomic, AtomicInteger, Ordering, Processor, native::Native};
///
/// type Byte = <Native as Processor>::AtomicU8;
/// let byte = Byte::new(0b1100);
/// assert_eq!(byte.fetch_and(0b0110, Ordering::Relaxed), 0b1100);
/// assert_eq!(byte.fetch_or(0b0001, Ordering::Relaxed), 0b0100);
/// assert_eq!(byte.fetch_sub(6, Ordering::Relaxed), 0b0101);
/// assert_eq!(byte.fetch_add(1, Ordering::Relaxed), 0xff, "it wraps around");
/// # }
/// ```
pub trait AtomicInteger: Atomic {
    /// Adds and returns the value before.
    fn fetch_add(&self, value: Self::Value, order: Ordering) -> Self::Value;
    /// Subtracts and returns the value before.
    fn fetch_sub(&self, value: Self::Value, order: Ordering) -> Self::Value;
    /// Bitwise and; returns the value before.
    fn fetch_and(&self, value: Self::Value, order: Ordering) -> Self::Value;
    /// Bitwise or; returns the value before.
    fn fetch_or(&self, value: Self::Value, order: Ordering) -> Self::Value;
}

/// An atomic that can be viewed in place over its plain value.
///
/// # Safety
/// The type has exactly the size, alignment and bit patterns of [`Atomic::Value`].
///
/// ```
/// # #[cfg(feature = "std")] {
/// use faultless_platform::{Atomic, InPlace, Ordering, Processor, native::Native};
///
/// let mut words = [0_u64; 4];
/// // SAFETY: the array is ours, and nobody accesses it otherwise while the view lives.
/// let word = unsafe { <Native as Processor>::AtomicU64::view(&mut words[1]) };
/// word.store(7, Ordering::Relaxed);
/// assert_eq!(words, [0, 7, 0, 0]);
/// # }
/// ```
pub unsafe trait InPlace: Atomic {
    /// Views the value at `address` as an atomic.
    ///
    /// # Safety
    /// `address` is aligned and valid for reads and writes for `'a`, and during `'a` every access to it is atomic.
    #[inline]
    unsafe fn view<'a>(address: *mut Self::Value) -> &'a Self
    where
        Self: Sized + 'a,
    {
        // SAFETY: the caller vouches for the address; this trait's contract for the layout.
        unsafe { &*address.cast::<Self>() }
    }
}
