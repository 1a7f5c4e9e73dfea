//! What the models of RCU and SRCU free: an object, and whether that has happened.

use crate::Plain;
use core::ptr::NonNull;
use faultless_platform::loom::Loom;
use faultless_sync::RcuHead;

/// An object that readers may find.
pub struct Object {
    head: RcuHead<Loom>,
    is_freed: Plain,
}

impl Object {
    pub fn new() -> Self {
        Self { head: RcuHead::new(), is_freed: Plain::new() }
    }

    pub fn head(&self) -> NonNull<RcuHead<Loom>> {
        NonNull::from(&self.head)
    }

    /// The checker fails if nothing orders this look and the end.
    pub fn is_freed(&self) -> bool {
        self.is_freed.read() != 0
    }

    /// Frees it, for whoever waited.
    pub fn end(&self) {
        self.is_freed.write(1);
    }

    /// Frees the object that the head stands in.
    ///
    /// # Safety
    /// The head is that of an [`Object`] that is alive.
    pub unsafe fn free(head: NonNull<RcuHead<Loom>>) {
        // SAFETY: see above.
        let object =
            unsafe { &*head.as_ptr().cast_const().byte_sub(core::mem::offset_of!(Object, head)).cast::<Object>() };
        object.end();
    }
}
