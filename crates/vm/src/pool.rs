//! Reference-counted things of an instance: memory objects, reference pages, pins.
//!
//! # Guarantee
//! A thing ends once, after its last reference has gone, on a thread that owns a CPU; until then it stands where it was
//! made.
//!
//! # Invariants
//! * I1 the pool outlives its things: areas that hold references end before the instance does, and the references that
//!   users hold ([`ObjectHandle`](crate::ObjectHandle), [`ReferenceHandle`](crate::ReferenceHandle),
//!   [`Pin`](crate::Pin)) borrow the instance.
//! * I2 the list's links are used under its lock.

use crate::orphans::{Orphan, Orphans};
use crate::system::System;
use core::cell::UnsafeCell;
use core::ptr::NonNull;
use faultless_phys::{OutOfFrames, Slab};
use faultless_platform::{Atomic, AtomicInteger, Ordering};
use faultless_sync::{SpinMutex, lock_class};

lock_class! {
    /// The locks of the lists of things.
    PoolLock = "objects"
}

/// Adds a reference to a listed thing, unless the last one is gone: then it is ending. The caller holds its list's
/// lock, under which the thing stays in place, and which orders what its users did before.
pub(crate) fn refer_unless_gone<P: System>(references: &P::AtomicU32) -> bool {
    // Relaxed: compared again before it counts.
    let mut count = references.load(Ordering::Relaxed);
    while count != 0 {
        // Relaxed: the lock orders.
        match references.compare_exchange(count, count + 1, Ordering::Relaxed, Ordering::Relaxed) {
            Ok(_) => return true,
            Err(now) => count = now,
        }
    }
    false
}

/// References that may be forgotten before a thing counts no more: half of what the count holds, so that those who add
/// one each at the same time can't make it wrap.
const MOST_REFERENCES: u32 = u32::MAX / 2;

/// Adds a reference for a caller that holds one.
///
/// # Panics
/// If there are [`MOST_REFERENCES`]: a count that wrapped would free what is still referred to.
#[inline]
pub(crate) fn refer_again<P: System>(references: &P::AtomicU32) {
    // Relaxed: the caller holds a reference, so the count is not 0.
    if references.fetch_add(1, Ordering::Relaxed) >= MOST_REFERENCES {
        refuse::<P>(references);
    }
}

#[cold]
fn refuse<P: System>(references: &P::AtomicU32) -> ! {
    // Relaxed: taken back, and never 0.
    references.fetch_sub(1, Ordering::Relaxed);
    panic!("as many references as can be counted: some were forgotten");
}

/// What a pool keeps in each of its things.
pub struct Membership<P: System, T> {
    references: P::AtomicU32,
    next_in_pool: UnsafeCell<Option<NonNull<T>>>,
    next_orphan: P::AtomicPtr<T>,
}

impl<P: System, T> Membership<P, T> {
    /// Returns that of a new thing: one reference.
    pub(crate) fn new() -> Self {
        Self {
            references: P::AtomicU32::new(1),
            next_in_pool: UnsafeCell::new(None),
            next_orphan: P::AtomicPtr::new(core::ptr::null_mut()),
        }
    }

    /// Returns the place that links orphans.
    pub(crate) fn orphan_link(&self) -> &P::AtomicPtr<T> {
        &self.next_orphan
    }
}

/// A thing that a pool can keep; it is shared by threads, but for what its membership says.
pub trait Pooled<P: System>: Orphan<P> {
    /// Returns what the pool keeps in it.
    fn membership(&self) -> &Membership<P, Self>;
    /// Gives back what it holds of `memory`; the last reference is gone, and the caller owns a CPU.
    fn end(&self, memory: &P::Frames);
}

/// The things of one kind of an instance.
pub(crate) struct Pool<P: System, T: Pooled<P>> {
    memory: P::Frames,
    slab: Slab<P, T, P::Frames>,
    first: SpinMutex<P, Option<NonNull<T>>, PoolLock>,
    orphans: Orphans<P, T>,
}

impl<P: System, T: Pooled<P>> Pool<P, T> {
    pub(crate) fn new(memory: &P::Frames) -> Self {
        Self {
            memory: memory.clone(),
            slab: Slab::new(memory),
            first: SpinMutex::classed(None),
            orphans: Orphans::new(),
        }
    }

    /// Adds a thing; one that finds no room ends.
    ///
    /// # Safety
    /// The pool stays where it is, and outlives the last reference (I1).
    pub(crate) unsafe fn add(&self, thing: T) -> Result<PoolRef<P, T>, OutOfFrames> {
        let room = self.slab.alloc().inspect_err(|_| thing.end(&self.memory))?;
        // SAFETY: the slab gave us room for one.
        unsafe { room.write(thing) };
        let mut first = self.first.lock();
        // SAFETY: I2.
        unsafe { room.as_ref().membership().next_in_pool.get().write(*first) };
        *first = Some(room);
        Ok(PoolRef { thing: room, pool: NonNull::from(self) })
    }

    /// Visits the things; those that are made meanwhile are left out. Each is kept alive while it is visited, and no
    /// lock is held.
    pub(crate) fn for_each(&self, mut visit: impl FnMut(&T)) {
        let mut before = None;
        while let Some(thing) = self.after(before.as_ref()) {
            visit(&thing);
            before = Some(thing);
        }
    }

