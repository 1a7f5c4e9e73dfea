//! What a kernel or a hypervisor calls, whose hardware walks the tables: faults, and which CPU uses which space.
//!
//! # Guarantee
//! [`Space::handle_fault`] does what a page fault asks for, whoever walked the tables. Between [`Guest::enter`] and
//! [`Guest::leave`] a CPU may use the space's translations, and a shootdown waits for it; outside it uses none, or
//! waits until [`Guest::enter`] has made it forget what others took away.
//!
//! # On the way of a thread, on one CPU
//! ```text
//! activate     the CPU joins the space's set; load the root that it returns
//!   enter      back to user mode: what others took away is forgotten (Embedding::flush)
//!   leave      a trap, an interrupt, a call
//!   handle_fault, calls of the space ...
//!   enter      ...
//! deactivate   another space's turn: the CPU forgets this one and leaves its set
//! ```
//! Hardware may walk the loaded tables at any time, also in kernel mode: such an embedding sets
//! [`Embedding::WAITS_FOR_LOADED`](crate::Embedding::WAITS_FOR_LOADED), and its platform's `shoot_down` interrupts and
//! awaits every target. Hardware that sets no accessed and dirty bits gets them set by [`Space::handle_fault`]: its
//! format makes a store to a page that is not dirty fault.

use crate::access::Access;
use crate::addr::{USER_END, VirtAddr};
use crate::area::AreaFlags;
use crate::design::Design;
use crate::error::AccessError;
use crate::events::Event;
use crate::fault::{Fault, Handled};
use crate::guest::{self, Guest, is_canonical};
use crate::space::Space;
use crate::system::System;
use crate::translations::lanes::Walks;
use crate::translations::table::TableMap;
use crate::translations::tlb::SpaceId;
use faultless_phys::{OutOfFrames, Pfn};
use faultless_platform::{KernelEntry, mutant};

/// Whose code made an access.
/// [`Space::handle_fault`] takes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// The program's.
    User,
    /// The kernel's, on behalf of the program: it copies to or from user memory.
    Kernel,
}

/// What became of a fault.
///
/// ```
/// use faultless_vm::{Access, Mode, PAGE, Reason, Resolution, Space, VirtAddr};
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
/// // A processor's page-fault entry calls it with what the hardware says.
/// let space: &Space<Native> = &space;
/// assert_eq!(space.handle_fault(start, Access::Write, Mode::User), Resolution::Resolved);
/// assert_eq!(space.handle_fault(start, Access::Write, Mode::User), Resolution::Spurious);
/// assert_eq!(space.handle_fault(VirtAddr::new(PAGE), Access::Read, Mode::User), Resolution::Killed(Reason::MapErr));
/// #     Ok::<(), Box<dyn std::error::Error>>(())
/// # })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Resolution {
    /// The tables allow the access now.
    Resolved,
    /// They did already: the CPU knew an old entry, and may forget it (`invlpg`) before it tries again.
    Spurious,
    /// Another thread took the page away meanwhile: the access is simply made again.
    Retry,
    /// The access can't be made.
    Killed(Reason),
}

/// Why an access can't be made; all but the last are signals to the program, or an error of the call that copied.
/// [`Resolution::Killed`] holds it; [`Resolution`] has an example.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// SIGSEGV, SEGV_MAPERR: nothing is mapped there.
    MapErr,
    /// SIGSEGV, SEGV_ACCERR: the mapping's rights forbid it.
    AccErr,
    /// SIGSEGV, SEGV_PKUERR: a protection key forbids it.
    PkuErr,
    /// SIGBUS, BUS_ADRERR: the mapping has no page there.
    BusAdrErr,
    /// No frame, or no more references to one, can be had.
    OutOfMemory(Option<OutOfFrames>),
}

