//! The objects of an instance, and counted references to them.
//!
//! # Invariants
//! * I1 the pool outlives its objects: areas that hold references end before the instance does, and the references that
//!   users hold ([`ObjectHandle`]) borrow the instance.
//! * I2 the list's links are used under its lock.

use super::cache::Cache;
use super::{Object, ObjectSpec};
use crate::frames;
use crate::orphans::{Orphan, Orphans};
use core::marker::PhantomData;
use core::ptr::NonNull;
use faultless_phys::{Memory, OutOfFrames, Slab};
use faultless_platform::{AtomicInteger, Ordering, Platform};
use faultless_sync::{SpinMutex, lock_class};

lock_class! {
    /// The lock of the list of objects.
    PoolLock = "objects"
}

/// The objects of an instance.
pub(crate) struct Pool<P: Platform> {
    memory: Memory<P>,
    slab: Slab<P, Object<P>>,
    first: SpinMutex<P, Option<NonNull<Object<P>>>, PoolLock>,
    orphans: Orphans<P, Object<P>>,
}

impl<P: Platform> Pool<P> {
    pub(crate) fn new(memory: &Memory<P>) -> Self {
        Self {
            memory: memory.clone(),
            slab: Slab::new(memory),
            first: SpinMutex::classed(None),
            orphans: Orphans::new(),
        }
    }

    /// Makes an object.
    ///
    /// # Safety
    /// The pool stays where it is, and outlives the last reference (I1).
    pub(crate) unsafe fn create(&self, spec: &ObjectSpec) -> Result<ObjectRef<P>, OutOfFrames> {
        let pages = Cache::new(&self.memory)?;
        let object = self.slab.alloc().inspect_err(|_| pages.free(&self.memory, &mut |_| ()))?;
        // SAFETY: the slab gave us room for an object.
        unsafe { object.write(Object::new(spec, pages)) };
        let mut first = self.first.lock();
        // SAFETY: I2.
        unsafe { object.as_ref().next_in_pool.get().write(*first) };
        *first = Some(object);
        Ok(ObjectRef { object, pool: NonNull::from(self) })
    }

    /// Visits the objects; none is made or ended meanwhile.
    pub(crate) fn for_each(&self, mut visit: impl FnMut(&Object<P>)) {
        let first = self.first.lock();
        let mut next = *first;
        while let Some(object) = next {
            // SAFETY: listed objects are alive, and the list is locked (I2).
            let object = unsafe { object.as_ref() };
            visit(object);
            // SAFETY: I2.
            next = unsafe { *object.next_in_pool.get() };
        }
    }

    /// Says whether an object is one of this pool's.
    pub(crate) fn owns(&self, object: &ObjectRef<P>) -> bool {
        core::ptr::eq(self, object.pool.as_ptr())
    }

    fn unlink(&self, object: NonNull<Object<P>>) {
        let mut first = self.first.lock();
        let mut place: *mut Option<NonNull<Object<P>>> = &raw mut *first;
        // SAFETY: I2, and listed objects are alive.
        unsafe {
            while let Some(listed) = *place {
                if listed == object {
                    *place = *object.as_ref().next_in_pool.get();
                    return;
                }
                place = listed.as_ref().next_in_pool.get();
            }
        }
    }

    /// Says whether objects wait for a CPU to be ended: a hint.
    pub(crate) fn has_orphans(&self) -> bool {
        !self.orphans.is_empty()
    }

    /// Ends the objects whose last reference was dropped without a CPU; the caller has one.
    pub(crate) fn end_orphans(&self) {
        self.orphans.take(|object| self.end(object));
    }

    /// Ends an object whose last reference is gone, now or when somebody has a CPU for it; see `orphans`.
    fn lose(&self, object: NonNull<Object<P>>) {
        match P::owned_cpu() {
            Some(_) => self.end(object),
            // SAFETY: the caller dropped the last reference.
            None => unsafe { self.orphans.leave(object) },
        }
    }

    fn end(&self, object: NonNull<Object<P>>) {
        self.unlink(object);
        // SAFETY: the last reference is gone, but the memory is still ours.
        unsafe { object.as_ref() }.pages.free(&self.memory, &mut |entry| {
            if entry.holds_frame() {
                frames::put(&self.memory, entry.pfn());
            }
        });
        // SAFETY: as above; the object needs no drop of its own.
        unsafe { self.slab.free(object) };
    }
}

impl<P: Platform> Orphan<P> for Object<P> {
    fn link(&self) -> &P::AtomicPtr<Self> {
        &self.next_orphan
    }
}

/// A counted reference to an object, for areas.
pub struct ObjectRef<P: Platform> {
    object: NonNull<Object<P>>,
    pool: NonNull<Pool<P>>,
}

// SAFETY: an object is shared by design.
unsafe impl<P: Platform> Send for ObjectRef<P> {}
// SAFETY: as above.
unsafe impl<P: Platform> Sync for ObjectRef<P> {}

impl<P: Platform> ObjectRef<P> {
    pub(crate) fn as_ptr(&self) -> NonNull<Object<P>> {
        self.object
    }
}

impl<P: Platform> core::ops::Deref for ObjectRef<P> {
    type Target = Object<P>;
    fn deref(&self) -> &Object<P> {
        // SAFETY: a reference keeps the object alive.
        unsafe { self.object.as_ref() }
    }
}

impl<P: Platform> Clone for ObjectRef<P> {
    fn clone(&self) -> Self {
        // Relaxed: we hold a reference already, so the object can't go away meanwhile.
        self.references.fetch_add(1, Ordering::Relaxed);
        Self { object: self.object, pool: self.pool }
    }
}

impl<P: Platform> Drop for ObjectRef<P> {
    fn drop(&mut self) {
        // ORDER: AcqRel pairs with the other references' drops: all uses come before the end.
        if self.references.fetch_sub(1, Ordering::AcqRel) == 1 {
            // SAFETY: I1.
            unsafe { self.pool.as_ref() }.lose(self.object);
        }
    }
}

/// A user's reference to an object; the object lives on while areas map it.
///
/// It is an opening of the object, as a file descriptor is one of a file: clones are the same opening, mappings of
/// different openings are never joined.
pub struct ObjectHandle<'vm, P: Platform> {
    pub(crate) object: ObjectRef<P>,
    pub(crate) opening: u64,
    pub(crate) instance: PhantomData<&'vm ()>,
}

impl<P: Platform> Clone for ObjectHandle<'_, P> {
    fn clone(&self) -> Self {
        Self { object: self.object.clone(), opening: self.opening, instance: PhantomData }
    }
}

impl<P: Platform> ObjectHandle<'_, P> {
    /// Opens the object once more.
    pub fn reopen(&self) -> Self {
        Self { object: self.object.clone(), opening: self.object.next_opening(), instance: PhantomData }
    }
}

impl<P: Platform> core::ops::Deref for ObjectHandle<'_, P> {
    type Target = Object<P>;
    fn deref(&self) -> &Object<P> {
        &self.object
    }
}
