//! A thread's view of its memory: loads, stores, fetches, and the faults they take.
//!
//! # Guarantee
//! An access either happens, to the frame that the tables gave at some instant during the call, or fails with the
//! signal that Linux would send. Between lookup and access nothing else happens on the CPU, so that a shootdown never
//! misses one.

use crate::access::Access;
use crate::addr::{VirtAddr, page_floor};
use crate::design::{DefaultDesign, Design};
use crate::entry::{Entry, EntryFlags};
use crate::error::AccessError;
use crate::events::Event;
use crate::fault::{Fault, Handled};
use crate::space::{Space, SpaceRef};
use crate::system::System;
use crate::translations::lanes::Walks;
use crate::translations::table::{Leaf, as_reached, load};
use crate::translations::tlb::{self, Tlb};
use crate::words::{load_words, store_words};
use faultless_phys::FrameSource;
use faultless_platform::mutant;
use faultless_platform::{Atomic, InPlace, Ordering, PAGE_BYTES};

/// The faults that one access took.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FaultsTaken {
    /// How many.
    pub count: u32,
    /// How many of them were handled without the address-space lock.
    pub speculative: u32,
    /// Whether the first one found the entry present (the error code's bit 0).
    pub first_was_present: bool,
}

impl FaultsTaken {
    /// Adds the faults of a later access.
    fn add(&mut self, later: Self) {
        if self.count == 0 {
            self.first_was_present = later.first_was_present;
        }
        self.count += later.count;
        self.speculative += later.speculative;
    }

    fn note(&mut self, fault: Fault, handled: Handled) {
        if self.count == 0 {
            self.first_was_present = fault.is_present;
        }
        self.count += 1;
        self.speculative += u32::from(handled == Handled::Speculative);
    }
}

/// A thread that runs in an address space; while it lives, it counts among the space's users.
///
/// ```
/// use faultless_vm::{Access, AccessError, FaultsTaken, Guest, PAGE};
/// # use faultless_phys::{Memory, Options};
/// # use faultless_platform::native::{HostRegion, Machine, Native};
/// # let region = HostRegion::reserve(64 << 20)?;
/// # Machine::new(2).attach(|| {
/// #     // SAFETY: the region is zeroed, ours alone, and outlives the instance.
/// #     let memory = unsafe { Memory::<Native>::new(region.base(), region.len_bytes(), 2, Options::default()) }?;
/// #     let vm = faultless_vm::Vm::<Native>::new(memory)?;
/// #     let space = vm.create_space(faultless_vm::Limits::default())?;
/// #     let guest = faultless_vm::Guest::new(&space);
/// #     let map = |len_bytes, protection| {
/// #         space.mmap(&faultless_vm::MapRequest {
/// #             placement: faultless_vm::Placement::Anywhere,
/// #             len_bytes,
/// #             protection,
/// #             options: faultless_vm::MapOptions::empty(),
/// #             backing: faultless_vm::Backing::Anonymous,
/// #             populate: faultless_vm::Populate::OnFault,
/// #         })
/// #     };
/// #     let both = faultless_vm::Protection::READ | faultless_vm::Protection::WRITE;
/// let start = map(2 * PAGE, both)?;
/// let taken: FaultsTaken = guest.store_byte(start + 1, 0xab)?;
/// assert_eq!((taken.count, guest.load_byte(start + 1)?.0, guest.load(start)?.0), (1, 0xab, 0xab00));
/// guest.store_words(start + PAGE, &[1, 2, 3])?;
/// let mut words = [0; 3];
/// guest.load_words(start + PAGE, &mut words)?;
/// assert_eq!(words, [1, 2, 3]);
///
/// // As a call copies a structure; where it fails, it says how many bytes it has copied.
/// guest.write_bytes(start, b"faultless").map_err(|(_, error)| error)?;
/// let mut bytes = [0; 9];
/// guest.read_bytes(start, &mut bytes).map_err(|(_, error)| error)?;
/// assert_eq!(&bytes, b"faultless");
/// assert!(guest.write_bytes(start + (2 * PAGE - 4), b"faultless").is_err_and(|(copied, _)| copied == 4));
///
/// // No memory here may be fetched from.
/// assert!(matches!(guest.fetch(start), Err(AccessError::Forbidden { .. })));
/// let first = guest.with_frame(start, Access::Read, |page| {
///     // SAFETY: the page is there as long as this runs, and nobody stores to it.
///     unsafe { page.read() }
/// })?;
/// assert_eq!(first, b'f');
///
/// // What a kernel does around user mode; see the module `hardware`.
/// let root = guest.activate();
/// assert!(vm.memory().contains(root));
/// guest.enter();
/// guest.leave();
/// guest.deactivate();
/// #     Ok::<(), Box<dyn std::error::Error>>(())
/// # })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Guest<'vm, P: System, D: Design<P> = DefaultDesign<P>> {
    space: SpaceRef<'vm, P, D>,
}

