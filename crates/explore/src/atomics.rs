//! Std's atomics, each access a step of the run.

use super::engine;
use faultless_platform::{Atomic, AtomicInteger, InPlace};
use std::sync::atomic::Ordering;

/// A std atomic whose accesses are steps. Orderings make no difference: one OS thread runs all.
#[derive(Debug)]
#[repr(transparent)]
pub struct Watched<A>(A);

/// Does something to a cell, as a step if a run is under way.
#[inline]
fn step<A, R>(cell: &Watched<A>, act: impl FnOnce(&A) -> (R, bool)) -> R {
    let mut act = Some(act);
    let (address, len_bytes) = (std::ptr::from_ref(cell).addr(), size_of::<A>());
    let inside = engine::with(|engine| {
        // Always there: the closure runs once.
        act.take().map(|act| engine.access(address, len_bytes, || act(&cell.0)))
    });
    match (inside.flatten(), act) {
        (Some(result), _) => result,
        (None, Some(act)) => act(&cell.0).0,
        (None, None) => unreachable!("the action was taken and gave nothing"),
    }
}

impl<A: Atomic> Watched<A> {
    /// Reads the value, without a step.
    pub(super) fn peek(&self) -> A::Value {
        self.0.load(ORDER)
    }
}

const ORDER: Ordering = Ordering::Relaxed;

impl<A: Atomic> Atomic for Watched<A> {
    type Value = A::Value;
    fn new(value: A::Value) -> Self {
        Self(A::new(value))
    }
    fn load(&self, _order: Ordering) -> A::Value {
        step(self, |cell| (cell.load(ORDER), false))
    }
    fn store(&self, value: A::Value, _order: Ordering) {
        step(self, |cell| (cell.store(value, ORDER), true));
    }
    fn swap(&self, value: A::Value, _order: Ordering) -> A::Value {
        step(self, |cell| (cell.swap(value, ORDER), true))
    }
    fn compare_exchange(
        &self,
        current: A::Value,
        new: A::Value,
        _success: Ordering,
        _failure: Ordering,
    ) -> Result<A::Value, A::Value> {
        step(self, |cell| {
            let result = cell.compare_exchange(current, new, ORDER, ORDER);
            (result, result.is_ok())
        })
    }
    fn compare_exchange_weak(
        &self,
        current: A::Value,
        new: A::Value,
        success: Ordering,
        failure: Ordering,
    ) -> Result<A::Value, A::Value> {
        // The strong form: a failure without reason would not be the schedule's.
        self.compare_exchange(current, new, success, failure)
    }
}

impl<A: AtomicInteger> AtomicInteger for Watched<A> {
    fn fetch_add(&self, value: A::Value, _order: Ordering) -> A::Value {
        step(self, |cell| (cell.fetch_add(value, ORDER), true))
    }
    fn fetch_sub(&self, value: A::Value, _order: Ordering) -> A::Value {
        step(self, |cell| (cell.fetch_sub(value, ORDER), true))
    }
    fn fetch_and(&self, value: A::Value, _order: Ordering) -> A::Value {
        step(self, |cell| (cell.fetch_and(value, ORDER), true))
    }
    fn fetch_or(&self, value: A::Value, _order: Ordering) -> A::Value {
        step(self, |cell| (cell.fetch_or(value, ORDER), true))
    }
}

// SAFETY: `repr(transparent)` over a type that keeps the same promise.
unsafe impl<A: InPlace> InPlace for Watched<A> {}
