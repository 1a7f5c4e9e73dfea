//! What an untouched page of an area reads as, and what stands behind an area.
//!
//! # Guarantee
//! What stands behind an area is set when it is made, and never changes. An area with a reference page or a pattern is
//! private anonymous memory in all else: where Linux's answer depends on a file,
//! [`AreaView::has_file`](crate::AreaView::has_file) says so, and
//! [`AreaView::is_reference`](crate::AreaView::is_reference) is the one place that knows a reference area.

use crate::object::ObjectRef;
use crate::pattern::Pattern;
use crate::reference::{Reference, ReferenceRef};
use crate::system::System;
use core::ptr::NonNull;

/// What an untouched page of an area without an object reads as.
/// A fault reads it from [`AreaView::content`](crate::AreaView::content) to make an untouched page.
#[derive(Debug)]
pub enum Content<P: System> {
    /// Zeros.
    Zeros,
    /// What a reference page holds.
    Reference(NonNull<Reference<P>>),
    /// A pattern, of which there is no page before the first access.
    Pattern(Pattern),
}

impl<P: System> Clone for Content<P> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<P: System> Copy for Content<P> {}

impl<P: System> PartialEq for Content<P> {
    fn eq(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Zeros, Self::Zeros) => true,
            (Self::Reference(own), Self::Reference(theirs)) => own == theirs,
            (Self::Pattern(own), Self::Pattern(theirs)) => own == theirs,
            _ => false,
        }
    }
}

impl<P: System> Eq for Content<P> {}

/// What stands behind an area, with the reference to it that the area owns.
#[cfg_attr(feature = "mutants", repr(u64))]
pub(crate) enum Behind<P: System> {
    /// Zeros of its own.
    Zeros,
    /// An object.
    Object(ObjectRef<P>),
    /// A reference page.
    Reference(ReferenceRef<P>),
    /// A pattern.
    Pattern(Pattern),
}

impl<P: System> Behind<P> {
    /// For known bugs that free an area beside a fault that uses it.
    ///
    /// # Panics
    /// If the place holds none of the variants any more, whose use would lead anywhere.
    #[cfg(feature = "mutants")]
    pub(crate) fn check_tag(&self) {
        // SAFETY: the tag comes first, and any value may be read there.
        let tag = unsafe { core::ptr::from_ref(self).cast::<u64>().read_volatile() };
        assert!(tag < 4, "an area was freed beside a fault that uses it");
    }

    /// Returns the object, if one stands there.
    pub(crate) fn object(&self) -> Option<&ObjectRef<P>> {
        if let Self::Object(object) = self { Some(object) } else { None }
    }

    /// Returns what untouched pages read as, if no object does.
    pub(crate) fn content(&self) -> Content<P> {
        match self {
            Self::Zeros | Self::Object(_) => Content::Zeros,
            Self::Reference(reference) => Content::Reference(reference.as_ptr()),
            Self::Pattern(pattern) => Content::Pattern(*pattern),
        }
    }
}

impl<P: System> Clone for Behind<P> {
    fn clone(&self) -> Self {
        match self {
            Self::Zeros => Self::Zeros,
            Self::Object(object) => Self::Object(object.clone()),
            Self::Reference(reference) => Self::Reference(reference.clone()),
            Self::Pattern(pattern) => Self::Pattern(*pattern),
        }
    }
}
