//! The addresses: entries that all CPUs read, and what each CPU remembers of them.
//!
//! # Guarantee
//! After a flush of everything or of a slot returned, no CPU of those named uses a translation that it had
//! before the call.
//!
//! # Side by side
//! ```text
//! CPU S                                   CPU T
//! clear the entries; fence                guest_enter (fence); pending? serve
//! T's words: everything, or a bit a slot  TLB of T: a translation, or walk and remember it
//! T.asked += 1                            guest_exit
//! shoot_down(T)
//!   until T.served reached what we asked  serve: asked = T.asked; take the words; forget; T.served = asked
//! ```
//! A request that comes between T's reading of `asked` and its taking of the words is served early, and once more in
//! vain. Who is not in guest serves before it looks again (table in `faultless_platform::Platform`).

use crate::broken::{self, Broken};
use alloc::boxed::Box;
use core::cell::UnsafeCell;
use faultless_platform::{Atomic, AtomicInteger, CpuSet, IrqOffGuard, Ordering, Platform, Processor};
use faultless_sync::{PerCpu, PerCpuCounter};

/// What the hardware's part of a map costs, in ns of a simulated machine; a real one takes its own time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Costs {
    /// A walk after a flush, beside the reading of the entry.
    pub walk_ns: u64,
    /// Forgetting all translations of the own CPU, those of the kernel too.
    pub flush_ns: u64,
    /// Forgetting one of them (`invlpg`).
    pub flush_slot_ns: u64,
}

impl Default for Costs {
    /// Guessed, of a Pentium III at 700 MHz: a walk of two cached levels, a reload of the root with the kernel's global
    /// pages, an `invlpg`.
    fn default() -> Self {
        Self { walk_ns: 30, flush_ns: 600, flush_slot_ns: 150 }
    }
}

/// What a CPU remembers, and what others want it to forget.
struct Cpu<P: Processor> {
    /// The frame plus one behind each slot; 0 for nothing. The owner's.
    tlb: UnsafeCell<Box<[u32]>>,
    /// Whether it shall forget everything.
    everything: P::AtomicBool,
    /// Otherwise, a bit for each slot.
    singles: Box<[P::AtomicU64]>,
    asked: P::AtomicU64,
    served: P::AtomicU64,
}

/// Slots with their entries.
pub struct Windows<P: Platform> {
    /// The frame plus one behind each slot; 0 for nothing. Eight share a line, as page-table entries do.
    entries: Box<[P::AtomicU64]>,
    cpus: PerCpu<P, Cpu<P>>,
    costs: Costs,
    /// Flushes of everything, on other CPUs too.
    flushes: PerCpuCounter<P>,
    /// CPUs that were interrupted.
    interrupts: PerCpuCounter<P>,
}

// SAFETY: a TLB is touched by the slot's owner alone: in `touch`, `forget*` of the own CPU, and by the handler on it.
unsafe impl<P: Platform> Sync for Windows<P> {}
// SAFETY: nothing in it belongs to a thread.
unsafe impl<P: Platform> Send for Windows<P> {}

impl<P: Platform> Windows<P> {
    pub(crate) fn new(nr_cpus: usize, nr_slots: usize, costs: Costs) -> Self {
        let cpu = |_| Cpu {
            tlb: UnsafeCell::new((0..nr_slots).map(|_| 0).collect()),
            everything: P::AtomicBool::new(false),
            singles: (0..nr_slots.div_ceil(64)).map(|_| P::AtomicU64::new(0)).collect(),
            asked: P::AtomicU64::new(0),
            served: P::AtomicU64::new(0),
        };
        Self {
            entries: (0..nr_slots).map(|_| P::AtomicU64::new(0)).collect(),
            cpus: PerCpu::new(nr_cpus, cpu),
            costs,
            flushes: PerCpuCounter::new(nr_cpus),
            interrupts: PerCpuCounter::new(nr_cpus),
        }
    }