/// Names a word that threads wait on (futex(2)): two addresses with the same key are the same word.
///
/// ```
/// use faultless_vm::{FutexKey, PAGE, Space};
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
/// let word = map(PAGE, both)?;
/// guest.store(word, 0)?;
/// // A kernel's table of waiters is keyed by it.
/// let space: &Space<Native> = &space;
/// let key = space.futex_key(word)?;
/// assert_eq!(key, FutexKey::Private { space: space.id(), address: word });
/// #     Ok::<(), Box<dyn std::error::Error>>(())
/// # })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FutexKey {
    /// Private memory, of one space alone.
    Private {
        /// The space.
        space: SpaceId,
        /// The word's address.
        address: VirtAddr,
    },
    /// Shared memory, wherever it is mapped.
    Shared {
        /// Names the memory object, as long as it is mapped.
        object: usize,
        /// The page of it.
        page: u64,
        /// The word's offset in the page.
        offset: u64,
    },
}

/// What a walk found to do.
pub(crate) enum Touch {
    /// Nothing.
    Already,
    /// The accessed and dirty bits.
    BitsSet,
}

impl<P: System, D: Design<P>> Space<P, D> {
    /// Handles a fault that the hardware found at `address`.
    ///
    /// Called as the calls are (see the crate): with nothing held, outside [`Guest::enter`]; it may sleep. An address
    /// above user memory is [`Reason::MapErr`], in either mode: what a kernel has there is its own.
    pub fn handle_fault(&self, address: VirtAddr, access: Access, mode: Mode) -> Resolution {
        // A kernel never fetches from user memory (SMEP).
        if mode == Mode::Kernel && access == Access::Fetch {
            return Resolution::Killed(Reason::AccErr);
        }
        if address >= VirtAddr::new(USER_END) {
            return Resolution::Killed(Reason::MapErr);
        }
        let is_present = match self.touch(address, access) {
            Ok(Touch::Already) => return Resolution::Spurious,
            Ok(Touch::BitsSet) => return Resolution::Resolved,
            Err(is_present) => is_present,
        };
        self.answer_requests();
        match self.take_fault(Fault { address, access, is_present }) {
            Ok(_) if self.touch(address, access).is_ok() => Resolution::Resolved,
            Ok(_) => Resolution::Retry,
            Err(error) => Resolution::Killed(error.into()),
        }
    }

    /// Does what was asked of the CPU while nobody owned it, as guest entry does: a thread that got the CPU since, or
    /// slept in its last fault, comes here without that. Whoever then takes the CPU out of a space's set has done so
    /// before, or lets it be; until then a design may take it for a member that is not waited for
    /// (`design::faultless`).
    fn answer_requests(&self) {
        if P::WAITS_FOR_LOADED {
            return;
        }
        // SAFETY: what waits is drained at once.
        if unsafe { P::guest_enter() } {
            self.vm().cpus().drain_in_guest(P::cpu());
        }
        // SAFETY: nothing was translated.
        unsafe { P::guest_exit() };
    }

    /// Walks, and sets the bits that the hardware would; if the entry forbids the access, says whether one
    /// was present.
    pub(crate) fn touch(&self, address: VirtAddr, access: Access) -> Result<Touch, bool> {
        let _reading = self.look();
        let leaf = self.tables().walk(self.memory(), address.get()).ok_or(false)?;
        let _map = TableMap::<P>::new(self.memory(), leaf.table);
        let before = leaf.entry();
        let after = guest::use_entry(leaf, access)?;
        Ok(if before == after { Touch::Already } else { Touch::BitsSet })
    }

    /// Takes a fault and counts it.
    #[inline(always)]
    pub(crate) fn take_fault(&self, fault: Fault) -> Result<Handled, AccessError> {
        if !is_canonical(fault.address.get()) {
            // Not a page fault: the processor refuses the address itself.
            return Err(AccessError::NotCanonical { address: fault.address });
        }
        let events = self.vm().events();
        P::enter_kernel(KernelEntry::Exception);
        events.note(Event::Faults, fault.address.get());
        let handled = D::fault(self, fault);
        match handled {
            Ok(Handled::Speculative) => events.note(Event::Spf, fault.address.get()),
            Ok(Handled::Classic) => {}
            Err(_) => events.note(Event::Signals, fault.address.get()),
        }
        handled
    }

