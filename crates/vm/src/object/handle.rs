//! References to memory objects: those that areas hold, and those that users hold.

use super::{Cache, Object, ObjectSpec};
use crate::orphans::Orphan;
use crate::pool::{Membership, Pool, PoolRef, Pooled};
use crate::system::System;
use crate::translations::frames;
use core::marker::PhantomData;
use faultless_phys::OutOfFrames;

/// A counted reference to an object: made by [`Vm::create_object`](crate::Vm::create_object) for a handle, which callers
/// use instead, and kept by areas.
pub type ObjectRef<P> = PoolRef<P, Object<P>>;

impl<P: System> Orphan<P> for Object<P> {
    fn link(&self) -> &P::AtomicPtr<Self> {
        self.membership.orphan_link()
    }
}

impl<P: System> Pooled<P> for Object<P> {
    fn membership(&self) -> &Membership<P, Self> {
        &self.membership
    }

    fn end(&self, memory: &P::Frames) {
        self.pages.free(memory, &mut |entry| {
            if entry.holds_frame() {
                frames::put(memory, entry.pfn());
            }
        });
    }
}

impl<P: System> Pool<P, Object<P>> {
    /// Makes an object.
    ///
    /// # Safety
    /// As for [`Pool::add`].
    pub(crate) unsafe fn create(&self, memory: &P::Frames, spec: &ObjectSpec) -> Result<ObjectRef<P>, OutOfFrames> {
        let pages = Cache::new(memory)?;
        // SAFETY: the caller's promise.
        let object = unsafe { self.add(Object::new(spec, pages)) }?;
        if P::WATCHED {
            object.tell_names();
        }
        Ok(object)
    }
}

/// A user's reference to an object; the object lives on while areas map it.
///
/// It is an opening of the object, as a file descriptor is one of a file: clones are the same opening, mappings of
/// different openings are never joined.
pub struct ObjectHandle<'vm, P: System> {
    pub(crate) object: ObjectRef<P>,
    pub(crate) opening: u64,
    pub(crate) instance: PhantomData<&'vm ()>,
}

impl<P: System> Clone for ObjectHandle<'_, P> {
    fn clone(&self) -> Self {
        Self { object: self.object.clone(), opening: self.opening, instance: PhantomData }
    }
}

impl<P: System> ObjectHandle<'_, P> {
    /// Opens the object once more.
    pub fn reopen(&self) -> Self {
        Self { object: self.object.clone(), opening: self.object.next_opening(), instance: PhantomData }
    }
}

impl<P: System> core::ops::Deref for ObjectHandle<'_, P> {
    type Target = Object<P>;
    fn deref(&self) -> &Object<P> {
        &self.object
    }
}
