//! Locks, sequence counts, RCU and per-CPU cells, generic over the machine below.
//!
//! # Guarantee
//! Everything works on any [`Processor`](faultless_platform::Processor): every atomic is the platform's, every wait
//! goes through the platform, and nothing allocates after set-up. What protects data says so in its type, or in the
//! `# Safety` section of the function that relies on it.
//!
//! # Rooms, from short waits to long ones
//! | room | for | waits by |
//! |---|---|---|
//! | [`PerCpu`], [`PerCpuCounter`], [`AtomicCpuSet`], [`CpuSetView`] | state that each CPU keeps for itself | not at all |
//! | [`Purses`], [`Purse`], [`Credit`] | counting up to a limit on a line of its own | not at all, recalls for all who share |
//! | [`SeqCount`] | reading without writing, and noticing that a writer came between | not at all |
//! | [`Announcement`] | using a place without writing, and keeping out of its changes | not at all, its writer for readers |
//! | [`RawSpinLock`], [`SpinMutex`], [`RwSpinLock`], [`TicketLock`], [`McsQueue`], [`CnaQueue`] | a few hundred instructions | spinning |
//! | [`PerVmaLock`] | one area of an address space | readers not at all, its writer by sleeping |
//! | [`Rcu`] | reading what a writer frees later | readers not at all, `synchronize` until they are gone |
//! | [`Lookers`] | freeing at once what one CPU alone looks at | not at all |
//! | [`Forgetting`] | the same, when others looked long ago | not at all |
//! | [`Stamp`] | going by what was found before | not at all |
//! | [`Srcu`] | the same, with readers that may sleep | readers not at all, `synchronize` until they are gone |
//! | [`RangeLock`] | calls about ranges of one thing | spinning for a moment, then sleeping |
//! | [`RwSemaphore`]: [`Rwsem`] of each [`Generation`]; [`RwLock`], a value behind one | an address space, or anything | sleeping |
//! | [`Completion`], [`Barrier`] | threads of replays, workloads and tests | sleeping |
//!
//! # Who may call what where
//! * Under a spin lock, inside an RCU read section or with interrupts off nobody sleeps: no semaphore, no
//!   [`Rcu::synchronize`], no [`Rcu::flush`], no [`Completion::wait`].
//! * Inside a shootdown's handler none of this crate's locks is taken that is ever held across a wait with interrupts
//!   on.
//!
//! # Panics
//! On a platform whose waits may end by a panic (a test machine on which another thread failed) a lock that is
//! waited for is not held afterwards, and what stood in its queue is gone from it.
//!
//! # Example
//! ```
//! use faultless_platform::{Processor, Threads, native::{Machine, Native}};
//! use faultless_sync::{PerCpuCounter, RwSemaphore, Rwsem};
//!
//! let (space, nr_faults) = (Rwsem::<Native>::new(), PerCpuCounter::<Native>::new(2));
//! Native::run(&Machine::new(2), 4, &|_| {
//!     Native::enter();
//!     let write = space.write();
//!     let _read = write.downgrade();
//!     nr_faults.add(1);
//!     Native::leave();
//! });
//! assert_eq!(nr_faults.sum(), 4);
//! ```
//!
//! # What stays on its thread
//! Guards belong to the thread, or to the CPU slot, that took them:
//! ```compile_fail,E0277
//! use faultless_platform::native::Native;
//! use faultless_sync::*;
//! fn is_sent<T: Send>() {}
//! is_sent::<RawSpinGuard<'static, Native, Unnamed>>();
//! ```
//! ```compile_fail,E0277
//! use faultless_platform::native::Native;
//! use faultless_sync::*;
//! fn is_sent<T: Send>() {}
//! is_sent::<SpinMutexGuard<'static, Native, u32, Unnamed>>();
//! ```
//! ```compile_fail,E0277
//! use faultless_platform::native::Native;
//! use faultless_sync::*;
//! fn is_sent<T: Send>() {}
//! is_sent::<RwSpinReadGuard<'static, Native, Unnamed>>();
//! ```
//! ```compile_fail,E0277
//! use faultless_platform::native::Native;
//! use faultless_sync::*;
//! fn is_sent<T: Send>() {}
//! is_sent::<RwSpinWriteGuard<'static, Native, Unnamed>>();
//! ```
//! ```compile_fail,E0277
//! use faultless_platform::native::Native;
//! use faultless_sync::*;
//! fn is_sent<T: Send>() {}
//! is_sent::<RcuGuard<'static, Native>>();
//! ```
//! ```compile_fail,E0277
//! use faultless_platform::native::Native;
//! use faultless_sync::*;
//! fn is_sent<T: Send>() {}
//! is_sent::<SrcuGuard<'static, Native>>();
//! ```
//! ```compile_fail,E0277
//! use faultless_platform::native::Native;
//! use faultless_sync::*;
//! fn is_sent<T: Send>() {}
//! is_sent::<ReadGuard<'static, Native, Rwsem<Native>>>();
//! ```
//! ```compile_fail,E0277
//! use faultless_platform::native::Native;
//! use faultless_sync::*;
//! fn is_sent<T: Send>() {}
//! is_sent::<WriteGuard<'static, Native, Rwsem<Native>>>();
//! ```
//! The locks themselves are shared, if what they hold may be sent:
//! ```
//! use faultless_platform::native::Native;
//! use faultless_sync::*;
//! fn is_shared<T: Send + Sync>() {}
//! is_shared::<SpinMutex<Native, std::cell::Cell<u32>>>();
//! is_shared::<(RawSpinLock<Native>, RwSpinLock<Native>, Rwsem<Native>, Rcu<Native>, Srcu<Native>)>();
//! ```
//! ```compile_fail,E0277
//! use faultless_platform::native::Native;
//! fn is_shared<T: Sync>() {}
//! is_shared::<faultless_sync::SpinMutex<Native, std::rc::Rc<u32>>>();
//! ```
#![cfg_attr(doctest, doc = include_str!("../../../docs/semaphores.md"))]
#![no_std]
#![deny(missing_docs)]