    /// Returns the key of the word at an address; an error if nothing is mapped there.
    ///
    /// A private mapping's word belongs to the space, also if it is of a file. Called as the calls are.
    pub fn futex_key(&self, address: VirtAddr) -> Result<FutexKey, AccessError> {
        let missing = AccessError::NotMapped { address };
        // The last address of all has none behind it.
        if address.get() >= USER_END {
            return Err(missing);
        }
        let read = self.read_settled(address..address + 1);
        let found = read.permit().containing(address).ok_or(missing)?;
        let view = found.area().view();
        Ok(match view.object.filter(|_| view.flags.contains(AreaFlags::SHARED)) {
            Some(object) => {
                let (page, offset) = (view.page_offset_of(address.page()), address - address.page());
                FutexKey::Shared { object: object.as_ptr().addr(), page, offset }
            }
            None => FutexKey::Private { space: self.id(), address },
        })
    }
}

impl<P: System, D: Design<P>> Guest<'_, P, D> {
    /// Makes the calling CPU one that may use the space's tables; returns their root, to be loaded after this.
    pub fn activate(&self) -> Pfn {
        self.space().lanes().enter(P::cpu(), Walks::Everywhere);
        self.space().tables().root()
    }

    /// Lets the calling CPU use translations, after it forgot what others took away. Nothing of the library is called
    /// by this CPU before [`Guest::leave`].
    #[inline]
    pub fn enter(&self) {
        self.enter_as(P::cpu(), Walks::Everywhere);
    }

    /// As [`Guest::enter`], on the CPU that the caller knows to be its own, to walk there.
    #[inline(always)]
    pub(crate) fn enter_as(&self, cpu: usize, walks: Walks) {
        let space: &Space<P, D> = self.space();
        // Before `guest_enter`, whose fence orders it before the walk (I2 of `shootdown`).
        mutant!(LaneEnteredLate, space.lanes().enter(cpu, walks) => ());
        // SAFETY: what waits is drained at once.
        if unsafe { P::guest_enter() } {
            space.vm().cpus().drain_in_guest(cpu);
            space.vm().cpus().rejoin(cpu, space.lanes(), walks);
        }
    }

    /// Ends the use of translations.
    #[inline]
    pub fn leave(&self) {
        // SAFETY: the library's own accesses lie between an enter and a leave, and call nobody but the `act` of
        // `with_frame`, whose pointer is good until it calls the library.
        unsafe { P::guest_exit() };
    }

    /// Takes the calling CPU out of those that may use the space's tables: it forgets them. Called outside
    /// [`Guest::enter`], when another root is loaded, or none.
    pub fn deactivate(&self) {
        let space = self.space();
        space.vm().cpus().leave(P::cpu(), space.lanes(), space.id());
    }

    /// Runs `act` with the page behind `address`, by its first byte, after as many faults as it takes: how a kernel
    /// copies to and from user memory.
    ///
    /// `act` must not sleep or call the library: the page stays only as long as it runs. Other CPUs may use the page
    /// meanwhile, so it is accessed atomically.
    pub fn with_frame<R>(
        &self,
        address: VirtAddr,
        access: Access,
        act: impl FnMut(*mut u8) -> R,
    ) -> Result<R, AccessError> {
        self.access(address.get(), access, act).map(|(result, _)| result)
    }
}

impl From<AccessError> for Reason {
    fn from(error: AccessError) -> Self {
        match error {
            AccessError::NotMapped { .. } | AccessError::NotCanonical { .. } => Self::MapErr,
            AccessError::Forbidden { .. } => Self::AccErr,
            AccessError::ForbiddenByKey { .. } => Self::PkuErr,
            AccessError::NoPage { .. } => Self::BusAdrErr,
            AccessError::TooManyReferences => Self::OutOfMemory(None),
            AccessError::OutOfFrames(cause) => Self::OutOfMemory(Some(cause)),
        }
    }
}
