//! State that a forked child finds zero: what must not be inherited.
//!
//! # Guarantee
//! In a child every field is zero again, whatever the parent's threads were doing: the page is
//! wiped by the kernel on fork (`MADV_WIPEONFORK`, Linux 4.14). A child of vfork shares it.

use crate::{Error, sys};
use std::ptr;
use std::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, Ordering};

/// The page. All bytes zero is its state before use.
#[derive(Debug)]
pub(crate) struct Wiped {
    /// See `lock`.
    pub(crate) lock: AtomicU32,
    /// See `dirty`: a descriptor plus one.
    pub(crate) pagemap: AtomicU32,
    /// See `dirty`: which file that descriptor led to.
    pub(crate) pagemap_inode: AtomicU64,
}

static PAGE: AtomicPtr<Wiped> = AtomicPtr::new(ptr::null_mut());

/// Returns the page.
pub(crate) fn wiped() -> Result<&'static Wiped, Error> {
    // ORDER: Acquire pairs with the AcqRel in `make`: the page's content is the kernel's.
    let page = PAGE.load(Ordering::Acquire);
    // SAFETY: a page that was published stays mapped for the process's life, in children too.
    unsafe { page.as_ref() }.map_or_else(make, Ok)
}

#[cold]
fn make() -> Result<&'static Wiped, Error> {
    let len = sys::page_len();
    let fresh = sys::map_anonymous(len).map_err(|_| Error::OutOfMemory { len })?;
    // SAFETY: the page is ours. A kernel that refuses leaves state that is not safe across fork.
    let _ = unsafe { sys::advise(fresh, len, libc::MADV_WIPEONFORK) };
    let fresh = fresh.cast::<Wiped>();
    // ORDER: AcqRel pairs with the Acquire in `wiped` and with the winner's own exchange.
    let seen = PAGE.compare_exchange(ptr::null_mut(), fresh, Ordering::AcqRel, Ordering::Acquire);
    let page = match seen {
        Ok(_) => fresh,
        Err(winner) => {
            // SAFETY: nobody has seen our page.
            unsafe { sys::unmap(fresh.cast(), len) };
            winner
        }
    };
    // SAFETY: mapped for the process's life, and zero when it was published.
    Ok(unsafe { &*page })
}
