//! A processor with nested paging, as far as guest-physical addresses go: written from the manual (Intel SDM volume 3C,
//! "The Extended Page Table Mechanism"), and knowing nothing of the library. Each virtual CPU has a TLB that only
//! `Hardware::forget` empties.

use faultless_embed_hypervisor::{EptWithoutBits, Exit, Hardware, Machine, Tables, instance};
use faultless_phys::{Memory, Options};
use faultless_platform::Processor;
use faultless_platform::native::{self, HostRegion, NativeOf};
use faultless_vm::{Ept, Guest, PageRange, SpaceId, VirtAddr, Vm, check};
use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

const READ: u64 = 1 << 0;
const WRITE: u64 = 1 << 1;
const EXECUTE: u64 = 1 << 2;
const RIGHTS: u64 = READ | WRITE | EXECUTE;
const MEMORY_TYPE: u64 = 7 << 3;
const WRITE_BACK: u64 = 6 << 3;
const LARGE: u64 = 1 << 7;
const ACCESSED: u64 = 1 << 8;
const DIRTY: u64 = 1 << 9;
const ADDRESS: u64 = 0x000f_ffff_ffff_f000;
/// Physical addresses of this processor have so many bits.
const PHYSICAL_BITS: u64 = 40;

pub const NR_CPUS: usize = 4;
pub const LEN: usize = 64 << 20;

/// What a TLB knows of a page.
#[derive(Clone, Copy)]
struct Known {
    page: u64,
    rights: u64,
    is_dirty: bool,
}

type Tlb = HashMap<(SpaceId, u64), Known>;

static TLBS: [Mutex<Option<Tlb>>; NR_CPUS] = [const { Mutex::new(None) }; NR_CPUS];
static MEMORY: AtomicUsize = AtomicUsize::new(0);
/// There is one processor: one test at a time has it.
static PROCESSOR: Mutex<()> = Mutex::new(());

fn with_tlb<R>(cpu: usize, act: impl FnOnce(&mut Tlb) -> R) -> R {
    act(TLBS[cpu].lock().unwrap_or_else(PoisonError::into_inner).get_or_insert_default())
}

/// A generation of the processor.
pub trait Generation: Hardware {
    /// Whether the walk sets accessed and dirty bits.
    const SETS_BITS: bool;
}

/// One that sets accessed and dirty bits.
pub enum WithBits {}

/// One that doesn't.
pub enum WithoutBits {}

fn forget<H: 'static>(space: SpaceId, range: Option<PageRange>) {
    with_tlb(NativeOf::<H>::cpu(), |tlb| {
        let is_meant = |page: u64| range.is_none_or(|range| range.contains(VirtAddr::new(page << 12)));
        tlb.retain(|&(of, page), _| !((space == 0 || of == space) && is_meant(page)));
    });
}

impl Hardware for WithBits {
    type Format = Ept;
    fn forget(space: SpaceId, range: Option<PageRange>) {
        forget::<Tables<Self>>(space, range);
    }
}

impl Hardware for WithoutBits {
    type Format = EptWithoutBits;
    fn forget(space: SpaceId, range: Option<PageRange>) {
        forget::<Tables<Self>>(space, range);
    }
}

impl Generation for WithBits {
    const SETS_BITS: bool = true;
}

impl Generation for WithoutBits {
    const SETS_BITS: bool = false;
}

pub type Instance<H> = Vm<NativeOf<Tables<H>>>;
pub type Cpu<'vm, H> = Guest<'vm, NativeOf<Tables<H>>>;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    Read,
    Write,
    Fetch,
}

/// Gives `act` an instance, and the processor; afterwards every invariant holds.
pub fn with_instance<H: Generation>(act: impl FnOnce(&native::Machine, &Instance<H>)) {
    let _processor: MutexGuard<'_, ()> = PROCESSOR.lock().unwrap_or_else(PoisonError::into_inner);
    TLBS.iter().for_each(|tlb| *tlb.lock().unwrap_or_else(PoisonError::into_inner) = None);
    let region = HostRegion::reserve(LEN).expect("the host has room");
    MEMORY.store(region.base().as_ptr().expose_provenance(), Ordering::Relaxed);
    let machine = native::Machine::new(NR_CPUS);
    machine.attach(|| {
        // SAFETY: the region is zeroed, ours alone, and outlives the instance.
        let memory = unsafe { Memory::new(region.base(), LEN, NR_CPUS, Options::default()) }.expect("large enough");
        let vm = instance::<H>(memory).expect("a page of zeros");
        act(&machine, &vm);
        // SAFETY: nobody else is left.
        unsafe { check::invariants(&vm) }.unwrap_or_else(|broken| panic!("{broken}"));
    });
}