impl<'vm, P: System, D: Design<P>> Guest<'vm, P, D> {
    /// Makes a thread of `space`. One that finds another there waits for the map operation at work, which may rely on
    /// there being one thread; so the caller owns a CPU.
    pub fn new(space: &SpaceRef<'vm, P, D>) -> Self {
        space.add_user();
        Self { space: space.clone() }
    }

    /// Returns the address space.
    /// For a caller that has the thread and makes a call of its space.
    pub fn space(&self) -> &SpaceRef<'vm, P, D> {
        &self.space
    }

    /// Loads the aligned 8 bytes around `address`.
    pub fn load(&self, address: VirtAddr) -> Result<(u64, FaultsTaken), AccessError> {
        let address = address.get();
        self.access(address, Access::Read, |page| {
            // SAFETY: `access` gives a mapped frame; the word lies inside and is accessed atomically by all guests.
            let word = unsafe { P::AtomicU64::view(page.add(word_offset(address)).cast()) };
            // Relaxed: a program's plain load.
            word.load(Ordering::Relaxed)
        })
    }

    /// Stores `value` to the aligned 8 bytes around `address`.
    pub fn store(&self, address: VirtAddr, value: u64) -> Result<FaultsTaken, AccessError> {
        let address = address.get();
        let stored = self.access(address, Access::Write, |page| {
            // SAFETY: as in `load`.
            let word = unsafe { P::AtomicU64::view(page.add(word_offset(address)).cast()) };
            // Relaxed: a program's plain store.
            word.store(value, Ordering::Relaxed);
        });
        stored.map(|((), faults)| faults)
    }

    /// Loads one byte.
    pub fn load_byte(&self, address: VirtAddr) -> Result<(u8, FaultsTaken), AccessError> {
        let address = address.get();
        self.access(address, Access::Read, |page| {
            // SAFETY: as in `load`.
            let byte = unsafe { P::AtomicU8::view(page.add(byte_offset(address))) };
            // Relaxed: a program's plain load.
            byte.load(Ordering::Relaxed)
        })
    }

    /// Stores one byte.
    pub fn store_byte(&self, address: VirtAddr, value: u8) -> Result<FaultsTaken, AccessError> {
        let address = address.get();
        let stored = self.access(address, Access::Write, |page| {
            // SAFETY: as in `load`.
            let byte = unsafe { P::AtomicU8::view(page.add(byte_offset(address))) };
            // Relaxed: a program's plain store.
            byte.store(value, Ordering::Relaxed);
        });
        stored.map(|((), faults)| faults)
    }

    /// Loads words from the aligned 8 bytes around `address` on, page by page; an error leaves those of earlier pages
    /// loaded.
    pub fn load_words(&self, address: VirtAddr, words: &mut [u64]) -> Result<FaultsTaken, AccessError> {
        let address = address.get();
        let (mut faults, mut done) = (FaultsTaken::default(), 0);
        while done < words.len() {
            let at = word_address(address, done);
            let rest = &mut words[done..];
            let nr_words = rest.len().min(words_left(at));
            let part = &mut rest[..nr_words];
            let ((), taken) = self.access(at, Access::Read, |page| {
                // SAFETY: as in `load`; `words_left` keeps all words in the page.
                unsafe { load_words::<P>(page.add(word_offset(at)), part) }
            })?;
            faults.add(taken);
            done += nr_words;
        }
        Ok(faults)
    }

    /// Stores words from the aligned 8 bytes around `address` on, page by page; an error leaves those of earlier pages
    /// stored.
    pub fn store_words(&self, address: VirtAddr, words: &[u64]) -> Result<FaultsTaken, AccessError> {
        let address = address.get();
        let (mut faults, mut done) = (FaultsTaken::default(), 0);
        while done < words.len() {
            let at = word_address(address, done);
            let rest = &words[done..];
            let part = &rest[..rest.len().min(words_left(at))];
            let ((), taken) = self.access(at, Access::Write, |page| {
                // SAFETY: as in `load`; `words_left` keeps all words in the page.
                unsafe { store_words::<P>(page.add(word_offset(at)), part) }
            })?;
            faults.add(taken);
            done += part.len();
        }
        Ok(faults)
    }

    /// Reads bytes, across pages; on an error, so many bytes were read before.
    pub fn read_bytes(&self, address: VirtAddr, out: &mut [u8]) -> Result<(), (usize, AccessError)> {
        let address = address.get();
        let mut done = 0;
        while done < out.len() {
            let at = address.wrapping_add(done as u64);
            let rest = &mut out[done..];
            let len = rest.len().min(PAGE_BYTES - byte_offset(at));
            let read = self.access(at, Access::Read, |page| {
                for (place, byte) in rest[..len].iter_mut().enumerate() {
                    // SAFETY: `access` gives a mapped frame; the bytes lie inside it and are accessed atomically by all
                    // guests.
                    let cell = unsafe { P::AtomicU8::view(page.add(byte_offset(at) + place)) };
                    // Relaxed: a program's plain load.
                    *byte = cell.load(Ordering::Relaxed);
                }
            });
            read.map_err(|error| (done, error))?;
            done += len;
        }
        Ok(())
    }

    /// Writes bytes, across pages; on an error, so many bytes were written before.
    pub fn write_bytes(&self, address: VirtAddr, bytes: &[u8]) -> Result<(), (usize, AccessError)> {
        let address = address.get();
        let mut done = 0;
        while done < bytes.len() {
            let at = address.wrapping_add(done as u64);
            let rest = &bytes[done..];
            let part = &rest[..rest.len().min(PAGE_BYTES - byte_offset(at))];
            let written = self.access(at, Access::Write, |page| {
                for (place, &byte) in part.iter().enumerate() {
                    // SAFETY: as in `read_bytes`.
                    let cell = unsafe { P::AtomicU8::view(page.add(byte_offset(at) + place)) };
                    // Relaxed: a program's plain store.
                    cell.store(byte, Ordering::Relaxed);
                }
            });
            written.map_err(|error| (done, error))?;
            done += part.len();
        }
        Ok(())
    }

    /// Fetches an instruction from `address`.
    pub fn fetch(&self, address: VirtAddr) -> Result<FaultsTaken, AccessError> {
        self.access(address.get(), Access::Fetch, |_| ()).map(|((), faults)| faults)
    }

    /// Runs `act` with the frame behind `address`, after as many faults as it takes.
    pub(crate) fn access<R>(
        &self,
        address: u64,
        access: Access,
        mut act: impl FnMut(*mut u8) -> R,
    ) -> Result<(R, FaultsTaken), AccessError> {
        let mut faults = FaultsTaken::default();
        loop {
            // A known bug drops the wish to write once a fault has broken the sharing.
            let tried =
                mutant!(RetriedAsLoad, access => if faults.count == 0 { access } else { access.without_write() });
            match self.try_access(address, tried, &mut act) {
                Ok(result) => return Ok((result, faults)),
                Err(fault) => faults.note(fault, self.space.take_fault(fault)?),
            }
        }
    }

    /// One attempt, in guest state.
    #[inline]
    fn try_access<R>(&self, address: u64, access: Access, act: impl FnOnce(*mut u8) -> R) -> Result<R, Fault> {
        let space: &Space<P, D> = &self.space;
        let cpu = P::cpu();
        let walks = Walks::To(address);
        self.enter_as(cpu, walks);
        let found = translate(space, cpu, address, access);
        mutant!(LaneEnteredLate => space.lanes().enter(cpu, walks));
        let result = found.map(|entry| act(P::in_hardware(space.memory().frame(entry.pfn()))));
        self.leave();
        result.map_err(|is_present| Fault { address: VirtAddr::new(address), access, is_present })
    }
}

