//! What happened, counted: the names that Linux users know.
//!
//! # Guarantee
//! Each CPU counts on its own line, without a read-modify-write; a sum read while nobody runs is exact.
//!
//! # Invariants
//! * I1 `faults` = speculative + classic; every fault is counted in one of them.
//! * I2 every give-up of a speculative attempt has exactly one [`GiveUp`] reason, so `spf-failed` is their sum.

use crate::system::System;
use faultless_platform::{Atomic, Ordering, Processor};
use faultless_sync::PerCpu;

macro_rules! events {
    ($($(#[$doc:meta])* $variant:ident = $name:literal),+ $(,)?) => {
        /// A counted event.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[repr(usize)]
        pub enum Event { $($(#[$doc])* $variant),+ }

        impl Event {
            /// All events, in the order of their places.
            pub const ALL: &'static [Self] = &[$(Self::$variant),+];

            /// Returns the name that users know.
            pub const fn name(self) -> &'static str {
                match self { $(Self::$variant => $name),+ }
            }
        }

        /// Number of events.
        const NR_EVENTS: usize = Event::ALL.len();
    };
}

events! {
    /// Page faults taken.
    Faults = "faults",
    /// Faults handled without the address-space lock (`speculative_pgfault` in vmstat's words).
    Spf = "spf",
    /// Speculative attempts given up.
    SpfFailed = "spf-failed",
    /// Given up: the area changed meanwhile.
    SpfVmaChanged = "pagefault:spf_vma_changed",
    /// Given up: the area has no reverse-map root yet.
    SpfVmaNoanon = "pagefault:spf_vma_noanon",
    /// Given up: this kind of area, or a missing table level, is not supported.
    SpfVmaNotsup = "pagefault:spf_vma_notsup",
    /// Given up: the area's rights forbid the access.
    SpfVmaAccess = "pagefault:spf_vma_access",
    /// Given up: the upper entry or the page's entry changed meanwhile.
    SpfPmdChanged = "pagefault:spf_pmd_changed",
    /// Given up: the page-table lock was taken.
    SpfPteLock = "pagefault:spf_pte_lock",
    /// Pages copied on write.
    Cow = "cow",
    /// Anonymous pages made writable again because nobody shares them any more.
    Reuse = "reuse",
    /// Requests to take translations away from other CPUs.
    TlbShootdown = "tlb_shootdown",
    /// Table walks after a miss in the software TLB.
    TlbMiss = "tlb_miss",
    /// Page tables freed because they were empty.
    TablesFreed = "tables_freed",
    /// Leaf tables that fork let a child have, too.
    TablesShared = "tables_shared",
    /// Such tables that were copied, because one of those who had them changed an entry.
    TablesCopied = "tables_copied",
    /// Faults answered by a signal.
    Signals = "signals",
    /// madvise calls that change nothing that a program can see.
    AdviceIgnored = "advice_ignored",
    /// Stack areas grown by a fault.
    StackGrowth = "stack_growth",
}

/// Why a speculative attempt was given up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GiveUp {
    /// The area changed, or a change was in progress.
    VmaChanged,
    /// The first write into an area without a reverse-map root.
    VmaNoanon,
    /// File or shared memory, a stack area, or a missing table level.
    VmaNotsup,
    /// The area's rights forbid the access.
    VmaAccess,
    /// The upper entry or the page's own entry changed.
    PmdChanged,
    /// The page-table lock was taken, and the design doesn't wait for it.
    PteLock,
}

impl GiveUp {
    /// Returns the event that counts this reason.
    pub const fn event(self) -> Event {
        match self {
            Self::VmaChanged => Event::SpfVmaChanged,
            Self::VmaNoanon => Event::SpfVmaNoanon,
            Self::VmaNotsup => Event::SpfVmaNotsup,
            Self::VmaAccess => Event::SpfVmaAccess,
            Self::PmdChanged => Event::SpfPmdChanged,
            Self::PteLock => Event::SpfPteLock,
        }
    }
}

/// The counters of one instance.
///
/// ```
/// use faultless_vm::{Event, Events, GiveUp, PAGE};
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
/// let start = map(PAGE, both)?;
/// guest.store(start, 1)?;
/// let events: &Events<Native> = vm.events();
/// assert_eq!((events.own(Event::Faults), events.total(Event::Faults)), (1, 1));
/// assert!(Event::ALL.contains(&GiveUp::PteLock.event()));
/// assert_eq!(Event::Faults.name(), "faults");
///
/// // An embedder's own, for CPUs that it counts itself.
/// let own = Events::<Native>::new(2);
/// own.count(Event::Faults);
/// own.note(Event::Faults, start.get());
/// assert_eq!(own.total(Event::Faults), 2);
/// #     Ok::<(), Box<dyn std::error::Error>>(())
/// # })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Events<P: System> {
    cells: PerCpu<P, [P::AtomicU64; NR_EVENTS]>,
}

impl<P: System> Events<P> {
    /// Returns counters at zero for `nr_cpus` CPUs.
    pub fn new(nr_cpus: usize) -> Self {
        Self { cells: PerCpu::new(nr_cpus, |_| core::array::from_fn(|_| P::AtomicU64::new(0))) }
    }

    /// Counts an event on the calling CPU.
    #[inline]
    pub fn count(&self, event: Event) {
        let cell = &self.cells.get(<P as Processor>::cpu())[event as usize];
        // Relaxed, and no read-modify-write: the slot has one owner, and handing it over orders the cells.
        cell.store(cell.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
    }

    /// Counts an event on the calling CPU as often as it happened, and tells observers.
    #[inline]
    pub(crate) fn note_many(&self, event: Event, times: u64) {
        let cell = &self.cells.get(<P as Processor>::cpu())[event as usize];
        // Relaxed: as in `count`.
        cell.store(cell.load(Ordering::Relaxed) + times, Ordering::Relaxed);
        for _ in 0..if P::WATCHED { times } else { 0 } {
            P::trace(faultless_platform::Tracepoint::Point { name: event.name(), value: 0 });
        }
    }

    /// Counts an event on the calling CPU, and tells observers where it happened.
    #[inline]
    pub fn note(&self, event: Event, address: u64) {
        self.count(event);
        P::trace(faultless_platform::Tracepoint::Point { name: event.name(), value: address });
    }

    /// Returns what the calling CPU has counted.
    pub fn own(&self, event: Event) -> u64 {
        // Relaxed: the CPU's own cell.
        self.cells.get(<P as Processor>::cpu())[event as usize].load(Ordering::Relaxed)
    }

    /// Returns the sum over all CPUs; exact while nobody counts.
    pub fn total(&self, event: Event) -> u64 {
        // Relaxed: a sum of single cells.
        self.cells.iter().map(|cells| cells[event as usize].load(Ordering::Relaxed)).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_those_of_the_thread() {
        assert_eq!(GiveUp::VmaChanged.event().name(), "pagefault:spf_vma_changed");
        assert!(Event::ALL.iter().enumerate().all(|(place, &event)| event as usize == place));
    }
}
