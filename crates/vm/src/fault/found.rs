//! A fault whose area and entry are found, with what the space's design says about entries.

use super::{EntryRules, Fault, PageFault};
use crate::content::Behind;
use crate::design::{Design, Map};
use crate::entry::Entry;
use crate::space::Space;
use crate::system::System;
use crate::translations::table::Leaf;
use crate::view::AreaView;

impl<P: System, D: Design<P>> Space<P, D> {
    /// Returns a fault on a page of the area `view`, behind which is `behind`; its entry is `leaf`, and held `seen`
    /// when the walk ended.
    #[inline]
    pub(crate) fn page_fault<'a>(
        &'a self,
        fault: Fault,
        (view, behind): (AreaView<P>, &'a Behind<P>),
        (leaf, seen): (Leaf<'a, P>, Entry),
    ) -> PageFault<'a, P> {
        let rules = EntryRules { fills_freely: D::FILLS_FREELY, promises: D::Map::PROMISES };
        PageFault { translations: &self.translations, rules, view, behind, fault, leaf, seen }
    }
}