extern crate alloc;

mod announcement;
mod barrier;
mod cna;
mod completion;
mod counter;
mod cpu_set;
mod credit;
mod give_way;
mod lookers;
mod mcs;
mod per_cpu;
mod per_vma_lock;
mod range_lock;
mod rcu;
mod rw_lock;
mod rwsem;
mod seqcount;
mod spin;
mod srcu;
mod stamp;
mod stats;
pub mod watch;

pub use announcement::Announcement;
pub use barrier::Barrier;
pub use cna::CnaQueue;
pub use completion::Completion;
pub use counter::{CounterCell, PerCpuCounter};
pub use cpu_set::{AtomicCpuSet, CpuSetView};
pub use credit::{Credit, Purse, Purses};
pub use lookers::{Forgetting, Lookers};
pub use mcs::McsQueue;
pub use per_cpu::PerCpu;
pub use per_vma_lock::{PerVmaLock, PerVmaReadGuard};
pub use range_lock::{
    Choice, Choose, Claim, HeldRanges, PartTable, PartTableRef, RangeLock, RangeReadGuard, RangeWriteGuard,
};
pub use rcu::{Rcu, RcuCallback, RcuGuard, RcuHead, SlotKept};
pub use rw_lock::{RwLock, RwLockReadGuard, RwLockWriteGuard};
pub use rwsem::{
    Effect, Ended, Generation, Interrupt, Parts, Patches, ReadGuard, ReaderTable, Rules, RwSemaphore, Rwsem,
    SEMAPHORES, SERIES, SemaphoreVisitor, SeriesPatch, Share, Timed, WaitLimits, WriteGuard, with_semaphore,
};
pub use seqcount::{Seq, SeqCount, SeqWriteGuard};
pub use spin::{
    RawSpinGuard, RawSpinLock, RwSpinLock, RwSpinReadGuard, RwSpinWriteGuard, SpinMutex, SpinMutexGuard, TicketGuard,
    TicketLock,
};
pub use srcu::{Srcu, SrcuGuard};
pub use stamp::Stamp;
pub use stats::{LockFigures, LockStats, Side};
pub use watch::{LockClass, Unnamed};
