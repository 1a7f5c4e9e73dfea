//! What an entry promises: memory that is there without an area.
//!
//! # Guarantee
//! A promise is said by bits that the hardware ignores. It stays when a page comes and when the page goes again, until
//! a map call takes it away, so that the entry alone says what a fault may do. Only entries of a space whose design
//! has a [`Map`](crate::design::Map) of promises have one.

use crate::asked::Protection;
use crate::entry::{Entry, EntryFlags};

/// The bits of a promise. That fetches are forbidden is said by the hardware's own bit, with or without a page.
const PROMISE: EntryFlags =
    EntryFlags::PROMISED.union(EntryFlags::MAY_READ).union(EntryFlags::MAY_WRITE).union(EntryFlags::NO_EXECUTE);

/// What stands in an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// Nothing.
    Unmapped,
    /// No page yet, but a fault may make one.
    Promised,
    /// A page, whether its rights let the hardware use it or not.
    Page,
    /// No page, and an access is a bad one.
    Guard,
}

impl Entry {
    /// Returns the entry of untouched memory with these rights; a key is left out.
    pub fn promise(rights: Protection) -> Self {
        let mut flags = EntryFlags::PROMISED;
        flags.set(EntryFlags::MAY_READ, rights.contains(Protection::READ));
        flags.set(EntryFlags::MAY_WRITE, rights.contains(Protection::WRITE));
        flags.set(EntryFlags::NO_EXECUTE, !rights.contains(Protection::EXEC));
        Self::from_bits(flags.bits())
    }

    /// Returns the rights that are promised here, if any memory is.
    pub fn promised(self) -> Option<Protection> {
        if !self.has(EntryFlags::PROMISED) {
            return None;
        }
        let mut rights = Protection::empty();
        rights.set(Protection::READ, self.has(EntryFlags::MAY_READ));
        rights.set(Protection::WRITE, self.has(EntryFlags::MAY_WRITE));
        rights.set(Protection::EXEC, !self.has(EntryFlags::NO_EXECUTE));
        Some(rights)
    }

    /// Returns the entry with other rights promised. A page stays, with those of them that it may have at once: stores
    /// to one that is not known to be the space's own alone take a fault.
    pub fn promising(self, rights: Protection) -> Self {
        let promise = Self::promise(rights);
        if self.state() != State::Page {
            return promise;
        }
        let is_writable = rights.contains(Protection::WRITE) && self.has(EntryFlags::EXCLUSIVE);
        let mut flags = promise.flags();
        flags.set(EntryFlags::PRESENT, !rights.is_empty());
        flags.set(EntryFlags::WRITE, is_writable);
        // A page that may be stored to without a fault counts as stored to.
        let kept = if is_writable { self.without(EntryFlags::COLLECTED) } else { self };
        kept.without(PROMISE | EntryFlags::PRESENT | EntryFlags::WRITE).with(flags)
    }

    /// Returns the entry's promise without its page; the empty entry if there is none.
    #[inline]
    pub(crate) fn promise_alone(self) -> Self {
        if self.has(EntryFlags::PROMISED) { Self::from_bits(self.bits() & PROMISE.bits()) } else { Self::EMPTY }
    }

    /// Returns what stands here.
    pub fn state(self) -> State {
        match () {
            () if self.is_empty() => State::Unmapped,
            () if self.is_guard() => State::Guard,
            () if self.is_vacant() => State::Promised,
            () => State::Page,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use faultless_phys::Pfn;

    /// Every set of rights.
    fn all_rights() -> impl Iterator<Item = Protection> {
        (0..8).map(Protection::from_bits_truncate)
    }

    #[test]
    fn a_promise_says_its_rights_and_holds_no_frame() {
        for rights in all_rights() {
            let entry = Entry::promise(rights | Protection::EXECUTE_ONLY);
            assert_eq!((entry.promised(), entry.state()), (Some(rights), State::Promised));
            assert!(!entry.is_present() && !entry.holds_frame() && !entry.is_empty());
        }
        assert_eq!((Entry::EMPTY.promised(), Entry::EMPTY.state()), (None, State::Unmapped));
        assert_eq!((Entry::GUARD.promised(), Entry::GUARD.state()), (None, State::Guard));
    }

    #[test]
    fn a_page_keeps_its_promise_and_gets_the_rights_that_it_may_have() {
        let flags = EntryFlags::PRESENT | EntryFlags::USER | EntryFlags::ACCESSED;
        let page = Entry::new(Pfn::new(7), flags | EntryFlags::PROMISED);
        for rights in all_rights() {
            for own in [EntryFlags::empty(), EntryFlags::EXCLUSIVE | EntryFlags::COLLECTED] {
                let entry = page.with(own).promising(rights);
                assert_eq!((entry.promised(), entry.state(), entry.pfn()), (Some(rights), State::Page, Pfn::new(7)));
                assert_eq!(entry.is_present(), !rights.is_empty());
                assert_eq!(entry.is_writable(), rights.contains(Protection::WRITE) && !own.is_empty());
                assert!(!(entry.is_writable() && entry.has(EntryFlags::COLLECTED)));
                assert_eq!(entry.promise_alone(), Entry::promise(rights));
            }
        }
    }
}