    /// Visits the things, those too that nobody refers to any more and that have not been ended yet; none is added or
    /// ended meanwhile. For the checker.
    pub(crate) fn for_each_listed(&self, mut visit: impl FnMut(&T)) {
        let first = self.first.lock();
        let mut next = *first;
        while let Some(thing) = next {
            // SAFETY: listed things are alive, and the list is locked (I2).
            let thing = unsafe { thing.as_ref() };
            visit(thing);
            // SAFETY: I2.
            next = unsafe { *thing.membership().next_in_pool.get() };
        }
    }

    /// Refers to what follows a thing in the list: the first one, if that is none. What lost its last reference is
    /// passed over.
    fn after(&self, before: Option<&PoolRef<P, T>>) -> Option<PoolRef<P, T>> {
        let first = self.first.lock();
        // SAFETY: I2; a thing that is referred to is listed.
        let mut next = before.map_or(*first, |before| unsafe { *before.membership().next_in_pool.get() });
        while let Some(thing) = next {
            // SAFETY: listed things are alive, and the list is locked (I2).
            let membership = unsafe { thing.as_ref() }.membership();
            if refer_unless_gone::<P>(&membership.references) {
                return Some(PoolRef { thing, pool: NonNull::from(self) });
            }
            // SAFETY: I2.
            next = unsafe { *membership.next_in_pool.get() };
        }
        None
    }

    /// Says whether a thing is one of this pool's.
    pub(crate) fn owns(&self, thing: &PoolRef<P, T>) -> bool {
        core::ptr::eq(self, thing.pool.as_ptr())
    }

    fn unlink(&self, thing: NonNull<T>) {
        let mut first = self.first.lock();
        let mut place: *mut Option<NonNull<T>> = &raw mut *first;
        // SAFETY: I2, and listed things are alive.
        unsafe {
            while let Some(listed) = *place {
                if listed == thing {
                    *place = *thing.as_ref().membership().next_in_pool.get();
                    return;
                }
                place = listed.as_ref().membership().next_in_pool.get();
            }
        }
    }

    /// Says whether things wait for a CPU to be ended: a hint.
    pub(crate) fn has_orphans(&self) -> bool {
        !self.orphans.is_empty()
    }

    /// Ends the things whose last reference was dropped without a CPU; the caller has one.
    pub(crate) fn end_orphans(&self) {
        self.orphans.take(|thing| self.end(thing));
    }

    /// Ends a thing whose last reference is gone, now or when somebody has a CPU for it; see `orphans`.
    fn lose(&self, thing: NonNull<T>) {
        match P::owned_cpu() {
            Some(_) => self.end(thing),
            // SAFETY: the caller dropped the last reference.
            None => unsafe { self.orphans.leave(thing) },
        }
    }

    fn end(&self, thing: NonNull<T>) {
        self.unlink(thing);
        // SAFETY: the last reference is gone, but the memory is still ours.
        unsafe {
            thing.as_ref().end(&self.memory);
            core::ptr::drop_in_place(thing.as_ptr());
            self.slab.free(thing);
        }
    }
}

/// A counted reference to a thing of a pool.
pub struct PoolRef<P: System, T: Pooled<P>> {
    thing: NonNull<T>,
    pool: NonNull<Pool<P, T>>,
}

// SAFETY: things are shared by design, and their pool is.
unsafe impl<P: System, T: Pooled<P> + Send + Sync> Send for PoolRef<P, T> {}
// SAFETY: as above.
unsafe impl<P: System, T: Pooled<P> + Send + Sync> Sync for PoolRef<P, T> {}

impl<P: System, T: Pooled<P>> PoolRef<P, T> {
    pub(crate) fn as_ptr(&self) -> NonNull<T> {
        self.thing
    }

    /// Returns the frames of the instance.
    pub(crate) fn memory(&self) -> &P::Frames {
        // SAFETY: I1.
        &unsafe { self.pool.as_ref() }.memory
    }
}

impl<P: System, T: Pooled<P>> core::ops::Deref for PoolRef<P, T> {
    type Target = T;
    fn deref(&self) -> &T {
        // SAFETY: a reference keeps the thing alive.
        unsafe { self.thing.as_ref() }
    }
}

impl<P: System, T: Pooled<P>> Clone for PoolRef<P, T> {
    fn clone(&self) -> Self {
        refer_again::<P>(&self.membership().references);
        Self { thing: self.thing, pool: self.pool }
    }
}

impl<P: System, T: Pooled<P>> Drop for PoolRef<P, T> {
    fn drop(&mut self) {
        // ORDER: AcqRel pairs with the other references' drops: all uses come before the end.
        if self.membership().references.fetch_sub(1, Ordering::AcqRel) == 1 {
            // SAFETY: I1.
            unsafe { self.pool.as_ref() }.lose(self.thing);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use faultless_platform::native::Native;
    use std::panic::catch_unwind;

    #[test]
    fn a_count_of_references_does_not_wrap() {
        let references = <Native as faultless_platform::Processor>::AtomicU32::new(MOST_REFERENCES - 1);
        refer_again::<Native>(&references);
        for _ in 0..3 {
            assert!(catch_unwind(|| refer_again::<Native>(&references)).is_err());
        }
        assert_eq!(references.load(Ordering::Relaxed), MOST_REFERENCES);
    }
}
