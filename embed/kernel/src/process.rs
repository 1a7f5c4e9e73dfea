//! Processes: a space each, the fault entry, system calls, copies to and from user memory.
//!
//! # Guarantee
//! Every trap ends in user mode again with what the tables say, or in a [`Fate`] that says why not.

use crate::cpu::{Cpu, Hardware};
use crate::ram::Ram;
use alloc::boxed::Box;
use core::pin::Pin;
use core::sync::atomic::{AtomicU8, Ordering};
use faultless_abi::{Calls, page_fault};
use faultless_phys::OutOfFrames;
use faultless_platform::PAGE_BYTES;
use faultless_vm::{Access, AccessError, CallError, Guest, Limits, Reason, Resolution, SpaceRef, VirtAddr, Vm};

/// All processes' memory.
pub struct Kernel<H: Hardware> {
    vm: Pin<Box<Vm<Cpu<H>>>>,
}

/// What becomes of a process after a fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// It goes on.
    Resumes,
    /// It gets a signal: number and code, as in `siginfo`.
    Signal(u32, u32),
    /// It is ended: no memory is left.
    Ended(Option<OutOfFrames>),
}

/// Where a program's heap begins; an ELF loader puts it behind the program.
const HEAP: u64 = 0x5555_0000_0000;
const SIGBUS: u32 = 7;
const SIGSEGV: u32 = 11;
/// EFAULT, as a call returns it.
const BAD_ADDRESS: i64 = -14;
const NO_SUCH_CALL: i64 = -38;

impl<H: Hardware> Kernel<H> {
    /// Makes a kernel over the machine's memory.
    pub fn new(ram: Ram<H>) -> Result<Self, OutOfFrames> {
        Ok(Self { vm: Vm::new(ram)? })
    }

    /// Makes a process with nothing mapped.
    pub fn spawn(&self) -> Result<Process<'_, H>, CallError> {
        let space = self.vm.create_space(Limits::default())?;
        space.set_heap_start(VirtAddr::new(HEAP));
        Ok(Process::of(&space))
    }

    /// Returns the instance, for checks.
    pub fn vm(&self) -> &Vm<Cpu<H>> {
        &self.vm
    }
}

/// A process of one thread.
pub struct Process<'k, H: Hardware> {
    guest: Guest<'k, Cpu<H>>,
}

impl<'k, H: Hardware> Process<'k, H> {
    fn of(space: &SpaceRef<'k, Cpu<H>>) -> Self {
        Self { guest: Guest::new(space) }
    }

    /// Returns the space.
    pub fn space(&self) -> &SpaceRef<'k, Cpu<H>> {
        self.guest.space()
    }

    /// Switches the CPU to this process, and to user mode.
    pub fn resume(&self) {
        H::load_root(self.guest.activate().address().get());
        self.guest.enter();
    }

    /// Takes the CPU away, for another process's `resume`; from user mode.
    pub fn suspend(&self) {
        self.guest.leave();
        self.guest.deactivate();
    }

    /// The page-fault entry: `address` is CR2.
    pub fn page_fault(&self, address: u64, error_code: u64) -> Fate {
        let (access, mode) = page_fault(error_code);
        self.guest.leave();
        let resolution = self.space().handle_fault(VirtAddr::new(address), access, mode);
        self.guest.enter();
        match resolution {
            Resolution::Resolved | Resolution::Retry => Fate::Resumes,
            Resolution::Spurious => {
                H::forget_page(address & !(PAGE_BYTES as u64 - 1));
                Fate::Resumes
            }
            Resolution::Killed(Reason::MapErr) => Fate::Signal(SIGSEGV, 1),
            Resolution::Killed(Reason::AccErr) => Fate::Signal(SIGSEGV, 2),
            Resolution::Killed(Reason::PkuErr) => Fate::Signal(SIGSEGV, 4),
            Resolution::Killed(Reason::BusAdrErr) => Fate::Signal(SIGBUS, 2),
            Resolution::Killed(Reason::OutOfMemory(cause)) => Fate::Ended(cause),
        }
    }

    /// The system-call entry: Linux's number and arguments in, value or negative errno out. `console` gets what
    /// write(2) writes to any descriptor.
    pub fn call(&self, number: u64, arguments: [u64; 6], console: &mut dyn FnMut(u8)) -> i64 {
        self.guest.leave();
        let [a, b, c, d, e, _] = arguments;
        let calls = Calls::new(self.space());
        let answer = match number {
            9 => calls.mmap(arguments, None),
            10 => calls.mprotect(a, b, c),
            11 => calls.munmap(a, b),
            12 => calls.brk(a),
            25 => calls.mremap([a, b, c, d, e]),
            28 => calls.madvise(a, b, c),
            149 => calls.mlock(a, b),
            _ => {
                let value = if number == 1 { self.write(b, c, console) } else { NO_SUCH_CALL };
                self.guest.enter();
                return value;
            }
        };
        self.guest.enter();
        answer.map_or_else(|errno| errno.raw(), |value| value as i64)
    }

    /// fork(2): a copy of the process. From user mode.
    pub fn fork(&self) -> Result<Self, CallError> {
        self.guest.leave();
        let child = self.space().fork();
        self.guest.enter();
        child.map(|space| Self::of(&space))
    }

    fn write(&self, address: u64, len: u64, console: &mut dyn FnMut(u8)) -> i64 {
        for offset in 0..len {
            match self.copy_from_user(address.wrapping_add(offset)) {
                Ok(byte) => console(byte),
                Err(_) => return if offset == 0 { BAD_ADDRESS } else { offset as i64 },
            }
        }
        len as i64
    }

    /// Reads a byte of user memory, from a call.
    pub fn copy_from_user(&self, address: u64) -> Result<u8, AccessError> {
        let place = address as usize % PAGE_BYTES;
        self.guest.with_frame(VirtAddr::new(address), Access::Read, |page| {
            // SAFETY: the page is there while this runs, the byte is in it, and user memory is accessed atomically.
            unsafe { AtomicU8::from_ptr(page.add(place)) }.load(Ordering::Relaxed)
        })
    }

    /// Writes a byte of user memory, from a call.
    pub fn copy_to_user(&self, address: u64, byte: u8) -> Result<(), AccessError> {
        let place = address as usize % PAGE_BYTES;
        self.guest.with_frame(VirtAddr::new(address), Access::Write, |page| {
            // SAFETY: as above.
            unsafe { AtomicU8::from_ptr(page.add(place)) }.store(byte, Ordering::Relaxed);
        })
    }
}
