//! An x86-64 processor with a TLB, as far as memory goes: written from the manual (Intel SDM volume 3A, chapter 4), and
//! knowing nothing of the library. Physical memory is an array of the host; only `Machine::at` knows where.

use faultless_embed_kernel::{Fate, Hardware, Kernel, Process, Ram, Window};
use faultless_platform::native::HostRegion;
use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};

const PRESENT: u64 = 1;
const WRITE: u64 = 1 << 1;
const USER: u64 = 1 << 2;
const ACCESSED: u64 = 1 << 5;
const DIRTY: u64 = 1 << 6;
const LARGE: u64 = 1 << 7;
const GLOBAL: u64 = 1 << 8;
const NO_EXECUTE: u64 = 1 << 63;
const ADDRESS: u64 = 0x000f_ffff_ffff_f000;

/// Physical memory begins here, with a hole in it.
pub const MAP: [Range<u64>; 3] = [0x4000_3000..0x4010_0000, 0x4034_5000..0x4060_0000, 0x40ff_e000..0x4100_0000];
const FIRST: u64 = 0x4000_0000;
const LEN: usize = 16 << 20;

/// What the TLB knows of a page: the physical page, and the rights of all levels together.
#[derive(Clone, Copy)]
struct Known {
    page: u64,
    rights: u64,
    is_dirty: bool,
}

#[derive(Default)]
struct Processor {
    root: Cell<u64>,
    tlb: RefCell<HashMap<u64, Known>>,
    interrupts_off: Cell<u32>,
    nr_forgotten: Cell<u64>,
    memory: Cell<usize>,
}

thread_local! {
    static PROCESSOR: Processor = Processor::default();
}

/// The processor of the test's thread.
pub enum Pc {}

impl Hardware for Pc {
    fn forget_page(address: u64) {
        PROCESSOR.with(|cpu| {
            cpu.tlb.borrow_mut().remove(&(address >> 12));
            cpu.nr_forgotten.set(cpu.nr_forgotten.get() + 1);
        });
    }
    fn forget_all() {
        PROCESSOR.with(|cpu| cpu.tlb.borrow_mut().retain(|_, known| known.rights & GLOBAL != 0));
    }
    fn load_root(root: u64) {
        PROCESSOR.with(|cpu| cpu.root.set(root));
        Self::forget_all();
    }
    fn interrupts(on: bool) {
        PROCESSOR.with(|cpu| {
            let depth = cpu.interrupts_off.get();
            cpu.interrupts_off.set(if on { depth.checked_sub(1).expect("sti without cli") } else { depth + 1 });
        });
    }
    fn now() -> u64 {
        0
    }
}

/// How an instruction ended that touched memory.
pub type Outcome<T> = Result<T, Fate>;

#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Access {
    Read,
    Write,
    Fetch,
}

/// The machine of one test.
pub struct Machine {
    region: HostRegion,
}

impl Machine {
    pub fn new() -> Self {
        let region = HostRegion::reserve(LEN).expect("the host has room");
        PROCESSOR.with(|cpu| {
            cpu.tlb.borrow_mut().clear();
            cpu.memory.set(region.base().as_ptr().expose_provenance());
        });
        Self { region }
    }

    pub fn boot(&self) -> Ram<Pc> {
        let window = Window { pointer: self.region.base().as_ptr(), first: FIRST };
        // SAFETY: the region is new, zeroed, and lives as long as the test.
        unsafe { Ram::boot(window, &MAP) }.expect("the map is good")
    }

    pub fn kernel(&self) -> Kernel<Pc> {
        Kernel::new(self.boot()).expect("there is memory")
    }

    pub fn nr_forgotten(&self) -> u64 {
        PROCESSOR.with(|cpu| cpu.nr_forgotten.get())
    }

    pub fn interrupts_are_on(&self) -> bool {
        PROCESSOR.with(|cpu| cpu.interrupts_off.get() == 0)
    }
}

/// The word at a physical address; no bus error, but a panic, where no memory is.
fn at(physical: u64) -> &'static AtomicU64 {
    assert!(MAP.iter().any(|range| range.contains(&physical)), "bus error at {physical:#x}");
    assert!(physical.is_multiple_of(8));
    let base = PROCESSOR.with(|cpu| cpu.memory.get());
    let word = std::ptr::with_exposed_provenance_mut::<u64>(base + (physical - FIRST) as usize);
    // SAFETY: inside the region, which lives as long as the test; the library accesses words atomically, too.
    unsafe { AtomicU64::from_ptr(word) }
}

