//! A platform of one CPU that nothing interrupts.

use core::sync::atomic::{AtomicBool, AtomicPtr, AtomicU8, AtomicU16, AtomicU32, AtomicU64, AtomicUsize};
use faultless_platform::{CpuSet, InterruptHandler, Ordering, Platform, Processor, ThreadToken};

/// One CPU.
#[derive(Clone, Copy, Debug)]
pub enum Solo {}

impl Processor for Solo {
    type AtomicBool = AtomicBool;
    type AtomicU8 = AtomicU8;
    type AtomicU16 = AtomicU16;
    type AtomicU32 = AtomicU32;
    type AtomicU64 = AtomicU64;
    type AtomicUsize = AtomicUsize;
    type AtomicPtr<T> = AtomicPtr<T>;

    fn fence(order: Ordering) {
        core::sync::atomic::fence(order);
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

// SAFETY: there is no other CPU to shoot down.
unsafe impl Platform for Solo {
    type Embedding = faultless_platform::Usual;

    unsafe fn guest_enter() -> bool {
        false
    }
    unsafe fn guest_exit() {}
    fn owned_cpu() -> Option<usize> {
        Some(0)
    }
    fn is_idle(_: usize) -> bool {
        false
    }
    fn shoot_down(_: &CpuSet, _: impl FnMut(usize) -> bool) {}
    unsafe fn set_interrupt_handler(_: InterruptHandler, _: *const ()) {}
    unsafe fn clear_interrupt_handler(_: *const ()) {}
    fn work(_: u64) {}
}
