//! The atomics of `core` under the platform's traits: what a platform on the hardware itself takes.

use crate::{Atomic, AtomicInteger, InPlace};
use core::sync::atomic::{AtomicBool, AtomicPtr, AtomicU8, AtomicU16, AtomicU32, AtomicU64, AtomicUsize, Ordering};

macro_rules! forward_atomic {
    ($name:ty, $value:ty $(, $param:ident)?) => {
        impl$(<$param>)? Atomic for $name {
            type Value = $value;
            #[inline(always)]
            fn new(value: $value) -> Self {
                <$name>::new(value)
            }
            #[inline(always)]
            fn load(&self, order: Ordering) -> $value {
                self.load(order)
            }
            #[inline(always)]
            fn store(&self, value: $value, order: Ordering) {
                self.store(value, order);
            }
            #[inline(always)]
            fn swap(&self, value: $value, order: Ordering) -> $value {
                self.swap(value, order)
            }
            #[inline(always)]
            fn compare_exchange(
                &self,
                current: $value,
                new: $value,
                success: Ordering,
                failure: Ordering,
            ) -> Result<$value, $value> {
                self.compare_exchange(current, new, success, failure)
            }
            #[inline(always)]
            fn compare_exchange_weak(
                &self,
                current: $value,
                new: $value,
                success: Ordering,
                failure: Ordering,
            ) -> Result<$value, $value> {
                self.compare_exchange_weak(current, new, success, failure)
            }
        }
    };
}

/// Returns the ordering that a read-modify-write gets. For ThreadSanitizer, which knows no fences, one that releases
/// also acquires: it is the last reference's put that an acquire fence follows.
#[inline(always)]
const fn in_effect(order: Ordering) -> Ordering {
    match order {
        Ordering::Release if cfg!(faultless_tsan) => Ordering::AcqRel,
        order => order,
    }
}

macro_rules! forward_integer {
    ($name:ty, $value:ty) => {
        forward_atomic!($name, $value);
        impl AtomicInteger for $name {
            #[inline(always)]
            fn fetch_add(&self, value: $value, order: Ordering) -> $value {
                self.fetch_add(value, in_effect(order))
            }
            #[inline(always)]
            fn fetch_sub(&self, value: $value, order: Ordering) -> $value {
                self.fetch_sub(value, in_effect(order))
            }
            #[inline(always)]
            fn fetch_and(&self, value: $value, order: Ordering) -> $value {
                self.fetch_and(value, in_effect(order))
            }
            #[inline(always)]
            fn fetch_or(&self, value: $value, order: Ordering) -> $value {
                self.fetch_or(value, in_effect(order))
            }
        }
        // SAFETY: std documents that the type has the in-memory representation of its value.
        unsafe impl InPlace for $name {}
    };
}

forward_atomic!(AtomicBool, bool);
forward_atomic!(AtomicPtr<T>, *mut T, T);
forward_integer!(AtomicU8, u8);
forward_integer!(AtomicU16, u16);
forward_integer!(AtomicU32, u32);
forward_integer!(AtomicU64, u64);
forward_integer!(AtomicUsize, usize);