/// Walks the tables of the loaded root; a page-fault error code on failure.
fn walk(address: u64, access: Access, is_user: bool) -> Result<Known, u64> {
    let code = (if access == Access::Write { 2 } else { 0 })
        | (if is_user { 4 } else { 0 })
        | (if access == Access::Fetch { 16 } else { 0 });
    let mut table = PROCESSOR.with(|cpu| cpu.root.get());
    let mut rights = WRITE | USER;
    let mut is_executable = true;
    for level in (0..4).rev() {
        let shift = 12 + 9 * level;
        let slot = at((table & ADDRESS) + (address >> shift & 511) * 8);
        let entry = slot.load(Ordering::Acquire);
        if entry & PRESENT == 0 {
            return Err(code);
        }
        rights &= entry | !(WRITE | USER);
        is_executable &= entry & NO_EXECUTE == 0;
        if level > 0 && entry & LARGE == 0 {
            slot.fetch_or(ACCESSED, Ordering::AcqRel);
            table = entry;
            continue;
        }
        let allowed = (access != Access::Write || rights & WRITE != 0)
            && (!is_user || rights & USER != 0)
            && (access != Access::Fetch || is_executable);
        if !allowed {
            return Err(code | 1);
        }
        let used = ACCESSED | if access == Access::Write { DIRTY } else { 0 };
        if slot.compare_exchange(entry, entry | used, Ordering::AcqRel, Ordering::Acquire).is_err() {
            return walk(address, access, is_user);
        }
        let within = address & ((1 << shift) - 1) & !0xfff;
        let all = rights | entry & GLOBAL | if is_executable { 0 } else { NO_EXECUTE };
        let page = (entry & ADDRESS & !((1 << shift) - 1)) + within;
        return Ok(Known { page, rights: all, is_dirty: (entry | used) & DIRTY != 0 });
    }
    unreachable!("level 0 returns")
}

/// Translates by the TLB, or by a walk that fills it.
fn translate(address: u64, access: Access, is_user: bool) -> Result<u64, u64> {
    let known = PROCESSOR.with(|cpu| cpu.tlb.borrow().get(&(address >> 12)).copied());
    let serves = |known: &Known| match access {
        Access::Read => !is_user || known.rights & USER != 0,
        Access::Write => known.rights & WRITE != 0 && known.is_dirty && (!is_user || known.rights & USER != 0),
        Access::Fetch => known.rights & NO_EXECUTE == 0 && (!is_user || known.rights & USER != 0),
    };
    let known = match known.filter(serves) {
        Some(known) => known,
        None => {
            let known = walk(address, access, is_user)?;
            PROCESSOR.with(|cpu| cpu.tlb.borrow_mut().insert(address >> 12, known));
            known
        }
    };
    Ok(known.page + (address & 0xfff))
}

/// A kernel's own access, which never faults.
pub fn kernel_load(address: u64) -> u64 {
    at(translate(address, Access::Read, false).expect("the kernel's own memory")).load(Ordering::Relaxed)
}

/// User code of a process that has the CPU.
pub struct Program<'a, 'k>(pub &'a Process<'k, Pc>);

impl Program<'_, '_> {
    fn access(&self, address: u64, access: Access) -> Outcome<u64> {
        loop {
            let code = match translate(address, access, true) {
                Ok(physical) => return Ok(physical),
                Err(code) => code,
            };
            match self.0.page_fault(address, code) {
                Fate::Resumes => {}
                fate => return Err(fate),
            }
        }
    }

    pub fn load(&self, address: u64) -> Outcome<u64> {
        Ok(at(self.access(address, Access::Read)?).load(Ordering::Relaxed))
    }

    pub fn store(&self, address: u64, value: u64) -> Outcome<()> {
        at(self.access(address, Access::Write)?).store(value, Ordering::Relaxed);
        Ok(())
    }

    pub fn fetch(&self, address: u64) -> Outcome<()> {
        self.access(address, Access::Fetch).map(|_| ())
    }

    pub fn call(&self, number: u64, arguments: &[u64]) -> i64 {
        let mut six = [0; 6];
        six[..arguments.len()].copy_from_slice(arguments);
        self.0.call(number, six, &mut |_| ())
    }

    /// mmap(NULL, len, prot, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0)
    pub fn map(&self, len: u64, prot: u64) -> u64 {
        u64::try_from(self.call(9, &[0, len, prot, 0x22, u64::MAX, 0])).expect("there is room")
    }
}
