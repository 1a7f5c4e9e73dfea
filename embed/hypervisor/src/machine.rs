//! A machine's guest-physical memory: RAM at fixed places, and what becomes of violations.
//!
//! # Guarantee
//! What a machine's processors and devices store is there for all of them. An access outside RAM, or against its
//! rights, is an [`Exit`] and changes nothing.

use crate::formats::{Hardware, Tables};
use faultless_phys::{Memory, OutOfFrames, Pfn};
use faultless_platform::native::NativeOf;
use faultless_vm::{
    Access, AddressRange, Backing, CallError, Guest, Limits, MapOptions, MapRequest, Mode, Placement, Populate,
    Privileges, Protection, Reason, Resolution, SpaceRef, VirtAddr, Vm,
};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::{Deref, Range};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The library's platform on this hardware: threads of the host are virtual processors.
pub(crate) type Cpu<H> = NativeOf<Tables<H>>;

/// Makes the instance that machines are made from, over the host's `memory`.
pub fn instance<H: Hardware>(memory: Memory<Cpu<H>>) -> Result<impl Deref<Target = Vm<Cpu<H>>>, OutOfFrames> {
    Vm::new(memory)
}

/// A range of guest-physical addresses with memory behind it, in whole pages.
pub type Ram = Range<u64>;

/// What the guest may do with some memory; stores need loads on this hardware.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rights {
    /// Loads.
    pub read: bool,
    /// Stores.
    pub write: bool,
    /// Fetches.
    pub execute: bool,
}

/// Why a processor leaves the guest for good.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exit {
    /// No memory is there: a device's register, or a mistake of the guest.
    NoMemory,
    /// The memory's rights forbid it.
    Forbidden,
    /// The host has no memory left.
    OutOfMemory,
}

/// A machine's memory.
pub struct Machine<'vm, H: Hardware> {
    pub(crate) space: SpaceRef<'vm, Cpu<H>>,
    pub(crate) ram: Vec<Ram>,
    devices: Mutex<Devices>,
}

/// Pages that devices may write, or have written, without a fault.
#[derive(Default)]
pub(crate) struct Devices {
    /// By how many windows each page is held for writing.
    pub(crate) open: BTreeMap<u64, usize>,
    /// Pages of windows that were closed since the last look.
    pub(crate) closed: BTreeSet<u64>,
}

impl<'vm, H: Hardware> Machine<'vm, H> {
    /// Makes a machine with this RAM, all zeros; pages come at their first access.
    pub fn new(vm: &'vm Vm<Cpu<H>>, ram: &[Ram]) -> Result<Self, CallError> {
        // Guest-physical memory begins at 0.
        let privileges = Limits::default().privileges | Privileges::LOW_ADDRESSES;
        let limits = Limits { privileges, mmap_min_addr: 0, has_protection_keys: true, ..Limits::default() };
        let space = vm.create_space(limits)?;
        for range in ram {
            space.mmap(&MapRequest {
                placement: Placement::Fixed(VirtAddr::new(range.start)),
                len_bytes: range.end - range.start,
                protection: Protection::READ | Protection::WRITE | Protection::EXEC,
                options: MapOptions::empty(),
                backing: Backing::Anonymous,
                populate: Populate::OnFault,
            })?;
        }
        Ok(Self { space, ram: ram.to_vec(), devices: Mutex::default() })
    }

    /// Changes what the guest may do with a range.
    pub fn protect(&self, range: Ram, rights: Rights) -> Result<(), CallError> {
        let mut protection = Protection::empty();
        protection.set(Protection::READ, rights.read);
        protection.set(Protection::WRITE, rights.write);
        protection.set(Protection::EXEC, rights.execute);
        // Here it needs no key: the tables have a bit for loads.
        protection.set(Protection::EXECUTE_ONLY, rights.execute && !rights.read && !rights.write);
        self.space.mprotect(AddressRange::new(VirtAddr::new(range.start), range.end - range.start), protection)
    }

    /// Makes a virtual processor, for the calling thread.
    pub fn processor(&self) -> Guest<'vm, Cpu<H>> {
        Guest::new(&self.space)
    }

    /// The root of the tables, for the EPT pointer.
    pub fn root(&self, processor: &Guest<'vm, Cpu<H>>) -> Pfn {
        processor.activate()
    }

    /// An EPT violation at a guest-physical address, outside the guest; `qualification` is the exit's (Intel SDM volume
    /// 3C, table "Exit Qualification for EPT Violations"). If it returns, the guest goes on.
    pub fn violation(&self, address: u64, qualification: u64) -> Result<(), Exit> {
        let access = match qualification & 7 {
            bits if bits & 2 != 0 => Access::Write,
            bits if bits & 4 != 0 => Access::Fetch,
            _ => Access::Read,
        };
        match self.space.handle_fault(VirtAddr::new(address), access, Mode::User) {
            Resolution::Spurious => {
                H::forget(self.space.id(), None);
                Ok(())
            }
            Resolution::Resolved | Resolution::Retry => Ok(()),
            Resolution::Killed(Reason::MapErr | Reason::BusAdrErr) => Err(Exit::NoMemory),
            Resolution::Killed(Reason::AccErr | Reason::PkuErr) => Err(Exit::Forbidden),
            Resolution::Killed(Reason::OutOfMemory(_)) => Err(Exit::OutOfMemory),
        }
    }

    pub(crate) fn devices(&self) -> MutexGuard<'_, Devices> {
        self.devices.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
