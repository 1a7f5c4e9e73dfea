//! Atomics whose accesses are charged; the layout is that of the value, so that false sharing is what it would be.

use crate::engine::{self, Kind};
use faultless_platform::native::Native;
use faultless_platform::{Atomic, AtomicInteger, InPlace, Ordering, Processor};

/// A std atomic on a simulated line.
#[derive(Debug)]
#[repr(transparent)]
pub struct Simulated<A>(A);

impl<A> Simulated<A> {
    pub(crate) fn carrier(&self) -> &A {
        &self.0
    }

    #[inline(always)]
    fn charge(&self, kind: Kind) {
        engine::access(std::ptr::from_ref(self).addr(), kind);
    }
}

// The orderings of the inner accesses are the caller's; one OS thread makes them all.
impl<A: Atomic> Atomic for Simulated<A> {
    type Value = A::Value;
    #[inline]
    fn new(value: A::Value) -> Self {
        Self(A::new(value))
    }
    #[inline]
    fn load(&self, order: Ordering) -> A::Value {
        self.charge(Kind::Load);
        self.0.load(order)
    }
    #[inline]
    fn store(&self, value: A::Value, order: Ordering) {
        // ORDER: the caller's: it decides what the store costs; one OS thread runs all CPUs, so that nothing else
        // depends on it.
        self.charge(if order == Ordering::SeqCst { Kind::FencedStore } else { Kind::Store });
        self.0.store(value, order);
    }
    #[inline]
    fn swap(&self, value: A::Value, order: Ordering) -> A::Value {
        self.charge(Kind::ReadModifyWrite);
        self.0.swap(value, order)
    }
    #[inline]
    fn compare_exchange(
        &self,
        current: A::Value,
        new: A::Value,
        success: Ordering,
        failure: Ordering,
    ) -> Result<A::Value, A::Value> {
        self.charge(Kind::ReadModifyWrite);
        self.0.compare_exchange(current, new, success, failure)
    }
    #[inline]
    fn compare_exchange_weak(
        &self,
        current: A::Value,
        new: A::Value,
        success: Ordering,
        failure: Ordering,
    ) -> Result<A::Value, A::Value> {
        // The strong form: a failure without reason would not be the seed's.
        self.compare_exchange(current, new, success, failure)
    }
}

impl<A: AtomicInteger> AtomicInteger for Simulated<A> {
    #[inline]
    fn fetch_add(&self, value: A::Value, order: Ordering) -> A::Value {
        self.charge(Kind::ReadModifyWrite);
        self.0.fetch_add(value, order)
    }
    #[inline]
    fn fetch_sub(&self, value: A::Value, order: Ordering) -> A::Value {
        self.charge(Kind::ReadModifyWrite);
        self.0.fetch_sub(value, order)
    }
    #[inline]
    fn fetch_and(&self, value: A::Value, order: Ordering) -> A::Value {
        self.charge(Kind::ReadModifyWrite);
        self.0.fetch_and(value, order)
    }
    #[inline]
    fn fetch_or(&self, value: A::Value, order: Ordering) -> A::Value {
        self.charge(Kind::ReadModifyWrite);
        self.0.fetch_or(value, order)
    }
}

// SAFETY: `repr(transparent)` over a type that keeps the same promise.
unsafe impl<A: InPlace> InPlace for Simulated<A> {}

/// The atomics of the host that carry the values.
pub(crate) type Carrier<T> = <Native as Processor>::AtomicPtr<T>;
