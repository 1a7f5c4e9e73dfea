//! Address spaces, page tables, page faults, and the designs that lock them.
//!
//! # Guarantee
//! Programs see Linux's memory semantics. No page is lost and none is stale: a frame is freed only when no CPU can
//! reach it; when munmap, mprotect, mremap, madvise or fork return, no translation stronger than the tables is left.
//! Nothing is allocated from the global allocator after [`Vm::new`]; an operation that finds no frame changes nothing.
//!
//! # Rooms, from below
//! * `access`, `words`: kinds of accesses, and the words that they move; `addr`, `entry`: addresses and the
//!   hardware's entries; `promise`: memory that is there by its entries alone
//! * `object`: what stands behind file and shared mappings; `reference`: pages that memory starts out as; `pattern`,
//!   `content`: which of them stands behind an area; `pin`: pages held without a mapping; `tags`: memory tags
//! * `pool`: what lives as long as somebody refers to it; `orphans`: what was dropped by a thread without a CPU
//! * `view`, `area`, `index`: ranges of one kind of memory, by value and as they are kept, and the ordered index that
//!   RCU readers walk; `asked`: what callers ask for
//! * `types`: instance, space, area and design, which name each other; `instance`: what holds for all spaces
//! * `translations`: a space's tables, what CPUs remember of them, how it is taken away, and frames on their way out;
//!   nothing in it knows an area or a design
//! * `fault`, [`design`]: what all designs do at a fault, and what each does in its own way
//! * `space`: the calls; `guest`: loads, stores and fetches; `hardware`: what an embedder with real tables calls
//!   instead
//! * `system`: what a space is made of; `format`: how the hardware writes entries
//! * [`check`]: the invariants, as a function that any test can call
//!
//! # Which calls may be made from where
//! Every call is made by a thread that owns a CPU slot, outside RCU sections, with interrupts on, and without any lock
//! of this crate held. Calls may sleep. [`SpaceRef`]s, [`Guest`]s and [`ObjectHandle`]s may be dropped on any thread.
//!
//! ```
//! use core::pin::Pin;
//! use faultless_phys::{Memory, Options};
//! use faultless_platform::native::{HostRegion, Machine, Native};
//! use faultless_vm::{Backing, Guest, Limits, MapOptions, MapRequest, Placement, Populate, Protection, Vm};
//!
//! let region = HostRegion::reserve(64 << 20)?;
//! Machine::new(2).attach(|| {
//!     // SAFETY: the region is zeroed, ours alone, and outlives the instance.
//!     let memory = unsafe { Memory::<Native>::new(region.base(), region.len_bytes(), 2, Options::default()) }?;
//!     let vm: Pin<Box<Vm<Native>>> = Vm::new(memory)?;
//!     let space = vm.create_space(Limits::default())?;
//!     let address = space.mmap(&MapRequest {
//!         placement: Placement::Anywhere,
//!         len_bytes: 8192,
//!         protection: Protection::READ | Protection::WRITE,
//!         options: MapOptions::empty(),
//!         backing: Backing::Anonymous,
//!         populate: Populate::OnFault,
//!     })?;
//!     let guest = Guest::new(&space);
//!     assert_eq!(guest.store(address, 7)?.count, 1);
//!     assert_eq!(guest.load(address)?.0, 7);
//!     Ok::<(), Box<dyn std::error::Error>>(())
//! })?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Who outlives whom
//! Spaces and objects borrow their instance:
//! ```compile_fail,E0515
//! # use core::pin::Pin;
//! # use faultless_platform::native::Native;
//! # use faultless_sync::Rwsem;
//! # use faultless_vm::{design::VmaLock, Limits, SpaceRef, Vm};
//! fn made<'vm>(vm: Pin<Box<Vm<Native, VmaLock<Rwsem<Native>>>>>) -> SpaceRef<'vm, Native, VmaLock<Rwsem<Native>>> {
//!     vm.create_space(Limits::default()).unwrap()
//! }
//! ```
//! ```compile_fail,E0515
//! # use core::pin::Pin;
//! # use faultless_platform::native::Native;
//! # use faultless_sync::Rwsem;
//! # use faultless_vm::{design::VmaLock, ObjectHandle, ObjectSpec, Vm};
//! fn made<'vm>(vm: Pin<Box<Vm<Native, VmaLock<Rwsem<Native>>>>>, spec: &ObjectSpec) -> ObjectHandle<'vm, Native> {
//!     vm.create_object(spec).unwrap()
//! }
//! ```
//! An instance stays where it is made, because its machine's interrupt handler and its areas know the place:
//! ```compile_fail,E0507
//! # use core::pin::Pin;
//! # use faultless_platform::native::Native;
//! # use faultless_sync::Rwsem;
//! # use faultless_vm::{design::VmaLock, Vm};
//! fn moved(vm: Pin<Box<Vm<Native, VmaLock<Rwsem<Native>>>>>) -> Vm<Native, VmaLock<Rwsem<Native>>> {
//!     *vm
//! }
//! ```
//! ```compile_fail,E0277
//! # use core::pin::Pin;
//! # use faultless_platform::native::Native;
//! # use faultless_sync::Rwsem;
//! # use faultless_vm::{design::VmaLock, Vm};
//! fn exchanged(one: &mut Pin<Box<Vm<Native, VmaLock<Rwsem<Native>>>>>, other: &mut Vm<Native, VmaLock<Rwsem<Native>>>) {
//!     core::mem::swap(one.as_mut().get_mut(), other);
//! }
//! ```
//! A source lives as long as the program:
//! ```compile_fail,E0597
//! # use faultless_vm::{ObjectSpec, PageSource, WriteNotice};
//! fn spec(source: impl PageSource) -> u64 {
//!     let spec = ObjectSpec { identity: 1, size_bytes: 1, source: &source, write_notice: WriteNotice::None };
//!     spec.identity
//! }
//! ```
//! All of them may be used by any thread:
//! ```
//! # use core::pin::Pin;
//! # use faultless_platform::native::Native;
//! # use faultless_sync::Rwsem;
//! # use faultless_vm::{design::VmaLock, Guest, ObjectHandle, SpaceRef, Vm};
//! fn is_shared<T: Send + Sync>() {}
//! type Design = VmaLock<Rwsem<Native>>;
//! is_shared::<(Pin<Box<Vm<Native, Design>>>, SpaceRef<'_, Native, Design>)>();
//! is_shared::<(Guest<'_, Native, Design>, ObjectHandle<'_, Native>)>();
//! ```
#![no_std]