    /// Returns how often everything was flushed on other CPUs, too.
    pub fn nr_flushes(&self) -> u64 {
        self.flushes.sum()
    }

    /// Returns how many CPUs were interrupted in all.
    pub fn nr_interrupts(&self) -> u64 {
        self.interrupts.sum()
    }

    /// Writes a slot's entry.
    #[inline]
    pub(crate) fn set(&self, slot: u32, pfn: u32) {
        // ORDER: Release pairs with the Acquire in `touch`: whoever walks finds what the mapper wrote before.
        self.entries[slot as usize].store(u64::from(pfn) + 1, Ordering::Release);
    }

    /// Clears a slot's entry.
    #[inline]
    pub(crate) fn clear(&self, slot: u32) {
        // Relaxed: the fence of the flush orders it.
        self.entries[slot as usize].store(0, Ordering::Relaxed);
    }

    /// Returns the frame that the calling thread's CPU reaches through a slot; nothing if it faults.
    #[inline]
    pub(crate) fn touch(&self, slot: u32) -> Option<u32> {
        let cpu = P::cpu();
        // The kernel's own access: nobody else gets the CPU at its end.
        let _irq = IrqOffGuard::<P>::new();
        // SAFETY: what waits is served at once.
        if unsafe { P::guest_enter() } {
            self.serve(cpu);
        }
        let mut found = self.remembered(cpu, slot);
        if found == 0 {
            // A wait, in which a request may be served; from the reading of the entry on there is none.
            P::work(self.costs.walk_ns);
            // ORDER: Acquire pairs with the Release in `set`.
            found = self.entries[slot as usize].load(Ordering::Acquire) as u32;
            // SAFETY: the thread owns the CPU, and is not inside another look at its TLB.
            unsafe { (&mut *self.cpus.get(cpu).tlb.get())[slot as usize] = found };
        }
        // SAFETY: the entry has been read, and what it leads to is the caller's.
        unsafe { P::guest_exit() };
        found.checked_sub(1)
    }

    /// Returns how many slots there are.
    pub(crate) fn nr_slots(&self) -> u32 {
        self.entries.len() as u32
    }

    /// Returns the frame behind a slot's entry.
    pub(crate) fn entry(&self, slot: u32) -> Option<u32> {
        // Relaxed: nobody writes it meanwhile.
        (self.entries[slot as usize].load(Ordering::Relaxed) as u32).checked_sub(1)
    }

    /// Says whether a CPU remembers a frame behind a slot, and was not asked to forget it.
    ///
    /// # Safety
    /// Nobody maps meanwhile.
    pub(crate) unsafe fn is_remembered(&self, slot: u32) -> bool {
        (0..self.cpus.nr_cpus()).map(|cpu| self.cpus.get(cpu)).any(|cpu| {
            // SAFETY: the owners of the CPUs are not inside a look at their TLB: nobody maps.
            let remembers = unsafe { (&*cpu.tlb.get())[slot as usize] } != 0;
            // Relaxed, twice: as above.
            let is_asked = cpu.everything.load(Ordering::Relaxed)
                || cpu.singles[slot as usize / 64].load(Ordering::Relaxed) & (1 << (slot % 64)) != 0;
            remembers && !is_asked
        })
    }

    fn remembered(&self, cpu: usize, slot: u32) -> u32 {
        // SAFETY: the calling thread owns the CPU, and is not inside another look at its TLB.
        unsafe { (&*self.cpus.get(cpu).tlb.get())[slot as usize] }
    }

    /// Makes the calling thread's CPU forget one slot.
    #[inline]
    pub(crate) fn forget(&self, slot: u32) {
        // SAFETY: the thread owns the CPU, and is not inside a look at its TLB.
        unsafe { (&mut *self.cpus.here().tlb.get())[slot as usize] = 0 };
        let _irq = IrqOffGuard::<P>::new();
        P::work(self.costs.flush_slot_ns);
    }

