//! A hart's memory: an address space, and a software TLB that remembers its entries.
//!
//! # Guarantee
//! A translation is used only while the hart's CPU is in guest state, and forgotten when the library says so: in
//! [`Embedding::flush`], which runs on the hart's own thread, in its calls and whenever it enters guest state again.
//!
//! A hit masks and compares one word and adds another. The three kinds of access have tables of their own, so that a
//! hit asks for no rights.

use faultless_phys::Memory as Frames;
use faultless_platform::native::NativeOf;
use faultless_platform::{PAGE_BYTES, Platform, Processor};
use faultless_vm::X86_64;
use faultless_vm::{
    Access, Embedding, Entry, EntryFlags, Guest, Mode, PageRange, Reason, Resolution, SpaceId, SpaceRef, VirtAddr,
};
use std::cell::Cell;
use std::ptr;

/// The name of what spaces are made of here.
pub struct Own;

/// The library's platform: threads of the host.
pub type Cpu = NativeOf<Own>;

impl<P: Platform> Embedding<P> for Own {
    type Frames = Frames<P>;
    type Format = X86_64;

    fn flush(_: SpaceId, range: Option<PageRange>) {
        // SAFETY: the hart's `Memory` takes itself out before it ends, and is not being looked at: it has called.
        if let Some(tlb) = unsafe { TLB.get().as_mut() } {
            tlb.forget(range);
        }
    }
}

thread_local! {
    /// The TLB of the thread's hart.
    static TLB: Cell<*mut Tlb> = const { Cell::new(ptr::null_mut()) };
}

/// Translations of one kind of access that are remembered.
const WAYS: usize = 256;
const PAGE: u64 = PAGE_BYTES as u64;
/// What no address is, masked: an address without its bits 3 to 11.
const NOWHERE: u64 = u64::MAX;
/// A TLB that forgets more pages than this forgets all.
const PAGES_ONE_BY_ONE: u64 = 33;

/// A page, and what leads from an address in it to the host's.
#[derive(Clone, Copy)]
struct Way {
    page: u64,
    addend: usize,
}

/// Translations for loads, stores and fetches.
struct Tlb([[Way; WAYS]; 3]);

impl Tlb {
    fn forget(&mut self, range: Option<PageRange>) {
        let nowhere = Way { page: NOWHERE, addend: 0 };
        match range {
            Some(range) if range.nr_pages() <= PAGES_ONE_BY_ONE => {
                for page in range.pages().map(VirtAddr::get) {
                    let place = (page / PAGE) as usize % WAYS;
                    self.0.iter_mut().filter(|ways| ways[place].page == page).for_each(|ways| ways[place] = nowhere);
                }
            }
            _ => self.0 = [[nowhere; WAYS]; 3],
        }
    }
}

/// What is loaded and stored: a number, of which any bytes are one.
pub trait Number: Copy + sealed::Sealed {}

mod sealed {
    pub trait Sealed {}
}

macro_rules! numbers {
    ($($name:ty),*) => {
        $(impl sealed::Sealed for $name {}
        impl Number for $name {})*
    };
}

numbers!(i8, i16, i32, u8, u16, u32, u64);

/// An access that can't be made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fault {
    /// Where.
    pub address: u64,
    /// Why.
    pub reason: Reason,
}

/// A hart's memory; it belongs to the thread that made it, which is in guest state but in calls.
pub struct Memory<'vm> {
    guest: Guest<'vm, Cpu>,
    tlb: Box<Tlb>,
    cpu: usize,
}

impl<'vm> Memory<'vm> {
    /// Makes the memory of the thread's hart.
    ///
    /// # Panics
    /// If the thread has one already: it has one TLB that is told what to forget.
    pub fn new(space: &SpaceRef<'vm, Cpu>) -> Self {
        assert!(TLB.get().is_null(), "a thread has one hart, and so one memory");
        let mut tlb = Box::new(Tlb([[Way { page: NOWHERE, addend: 0 }; WAYS]; 3]));
        TLB.set(&raw mut *tlb);
        let guest = Guest::new(space);
        guest.activate();
        guest.enter();
        Self { guest, tlb, cpu: Cpu::cpu() }
    }

