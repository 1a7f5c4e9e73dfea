//! Pins: pages that are held without a mapping, as a device driver holds them (get_user_pages).
//!
//! # Guarantee
//! The frame of a pin is not freed and not given another use before the pin is dropped, whatever happens to the
//! mapping.
//!
//! | page | pinned for reading | for writing | for reading, for long |
//! |---|---|---|---|
//! | of zeros, or a reference page | itself, not counted; a reference page is held | a copy | a copy (our extension for reference pages) |
//! | any other | itself | itself, once stores may reach it | as for reading |
//!
//! As with get_user_pages, a later fork or a store through a mapping that shares the page may part the mapping from the
//! pin.
//!
//! # Invariants
//! * I1 a pin of a counted frame owns one of its references; one of a reference page owns a reference to that.
//! * I2 both are taken while the entry that maps the page is locked, or its area held.

use crate::area::AreaFlags;
use crate::content::Behind;
use crate::design::Design;
use crate::entry::Entry;
use crate::error::{AccessError, CallError};
use crate::fault::{Fault, LeafGuard, classic};
use crate::frames;
use crate::guest::{self, Access};
use crate::orphans::Orphan;
use crate::pool::{Membership, PoolRef, Pooled};
use crate::reference::ReferenceRef;
use crate::space::{Space, SpaceRef};
use crate::system::System;
use core::marker::PhantomData;
use faultless_phys::{FrameSource, Pfn};
use faultless_platform::PAGE_BYTES;
use faultless_platform::mutant;

/// What a page is pinned for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PinKind {
    /// To be read, soon.
    Read,
    /// To be written.
    Write,
    /// To be read, as long as somebody likes: nobody shares a page of zeros or a reference page so long
    /// (`FOLL_LONGTERM`).
    LongTermRead,
}

impl PinKind {
    fn access(self) -> Access {
        if self == Self::Write { Access::Write } else { Access::Read }
    }
}

/// What holds the frame of a pin.
enum Hold<P: System> {
    /// One of its references.
    Counted,
    /// It is a reference page.
    Reference(#[expect(dead_code, reason = "held, not used")] ReferenceRef<P>),
    /// Nothing: the page of zeros, which ends with the instance.
    Nothing,
}

/// A frame that is held; see the module.
pub struct Pinned<P: System> {
    membership: Membership<P, Self>,
    frame: Pfn,
    hold: Hold<P>,
    kind: PinKind,
}

// SAFETY: immutable but for its membership, which the pool uses as it says.
unsafe impl<P: System> Sync for Pinned<P> {}
// SAFETY: nothing in it belongs to a thread.
unsafe impl<P: System> Send for Pinned<P> {}

impl<P: System> Pinned<P> {
    /// Returns the frame.
    pub fn frame(&self) -> Pfn {
        self.frame
    }

    /// Returns what the page was pinned for.
    pub fn kind(&self) -> PinKind {
        self.kind
    }

    /// Says whether the frame counts the pin among its references.
    pub(crate) fn is_counted(&self) -> bool {
        matches!(self.hold, Hold::Counted)
    }
}

impl<P: System> Orphan<P> for Pinned<P> {
    fn link(&self) -> &P::AtomicPtr<Self> {
        self.membership.orphan_link()
    }
}

impl<P: System> Pooled<P> for Pinned<P> {
    fn membership(&self) -> &Membership<P, Self> {
        &self.membership
    }

    fn end(&self, memory: &P::Frames) {
        if self.is_counted() {
            frames::put(memory, self.frame);
        }
    }
}

/// A page that is held until this is dropped, on any thread.
pub struct Pin<'vm, P: System> {
    pinned: PoolRef<P, Pinned<P>>,
    instance: PhantomData<&'vm ()>,
}

impl<P: System> core::ops::Deref for Pin<'_, P> {
    type Target = Pinned<P>;
    fn deref(&self) -> &Pinned<P> {
        &self.pinned
    }
}