    /// Makes the calling thread's CPU forget everything.
    pub(crate) fn forget_all(&self) {
        // SAFETY: the thread owns the CPU, and is not inside a look at its TLB.
        unsafe { (&mut *self.cpus.here().tlb.get()).fill(0) };
        let _irq = IrqOffGuard::<P>::new();
        P::work(self.costs.flush_ns);
    }

    /// Makes the CPUs named, and the caller's, forget everything.
    pub(crate) fn flush(&self, targets: &CpuSet) {
        self.flushes.add(1);
        self.forget_all();
        self.ask(targets, |cpu| {
            // Relaxed: `asked` publishes it.
            cpu.everything.store(true, Ordering::Relaxed);
        });
    }

    /// Makes the CPUs named, and the caller's, forget one slot.
    pub(crate) fn flush_slot(&self, targets: &CpuSet, slot: u32) {
        self.forget(slot);
        self.ask(targets, |cpu| {
            // Relaxed: `asked` publishes it.
            cpu.singles[slot as usize / 64].fetch_or(1 << (slot % 64), Ordering::Relaxed);
        });
    }

    fn ask(&self, targets: &CpuSet, publish: impl Fn(&Cpu<P>)) {
        // ORDER: pairs with the fence in `guest_enter`; forbids that a CPU walks to an entry from before it was cleared
        // and isn't asked.
        P::fence(Ordering::SeqCst);
        let me = P::cpu();
        let mut others = if broken::is(Broken::OwnFlushOnly) { CpuSet::new() } else { *targets };
        others.remove(me);
        let mut nr_asked = 0;
        for of in others.iter().map(|cpu| self.cpus.get(cpu)) {
            publish(of);
            // ORDER: Release pairs with the Acquire in `serve`: what is asked is there.
            of.asked.fetch_add(1, Ordering::Release);
            nr_asked += 1;
        }
        if nr_asked == 0 {
            return;
        }
        self.interrupts.add(nr_asked);
        // CPUs are waited for one by one; what others have asked a CPU for until its turn is waited for, too.
        let mut wanted = (usize::MAX, 0);
        P::shoot_down(&others, |cpu| {
            let of = self.cpus.get(cpu);
            if wanted.0 != cpu {
                // Relaxed: at least what this thread has added.
                wanted = (cpu, of.asked.load(Ordering::Relaxed));
            }
            // ORDER: Acquire pairs with the Release in `serve`: the CPU has forgotten.
            of.served.load(Ordering::Acquire) >= wanted.1
        });
    }

    /// Forgets what others asked for, on the CPU that the calling thread owns.
    #[cold]
    fn serve(&self, cpu: usize) {
        let this = self.cpus.get(cpu);
        // ORDER: Acquire pairs with the Release in `ask`.
        let asked = this.asked.load(Ordering::Acquire);
        // SAFETY: the thread owns the CPU; it is about to look, or waits.
        let tlb = unsafe { &mut *this.tlb.get() };
        // Relaxed, here and below: the CPU's own words, published by `asked`.
        if this.everything.swap(false, Ordering::Relaxed) {
            tlb.fill(0);
        }
        for (word, bits) in this.singles.iter().enumerate() {
            if bits.load(Ordering::Relaxed) != 0 {
                let mut left = bits.swap(0, Ordering::Relaxed);
                while left != 0 {
                    tlb[word * 64 + left.trailing_zeros() as usize] = 0;
                    left &= left - 1;
                }
            }
        }
        // ORDER: Release pairs with the Acquire of those who wait: it is forgotten.
        this.served.store(asked, Ordering::Release);
    }
}

/// Serves what was published for a CPU, in a wait of its owner.
///
/// # Safety
/// `context` is the windows that were registered, and the calling thread owns `cpu`, outside a look at its TLB.
pub(crate) unsafe fn serve<P: Platform>(context: *const (), cpu: usize) {
    // SAFETY: the caller's promise.
    unsafe { &*context.cast::<Windows<P>>() }.serve(cpu);
}
