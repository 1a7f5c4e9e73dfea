//! A platform of one CPU that nothing interrupts.

use core::sync::atomic as std_like;
use faultless_platform::{
    Atomic, AtomicInteger, Bulk, CpuSet, InPlace, InterruptHandler, Ordering, PAGE_BYTES, Platform, Processor,
    ThreadToken,
};

/// One CPU.
#[derive(Clone, Copy, Debug)]
pub enum Solo {}

/// An atomic of `core` under the platform's traits.
#[repr(transparent)]
pub struct Cell<A>(A);

macro_rules! atomic {
    ($name:ty, $value:ty $(, $param:ident)?) => {
        impl$(<$param>)? Atomic for Cell<$name> {
            type Value = $value;
            fn new(value: $value) -> Self {
                Self(<$name>::new(value))
            }
            fn load(&self, order: Ordering) -> $value {
                self.0.load(order)
            }
            fn store(&self, value: $value, order: Ordering) {
                self.0.store(value, order);
            }
            fn swap(&self, value: $value, order: Ordering) -> $value {
                self.0.swap(value, order)
            }
            fn compare_exchange(
                &self,
                current: $value,
                new: $value,
                success: Ordering,
                failure: Ordering,
            ) -> Result<$value, $value> {
                self.0.compare_exchange(current, new, success, failure)
            }
            fn compare_exchange_weak(
                &self,
                current: $value,
                new: $value,
                success: Ordering,
                failure: Ordering,
            ) -> Result<$value, $value> {
                self.0.compare_exchange_weak(current, new, success, failure)
            }
        }
    };
}

macro_rules! integer {
    ($name:ty, $value:ty) => {
        atomic!($name, $value);
        impl AtomicInteger for Cell<$name> {
            fn fetch_add(&self, value: $value, order: Ordering) -> $value {
                self.0.fetch_add(value, order)
            }
            fn fetch_sub(&self, value: $value, order: Ordering) -> $value {
                self.0.fetch_sub(value, order)
            }
            fn fetch_and(&self, value: $value, order: Ordering) -> $value {
                self.0.fetch_and(value, order)
            }
            fn fetch_or(&self, value: $value, order: Ordering) -> $value {
                self.0.fetch_or(value, order)
            }
        }
        // SAFETY: `repr(transparent)` over core's atomic, which has the representation of its value.
        unsafe impl InPlace for Cell<$name> {}
    };
}

atomic!(std_like::AtomicBool, bool);
atomic!(std_like::AtomicPtr<T>, *mut T, T);
integer!(std_like::AtomicU8, u8);
integer!(std_like::AtomicU16, u16);
integer!(std_like::AtomicU32, u32);
integer!(std_like::AtomicU64, u64);
integer!(std_like::AtomicUsize, usize);

impl Processor for Solo {
    type AtomicBool = Cell<std_like::AtomicBool>;
    type AtomicU8 = Cell<std_like::AtomicU8>;
    type AtomicU16 = Cell<std_like::AtomicU16>;
    type AtomicU32 = Cell<std_like::AtomicU32>;
    type AtomicU64 = Cell<std_like::AtomicU64>;
    type AtomicUsize = Cell<std_like::AtomicUsize>;
    type AtomicPtr<T> = Cell<std_like::AtomicPtr<T>>;

    fn fence(order: Ordering) {
        std_like::fence(order);
    }
    fn nr_cpus() -> usize {
        1
    }
    fn cpu() -> usize {
        0
    }
    fn enter() {}
    fn leave() {}
    fn irq_off() {}
    fn irq_on() {}
    fn current() -> ThreadToken {
        ThreadToken::from_bits(1)
    }
    fn is_running(_: ThreadToken) -> bool {
        true
    }
    fn should_yield() -> bool {
        false
    }
    fn now() -> u64 {
        0
    }
    fn spin_until(mut condition: impl FnMut() -> bool) {
        while !condition() {
            core::hint::spin_loop();
        }
    }
    fn spin_until_deadline(_: u64, mut condition: impl FnMut() -> bool) -> bool {
        condition()
    }
    fn park(_: &Self::AtomicU32, _: u32) {}
    fn unpark(_: *const Self::AtomicU32, _: usize) -> usize {
        0
    }
}

// SAFETY: there is no other CPU to shoot down, and `bulk` writes the whole page.
unsafe impl Platform for Solo {
    type Embedding = faultless_platform::Usual;

    fn guest_enter() -> bool {
        false
    }
    fn guest_exit() {}
    fn owned_cpu() -> Option<usize> {
        Some(0)
    }
    fn is_idle(_: usize) -> bool {
        false
    }
    fn shoot_down(_: &CpuSet, _: impl FnMut(usize) -> bool) {}
    unsafe fn set_interrupt_handler(_: InterruptHandler, _: *const ()) {}
    fn clear_interrupt_handler() {}
    fn work(_: u64) {}
    unsafe fn bulk(frame: *mut u8, kind: Bulk) {
        match kind {
            // SAFETY: the caller owns the frame.
            Bulk::Zero => unsafe { core::ptr::write_bytes(frame, 0, PAGE_BYTES) },
            // SAFETY: the caller owns the frame, which is aligned to its size.
            Bulk::Fill(word) => unsafe { core::slice::from_raw_parts_mut(frame.cast::<u64>(), PAGE_BYTES / 8) }.fill(word),
            // SAFETY: the caller owns the frame and vouches for the source.
            Bulk::CopyFrom(source) => unsafe { core::ptr::copy_nonoverlapping(source, frame, PAGE_BYTES) },
        }
    }
}
