//! Pinning pages of a space: see `pin`.

use crate::area::AreaFlags;
use crate::content::Behind;
use crate::design::Design;
use crate::entry::Entry;
use crate::error::{AccessError, CallError};
use crate::fault::{Fault, classic};
use crate::pool::{Membership, PoolRef};
use crate::space::{Space, SpaceRef};
use crate::system::System;
use crate::translations::frames;
use crate::translations::leaf_guard::LeafGuard;
use core::marker::PhantomData;
use faultless_phys::Pfn;
use faultless_platform::{Atomic, Ordering, mutant};

use crate::addr::VirtAddr;
use crate::pin::{Hold, Pin, PinKind, Pinned};

impl<'vm, P: System, D: Design<P>> SpaceRef<'vm, P, D> {
    /// Pins the page of `address`, made as an access makes it; EFAULT if it can't be made.
    pub fn pin(&self, address: VirtAddr, kind: PinKind) -> Result<Pin<'vm, P>, CallError> {
        let pinned = self.try_again(|| self.pinned(address, kind))?;
        Ok(Pin { pinned, instance: PhantomData })
    }
}

impl<P: System, D: Design<P>> Space<P, D> {
    /// As [`SpaceRef::pin`], for the crate.
    pub(crate) fn pinned(&self, address: VirtAddr, kind: PinKind) -> Result<PoolRef<P, Pinned<P>>, CallError> {
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
    fn take_hold(&self, address: VirtAddr, kind: PinKind) -> Result<Option<(Pfn, Hold<P>)>, CallError> {
        let read = self.read_settled(address..address + 1);
        let Some(found) = read.permit().containing(address) else { return Ok(None) };
        let area = found.area();
        // Who ends before his pins leaves the table as it is to those who share it: its last user would find the page
        // his alone. So neither is a page pinned by a shared table, nor is a table shared that pinned pages lie in.
        // Relaxed: a fork has all of the space locked.
        self.has_pinned.store(true, Ordering::Relaxed);
        let Some(leaf) = self.translations.walk_own(address.get()) else { return Ok(None) };
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