    /// Returns the space.
    pub fn space(&self) -> &SpaceRef<'vm, Cpu> {
        self.guest.space()
    }

    /// Runs a call, outside guest state.
    pub fn call<R>(&mut self, act: impl FnOnce(&SpaceRef<'vm, Cpu>) -> R) -> R {
        self.guest.leave();
        let result = act(self.guest.space());
        self.enter();
        result
    }

    /// Serves shootdowns; called now and then.
    pub fn poll(&mut self) {
        self.guest.leave();
        self.enter();
    }

    fn enter(&mut self) {
        self.guest.enter();
        // What was asked of another CPU's slot while we had it is not asked of this one.
        if Cpu::cpu() != self.cpu {
            self.cpu = Cpu::cpu();
            self.tlb.forget(None);
        }
    }

    /// Returns where the host has `len` bytes at `address`, a power of two; nothing if the TLB doesn't know, or the
    /// address is no multiple of `len`, so that the bytes may be in two pages.
    #[inline(always)]
    fn hit(&self, address: u64, len: usize, kind: usize) -> Option<*mut u8> {
        let way = &self.tlb.0[kind][(address / PAGE) as usize % WAYS];
        let is_hit = address & (!(PAGE - 1) | (len as u64 - 1)) == way.page;
        is_hit.then(|| ptr::with_exposed_provenance_mut(way.addend.wrapping_add(address as usize)))
    }

    /// Loads a value.
    #[inline(always)]
    pub fn load<T: Number>(&mut self, address: u64) -> Result<T, Fault> {
        match self.hit(address, size_of::<T>(), 0) {
            // SAFETY: the bytes are in a page that the tables allow to be read, and the thread is in guest state.
            Some(place) => Ok(unsafe { place.cast::<T>().read_unaligned() }),
            None => self.load_slowly(address, Access::Read),
        }
    }

    /// Stores a value.
    #[inline(always)]
    pub fn store<T: Number>(&mut self, address: u64, value: T) -> Result<(), Fault> {
        match self.hit(address, size_of::<T>(), 1) {
            // SAFETY: as in `load`, to be written.
            Some(place) => unsafe { place.cast::<T>().write_unaligned(value) },
            None => {
                // SAFETY: a value's bytes; `T` is a number.
                let bytes = unsafe { std::slice::from_raw_parts((&raw const value).cast::<u8>(), size_of::<T>()) };
                self.write(address, bytes)?;
            }
        }
        Ok(())
    }

    /// Fetches half an instruction.
    #[inline(always)]
    pub fn fetch(&mut self, address: u64) -> Result<u16, Fault> {
        match self.hit(address, 2, 2) {
            // SAFETY: as in `load`.
            Some(place) => Ok(unsafe { place.cast::<u16>().read_unaligned() }),
            None => self.load_slowly(address, Access::Fetch),
        }
    }

    #[cold]
    fn load_slowly<T: Number>(&mut self, address: u64, access: Access) -> Result<T, Fault> {
        let mut value = std::mem::MaybeUninit::<T>::uninit();
        // SAFETY: room for a `T`, all of it written below; `T` is a number.
        let bytes = unsafe { std::slice::from_raw_parts_mut(value.as_mut_ptr().cast::<u8>(), size_of::<T>()) };
        for (offset, byte) in bytes.iter_mut().enumerate() {
            let place = self.translate(address.wrapping_add(offset as u64), access)?;
            // SAFETY: as in `load`.
            *byte = unsafe { place.read() };
        }
        // SAFETY: all bytes were written.
        Ok(unsafe { value.assume_init() })
    }

    /// Reads bytes.
    pub fn read(&mut self, address: u64, bytes: &mut [u8]) -> Result<(), Fault> {
        for (offset, byte) in bytes.iter_mut().enumerate() {
            *byte = self.load(address.wrapping_add(offset as u64))?;
        }
        Ok(())
    }

    /// Writes bytes; nothing, if not all can be written.
    pub fn write(&mut self, address: u64, bytes: &[u8]) -> Result<(), Fault> {
        for offset in (0..bytes.len()).step_by(PAGE_BYTES).chain(bytes.len().checked_sub(1)) {
            self.translate(address.wrapping_add(offset as u64), Access::Write)?;
        }
        for (offset, &byte) in bytes.iter().enumerate() {
            let place = self.translate(address.wrapping_add(offset as u64), Access::Write)?;
            // SAFETY: as in `store`.
            unsafe { place.write(byte) };
        }
        Ok(())
    }

    /// Returns where the host has a byte: by the TLB, or by the tables, after as many faults as it takes.
    fn translate(&mut self, address: u64, access: Access) -> Result<*mut u8, Fault> {
        let kind = match access {
            Access::Read => 0,
            Access::Write => 1,
            Access::Fetch => 2,
        };
        loop {
            if let Some(place) = self.hit(address, 1, kind) {
                return Ok(place);
            }
            let entry = self.space().entry_at(VirtAddr::new(address));
            if allows(entry, access) {
                let page = address & !(PAGE - 1);
                let frame = self.space().memory().frame(entry.pfn()).expose_provenance();
                self.tlb.0[kind][(address / PAGE) as usize % WAYS] =
                    Way { page, addend: frame.wrapping_sub(page as usize) };
                continue;
            }
            let resolution = self.call(|space| space.handle_fault(VirtAddr::new(address), access, Mode::User));
            if let Resolution::Killed(reason) = resolution {
                return Err(Fault { address, reason });
            }
        }
    }
}

impl Drop for Memory<'_> {
    fn drop(&mut self) {
        self.guest.leave();
        TLB.set(ptr::null_mut());
    }
}

/// Says whether an entry allows an access without a fault, its bits set.
fn allows(entry: Entry, access: Access) -> bool {
    let used = EntryFlags::PRESENT | EntryFlags::ACCESSED;
    match access {
        Access::Read => entry.has(used) && !entry.has(EntryFlags::EXECUTE_ONLY),
        Access::Write => entry.has(used | EntryFlags::WRITE | EntryFlags::DIRTY),
        Access::Fetch => entry.has(used) && !entry.has(EntryFlags::NO_EXECUTE),
    }
}