/// The word at a physical address.
fn at(physical: u64) -> &'static AtomicU64 {
    assert!(physical < LEN as u64 && physical.is_multiple_of(8), "bus error at {physical:#x}");
    let word = std::ptr::with_exposed_provenance_mut::<u64>(MEMORY.load(Ordering::Relaxed) + physical as usize);
    // SAFETY: inside the region, which lives as long as the test; the library accesses words atomically, too.
    unsafe { AtomicU64::from_ptr(word) }
}

/// Walks from the root; the exit qualification of a violation.
fn walk<H: Generation>(root: u64, address: u64, access: Access) -> Result<Known, u64> {
    let wanted = match access {
        Access::Read => READ,
        Access::Write => WRITE,
        Access::Fetch => EXECUTE,
    };
    let (mut table, mut rights) = (root, RIGHTS);
    for level in (0..4).rev() {
        let slot = at((table & ADDRESS) + (address >> (12 + 9 * level) & 511) * 8);
        let entry = slot.load(Ordering::Acquire);
        if entry & RIGHTS == 0 {
            return Err(wanted);
        }
        assert!(entry & RIGHTS != WRITE && entry & RIGHTS != WRITE | EXECUTE, "misconfiguration: {entry:#x}");
        assert!(entry & ADDRESS < 1 << PHYSICAL_BITS, "misconfiguration: {entry:#x}");
        rights &= entry;
        if level > 0 {
            assert!(entry & (MEMORY_TYPE | LARGE) == 0, "misconfiguration: {entry:#x}");
            table = entry;
            if H::SETS_BITS {
                slot.fetch_or(ACCESSED, Ordering::AcqRel);
            }
            continue;
        }
        assert!(entry & MEMORY_TYPE == WRITE_BACK, "misconfiguration: {entry:#x}");
        if rights & wanted == 0 {
            return Err(wanted | rights << 3);
        }
        let used = match access {
            _ if !H::SETS_BITS => 0,
            Access::Write => ACCESSED | DIRTY,
            Access::Read | Access::Fetch => ACCESSED,
        };
        if slot.compare_exchange(entry, entry | used, Ordering::AcqRel, Ordering::Acquire).is_err() {
            return walk::<H>(root, address, access);
        }
        let is_dirty = !H::SETS_BITS || (entry | used) & DIRTY != 0;
        return Ok(Known { page: entry & ADDRESS, rights, is_dirty });
    }
    unreachable!("level 0 returns")
}

/// A virtual CPU that runs a program on a machine.
pub struct Core<'m, 'vm, H: Generation> {
    pub machine: &'m Machine<'vm, H>,
    cpu: Cpu<'vm, H>,
    root: u64,
}

impl<'m, 'vm, H: Generation> Core<'m, 'vm, H> {
    pub fn new(machine: &'m Machine<'vm, H>) -> Self {
        let cpu = machine.processor();
        let root = machine.root(&cpu).address().get();
        Self { machine, cpu, root }
    }

    /// Runs one instruction that touches memory.
    fn run<R>(&self, address: u64, access: Access, act: impl Fn(&AtomicU64) -> R) -> Result<R, Exit> {
        loop {
            self.cpu.enter();
            let translated = self.translate(address, access);
            let result = translated.map(|physical| act(at(physical)));
            self.cpu.leave();
            match result {
                Ok(result) => return Ok(result),
                Err(qualification) => self.machine.violation(address, qualification)?,
            }
        }
    }

    fn translate(&self, address: u64, access: Access) -> Result<u64, u64> {
        let (cpu, key) = (NativeOf::<Tables<H>>::cpu(), (self.cpu.space().id(), address >> 12));
        let serves = |known: &Known| match access {
            Access::Read => known.rights & READ != 0,
            Access::Write => known.rights & WRITE != 0 && known.is_dirty,
            Access::Fetch => known.rights & EXECUTE != 0,
        };
        let known = match with_tlb(cpu, |tlb| tlb.get(&key).copied()).filter(serves) {
            Some(known) => known,
            None => {
                let known = walk::<H>(self.root, address, access)?;
                with_tlb(cpu, |tlb| tlb.insert(key, known));
                known
            }
        };
        Ok(known.page + (address & 0xfff))
    }

    pub fn load(&self, address: u64) -> Result<u64, Exit> {
        self.run(address, Access::Read, |word| word.load(Ordering::Relaxed))
    }

    pub fn store(&self, address: u64, value: u64) -> Result<(), Exit> {
        self.run(address, Access::Write, |word| word.store(value, Ordering::Relaxed))
    }

    pub fn fetch(&self, address: u64) -> Result<(), Exit> {
        self.run(address, Access::Fetch, |_| ())
    }
}