impl<P: System> Pin<'_, P> {
    /// Reads words of the page, from byte `offset` on, a multiple of 8; those behind the page's end are left as they
    /// are.
    pub fn read(&self, offset: usize, words: &mut [u64]) {
        let offset = offset.min(PAGE_BYTES) & !7;
        let nr_words = words.len().min((PAGE_BYTES - offset) / 8);
        let page = self.pinned.memory().frame(self.frame);
        // SAFETY: the pin holds the frame, the words lie in it, and mapped frames are accessed atomically.
        unsafe { guest::load_words::<P>(page.add(offset), &mut words[..nr_words]) };
    }

    /// Writes words of a page that is pinned for writing; those behind its end go nowhere. Says whether it was.
    pub fn write(&self, offset: usize, words: &[u64]) -> bool {
        if self.kind != PinKind::Write {
            return false;
        }
        let offset = offset.min(PAGE_BYTES) & !7;
        let nr_words = words.len().min((PAGE_BYTES - offset) / 8);
        let page = self.pinned.memory().frame(self.frame);
        // SAFETY: as above; the page was one that stores reach when it was pinned, so it is no shared one.
        unsafe { guest::store_words::<P>(page.add(offset), &words[..nr_words]) };
        true
    }
}

impl<'vm, P: System, D: Design<P>> SpaceRef<'vm, P, D> {
    /// Pins the page of `address`, made as an access makes it; EFAULT if there is none to be had.
    pub fn pin(&self, address: u64, kind: PinKind) -> Result<Pin<'vm, P>, CallError> {
        let pinned = self.try_again(|| self.pinned(address, kind))?;
        Ok(Pin { pinned, instance: PhantomData })
    }
}

impl<P: System, D: Design<P>> Space<P, D> {
    /// As [`SpaceRef::pin`], for the crate.
    pub(crate) fn pinned(&self, address: u64, kind: PinKind) -> Result<PoolRef<P, Pinned<P>>, CallError> {
        let fault = Fault { address, access: kind.access(), is_present: false };
        loop {
            let made = match kind {
                PinKind::LongTermRead => classic::unshare(self, fault),
                PinKind::Read | PinKind::Write => classic::handle(self, fault),
            };
            made.map_err(bad_buffer)?;
            if let Some((frame, hold)) = self.take_hold(address, kind)? {
                let pinned = Pinned { membership: Membership::new(), frame, hold, kind };
                // SAFETY: pins are held by users, who borrow the instance.
                return Ok(unsafe { self.vm().pins().add(pinned) }?);
            }
        }
    }

    /// Holds the page that is mapped at an address, if it is one for that kind of pin.
    fn take_hold(&self, address: u64, kind: PinKind) -> Result<Option<(Pfn, Hold<P>)>, CallError> {
        let read = self.read_settled(address..address + 1);
        let Some(found) = read.permit().containing(address) else { return Ok(None) };
        let area = found.area();
        let Some(leaf) = self.tables().walk(self.memory(), address) else { return Ok(None) };
        let guard = LeafGuard::lock(self.memory(), leaf);
        let entry = guard.entry();
        if !suits(entry, kind, area.flags()) {
            return Ok(None);
        }
        let hold = match area.behind() {
            Behind::Reference(reference) if entry.is_special() => {
                mutant!(ReferenceFreedWhilePinned, Hold::Reference(reference.clone()) => Hold::Nothing)
            }
            _ if entry.is_special() => Hold::Nothing,
            _ => {
                frames::get(self.memory(), entry.pfn()).map_err(|_| CallError::TooManyReferences)?;
                Hold::Counted
            }
        };
        Ok(Some((entry.pfn(), hold)))
    }
}

/// Says whether a page may be pinned so.
fn suits(entry: Entry, kind: PinKind, flags: AreaFlags) -> bool {
    entry.is_present()
        && match kind {
            PinKind::Read => true,
            PinKind::Write => entry.is_writable(),
            // As Linux: a mapping that can't be copied on write has nothing to copy.
            PinKind::LongTermRead => !entry.is_special() || flags.contains(AreaFlags::SHARED),
        }
}

fn bad_buffer(error: AccessError) -> CallError {
    match error {
        AccessError::OutOfFrames(cause) => CallError::OutOfFrames(cause),
        AccessError::TooManyReferences => CallError::TooManyReferences,
        AccessError::NotMapped { address }
        | AccessError::Forbidden { address }
        | AccessError::ForbiddenByKey { address }
        | AccessError::NoPage { address }
        | AccessError::NotCanonical { address } => CallError::BadBuffer { address },
    }
}