impl<P: System, D: Design<P>> Drop for Guest<'_, P, D> {
    fn drop(&mut self) {
        // A thread without a CPU leaves its last CPU in the set: the next shootdown that finds that CPU idle takes it
        // out.
        if let Some(cpu) = P::owned_cpu() {
            self.space.vm().cpus().leave(cpu, self.space.lanes(), self.space.id());
        }
        self.space.remove_user();
    }
}

/// Returns the address of word `index` of those from `address` on.
fn word_address(address: u64, index: usize) -> u64 {
    (address & !7).wrapping_add(index as u64 * 8)
}

/// Returns how many words there are from `address` to the end of its page.
fn words_left(address: u64) -> usize {
    (PAGE_BYTES - word_offset(address)) / 8
}

/// Says whether bits 47 to 63 are equal, as the processor asks for.
pub(crate) fn is_canonical(address: u64) -> bool {
    matches!(address >> 47, 0 | 0x1_ffff)
}

fn word_offset(address: u64) -> usize {
    byte_offset(address) & !7
}

fn byte_offset(address: u64) -> usize {
    address as usize % PAGE_BYTES
}

/// Finds the entry of an address in the TLB or the tables; otherwise says whether one was present.
#[inline(always)]
fn translate<P: System, D: Design<P>>(
    space: &Space<P, D>,
    cpu: usize,
    address: u64,
    access: Access,
) -> Result<Entry, bool> {
    let page = page_floor(address);
    let look = |tlb: &mut Tlb| match tlb.lookup(space.id(), page, access) {
        Some(entry) => Ok(entry),
        None => walk(space, tlb, page, access),
    };
    // SAFETY: this thread owns the CPU, in guest; a walk looks into no TLB but this one.
    unsafe { space.vm().cpus().with_tlb(cpu, look) }
}

