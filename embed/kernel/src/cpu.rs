//! The processor as the library sees it: one CPU, which nothing but its own traps interrupts.
//!
//! # Guarantee
//! The CPU's TLB forgets what the library says ([`Embedding::flush`]), before the call that changed the tables returns.

use crate::ram::Ram;
use core::marker::PhantomData;
use core::sync::atomic::{AtomicBool, AtomicPtr, AtomicU8, AtomicU16, AtomicU32, AtomicU64, AtomicUsize};
use faultless_platform::{CpuSet, InterruptHandler, Ordering, Platform, Processor, ThreadToken};
use faultless_vm::{Embedding, PageRange, SpaceId, X86_64};

/// What only hardware can do.
pub trait Hardware: 'static {
    /// `invlpg`: forgets the translation of one page.
    fn forget_page(address: u64);
    /// Loads the root again: forgets all translations that are not global.
    fn forget_all();
    /// `mov cr3`: walks the tables from this physical address on; forgets all translations that are not global.
    fn load_root(root: u64);
    /// `sti` and `cli`.
    fn interrupts(on: bool);
    /// Nanoseconds since some instant.
    fn now() -> u64;
}

/// The CPU, on some hardware.
pub struct Cpu<H>(PhantomData<fn() -> H>);

/// More pages than this are forgotten together with all others.
const PAGES_ONE_BY_ONE: u64 = 33;

impl<H: Hardware> Processor for Cpu<H> {
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
    fn irq_off() {
        H::interrupts(false);
    }
    fn irq_on() {
        H::interrupts(true);
    }
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
        H::now()
    }
    fn spin_until(mut condition: impl FnMut() -> bool) {
        while !condition() {
            core::hint::spin_loop();
        }
    }
    fn spin_until_deadline(deadline_ns: u64, mut condition: impl FnMut() -> bool) -> bool {
        loop {
            match condition() {
                false if H::now() < deadline_ns => core::hint::spin_loop(),
                held => return held,
            }
        }
    }
    fn park(_: &AtomicU32, _: u32) {}
    fn unpark(_: *const AtomicU32, _: usize) -> usize {
        0
    }
}

/// What address spaces are made of here.
pub struct Own<H>(PhantomData<fn() -> H>);

impl<H: Hardware> Embedding<Cpu<H>> for Own<H> {
    type Frames = Ram<H>;
    type Format = X86_64;
    const WAITS_FOR_LOADED: bool = true;

    fn flush(_: SpaceId, range: Option<PageRange>) {
        match range {
            Some(range) if range.nr_pages() <= PAGES_ONE_BY_ONE => {
                range.pages().for_each(|page| H::forget_page(page.get()));
            }
            _ => H::forget_all(),
        }
    }

    fn share_root(frames: &Ram<H>, root: faultless_phys::Pfn) {
        frames.share_kernel_half(root);
    }
}

// SAFETY: there is no other CPU to shoot down.
unsafe impl<H: Hardware> Platform for Cpu<H> {
    type Embedding = Own<H>;

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