extern crate alloc;
#[cfg(test)]
extern crate std;

mod access;
mod addr;
mod area;
mod asked;
pub mod check;
mod content;
pub mod design;
mod entry;
mod error;
mod events;
mod fault;
mod format;
mod guest;
mod hardware;
mod index;
mod instance;
mod limits;
mod object;
mod orphans;
mod pattern;
mod pin;
mod pool;
mod promise;
mod reference;
pub mod registry;
mod space;
mod system;
mod tags;
mod translations;
mod types;
mod unique;
mod view;
mod words;

pub use access::Access;
pub use addr::{AddressRange, PAGE, PageRange, USER_END, VirtAddr, page_ceil, page_floor};
pub use area::{Area, AreaFlags, AreaView};
pub use asked::{MapOptions, Protection};
pub use content::Content;
pub use entry::{Entry, EntryFlags};
pub use error::{AccessError, CallError, Signal};
pub use events::{Event, Events, GiveUp};
pub use fault::{Fault, Handled};
pub use format::{Ept, TableFormat, X86_64, check_format};
pub use guest::{FaultsTaken, Guest};
pub use hardware::{FutexKey, Mode, Reason, Resolution};
pub use instance::Vm;
pub use limits::{Limits, LinuxVersion, PlacementPolicy, Privileges, STACK_GUARD_PAGES};
pub use object::{
    FetchError, MAX_OBJECT_BYTES, Object, ObjectHandle, ObjectRef, ObjectSpec, PageSource, WriteNotice, ZeroSource,
};
pub use pattern::Pattern;
pub use pin::{Pin, PinKind, Pinned};
pub use promise::State;
pub use reference::{Reference, ReferenceHandle};
pub use space::{
    Advice, AreaLine, AreaList, Backing, LockAll, MapRequest, PageLock, Placement, Populate, RemapPlacement,
    RemapRequest, Space, SpaceRef, SyncFlags,
};
pub use system::{Embedding, System};
pub use tags::{GRANULE_BYTES, GRANULES, MemoryTags, SoftwareTags};
pub use translations::tlb::{SpaceId, Tlb, Translation};