/// The hardware's walk: sets the accessed and dirty bits, and remembers the entry.
#[inline(never)]
fn walk<P: System, D: Design<P>>(space: &Space<P, D>, tlb: &mut Tlb, page: u64, access: Access) -> Result<Entry, bool> {
    space.vm().events().note(Event::TlbMiss, page);
    if page >= crate::addr::USER_END {
        return Err(false);
    }
    let entry = use_entry(space.tables().walk_in_hardware(space.memory(), page).ok_or(false)?, access)?;
    tlb.fill(space.id(), page, entry);
    Ok(entry)
}

/// Sets an entry's accessed and dirty bits as an access does; if the entry forbids it, says whether one was present.
#[inline(always)]
pub(crate) fn use_entry<P: System>(leaf: Leaf<'_, P>, access: Access) -> Result<Entry, bool> {
    let wanted = match access {
        Access::Write => EntryFlags::ACCESSED | EntryFlags::DIRTY,
        Access::Read | Access::Fetch => EntryFlags::ACCESSED,
    };
    loop {
        let there = load(leaf.slot);
        let entry = as_reached::<P>(leaf.parent.1, there);
        let with_bits = entry.with(wanted);
        if !entry.is_present() || !tlb::allows(with_bits, access) {
            return Err(entry.is_present());
        }
        // ORDER: AcqRel pairs with the stores and swaps under the table's lock: the bits go onto the entry we checked.
        let (success, failure) = (Ordering::AcqRel, Ordering::Acquire);
        if entry == with_bits || leaf.slot.exchange(there, there.with(wanted), success, failure).is_ok() {
            return Ok(with_bits);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_lie_in_their_pages() {
        let at = |address| (word_offset(address), byte_offset(address), words_left(address));
        assert_eq!(at(0x1000), (0, 0, 512));
        assert_eq!(at(0x1007), (0, 7, 512));
        assert_eq!(at(0x1ff0), (0xff0, 0xff0, 2));
        assert_eq!(at(0x1fff), (0xff8, 0xfff, 1));
        assert_eq!([0, 1, 512].map(|index| word_address(0x1007, index)), [0x1000, 0x1008, 0x2000]);
    }

    #[test]
    fn addresses_are_canonical_whose_upper_bits_are_equal() {
        let halves = [0, 0x7fff_ffff_ffff, 0xffff_8000_0000_0000, u64::MAX];
        assert!(halves.into_iter().all(is_canonical));
        assert!(![0x8000_0000_0000, 0xffff_7fff_ffff_ffff, 1 << 63, 1 << 48].into_iter().any(is_canonical));
    }

    #[test]
    fn faults_of_several_accesses_add_up() {
        let taken = |count, speculative, first_was_present| FaultsTaken { count, speculative, first_was_present };
        let mut all = FaultsTaken::default();
        all.add(taken(0, 0, false));
        all.add(taken(2, 1, true));
        all.add(taken(3, 3, false));
        assert_eq!(all, taken(5, 4, true));
        let fault = |is_present| Fault { address: VirtAddr::new(0), access: Access::Read, is_present };
        let mut noted = FaultsTaken::default();
        noted.note(fault(true), Handled::Classic);
        noted.note(fault(false), Handled::Speculative);
        assert_eq!(noted, taken(2, 1, true));
    }
}
