//! Faults of spaces whose entries are the map: no area is looked up, and nothing is locked but the leaf table.
//!
//! # Guarantee
//! The fault's answer is right for the entry as it was at some instant during the fault, under its table's lock. A page
//! is put in its place only if it is still the same then, and an access is refused only if the promise is. So a map
//! call that has its range's tables locked is one step for faults (`translations::counted`).
//!
//! Where there is no table, nothing was promised: a call that is to promise something makes all its tables before.
//!
//! # Race
//! ```text
//! fault                                        map call (`space::promises`)
//! RCU section begins
//! walk; read a promise
//!                                              lock the leaf table; entry = empty; unlock
//!                                              nothing is left in the table: out of the tree, freed after a grace period
//! lock the leaf table; entry is another: no page, the access is tried again
//! RCU section ends
//! ```
//! A page that comes before the map call is found by it; after it none comes. A promise that was made anew meanwhile
//! is as good as the one that was read.

use super::{Fault, Handled, LockedInSection, Stop, classic, permits, resolve};
use crate::access::Access;
use crate::addr::{PAGE, USER_END, VirtAddr};
use crate::area::AreaView;
use crate::content::{Behind, Content};
use crate::design::Design;
use crate::entry::Entry;
use crate::error::AccessError;
use crate::space::Space;
use crate::system::System;
use crate::translations::leaf_guard::LeafGuard;
use crate::translations::table::Leaf;

/// Handles a fault by the promise of its entry.
pub(crate) fn handle_promised<P: System, D: Design<P>>(
    space: &Space<P, D>,
    fault: Fault,
) -> Result<Handled, AccessError> {
    let result = match attempt(space, fault) {
        // Outside the section, in which nothing is waited for: frames may wait for its end.
        Err(AccessError::OutOfFrames(_)) => {
            space.vm().flush();
            attempt(space, fault)
        }
        result => result,
    };
    result.map(|()| Handled::Speculative)
}

fn attempt<P: System, D: Design<P>>(space: &Space<P, D>, fault: Fault) -> Result<(), AccessError> {
    let _section = space.look();
    let address = fault.address;
    let unmapped = AccessError::NotMapped { address };
    // What lies there may be the embedder's own.
    if address.get() >= USER_END {
        return Err(unmapped);
    }
    let leaf = space.tables().walk(space.memory(), address.get()).ok_or(unmapped)?;
    let seen = leaf.read(space.memory());
    let refuse = |error| refuse::<P>(space.memory(), (leaf, seen), error);
    let Some(view) = space.promised_area(address.page(), seen) else { return refuse(unmapped) };
    let is_refused = !permits(view.flags, fault.access);
    if is_refused && !classic::makes_page(view.flags, fault) {
        return refuse(classic::forbidden(view.flags, fault));
    }
    // A refused fetch makes the page, as a load does.
    let tried = Fault { access: if is_refused { Access::Read } else { fault.access }, ..fault };
    let page = space.page_fault(tried, (view, &Behind::Zeros), (leaf, seen));
    match resolve(&page, &LockedInSection) {
        Err(Stop::Failed(error)) => Err(error),
        Ok(()) | Err(Stop::GiveUp(_) | Stop::Fetch(_)) if is_refused => refuse(classic::forbidden(view.flags, fault)),
        // The lock never gives up, and there is no object.
        Ok(()) | Err(Stop::GiveUp(_) | Stop::Fetch(_)) => Ok(()),
    }
}

/// Refuses an access because of an entry, unless the entry promises something else by the time that nobody changes it:
/// then the access is tried again.
#[cold]
fn refuse<P: System>(
    memory: &P::Frames,
    (leaf, seen): (Leaf<'_, P>, Entry),
    error: AccessError,
) -> Result<(), AccessError> {
    let now = LeafGuard::lock(memory, leaf).entry();
    if now.promised() == seen.promised() { Err(error) } else { Ok(()) }
}

impl<P: System, D: Design<P>> Space<P, D> {
    /// Returns the area that a page's entry promises, of that page alone. All memory of a space has one reverse-map
    /// root.
    pub(crate) fn promised_area(&self, page: VirtAddr, entry: Entry) -> Option<AreaView<P>> {
        let flags = entry.promised()?.into();
        let (start, end, page_offset) = (page, page + PAGE, page.page_number());
        let root = self.id();
        Some(AreaView { start, end, flags, page_offset, object: None, content: Content::Zeros, opening: 0, root })
    }
}
