//! The regions of an address space as the trace tells of them: a map from addresses to what is mapped there.
//!
//! # Guarantee
//! Regions are sorted, disjoint and not empty; two neighbours that touch differ in something.
//!
//! ```text
//! AAAA  BBCCC      cut at a boundary:   AAAA  BB C CC
//!                  join what is alike:  AAAA  BB CCC
//! ```

use std::collections::BTreeMap;
use std::ops::Range;

use bitflags::bitflags;
use faultless_abi::Prot;

use super::ids::ObjectIndex;

/// Bytes of a page.
pub const PAGE: u64 = 4096;

/// Returns the first byte of the page that holds `address`.
pub fn page_floor(address: u64) -> u64 {
    address & !(PAGE - 1)
}

/// Returns the first page boundary at or after `address`; the last one for the very last addresses.
pub fn page_ceil(address: u64) -> u64 {
    page_floor(address.saturating_add(PAGE - 1))
}

bitflags! {
    /// What else is known of a region.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
    pub struct Traits: u32 {
        /// It grows towards lower addresses when touched there.
        const GROWS_DOWN = 1;
        /// The kernel may have filled its pages without a fault: populated, locked, or advised to.
        const FILLED = 1 << 1;
        /// Its upper pages hold what exec copied there.
        const ARGUMENTS = 1 << 2;
        /// It may be backed by huge pages.
        const HUGE = 1 << 3;
        /// A child does not get it.
        const DONT_FORK = 1 << 4;
        /// A child gets it empty.
        const WIPE_ON_FORK = 1 << 5;
        /// The kernel may have taken its pages away: freed lazily, paged out, merged.
        const RECLAIMABLE = 1 << 6;
        /// Pages of the kernel's own: the vdso and its data.
        const SPECIAL = 1 << 7;
        /// It is locked in memory.
        const LOCKED = 1 << 8;
        /// It was private and writable at some time, so that the kernel has set memory aside for it: such a region is
        /// not joined with one that never was, whatever their rights are now.
        const ACCOUNTED = 1 << 9;
        /// No memory is set aside for it (`MAP_NORESERVE`).
        const NO_RESERVE = 1 << 10;
        /// It is locked, and its pages are so when they come (`MLOCK_ONFAULT`).
        const ON_FAULT = 1 << 11;
        /// Rights and pages may not be taken from it (`mseal`).
        const SEALED = 1 << 12;
        /// The kernel may drop its pages (`MAP_DROPPABLE`).
        const DROPPABLE = 1 << 13;
        /// Advice that says nothing of its pages, but cuts areas: `MADV_RANDOM`,
        const RANDOM = 1 << 14;
        /// `MADV_SEQUENTIAL`,
        const SEQUENTIAL = 1 << 15;
        /// `MADV_HUGEPAGE`,
        const WANTS_HUGE = 1 << 16;
        /// `MADV_NOHUGEPAGE`,
        const WANTS_SMALL = 1 << 17;
        /// `MADV_DONTDUMP`,
        const DONT_DUMP = 1 << 18;
        /// `MADV_MERGEABLE`.
        const MERGEABLE = 1 << 19;
    }
}

impl Traits {
    /// What is known of pages alone: Linux cuts no area for it.
    const OF_PAGES: Traits = Traits::FILLED.union(Traits::RECLAIMABLE);
    /// All that locking memory sets.
    pub const LOCKS: Traits = Traits::LOCKED.union(Traits::ON_FAULT);
}

/// Whether writes go to the object or to a copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Sharing {
    /// To a copy.
    Private,
    /// To the object, for all to see.
    Shared,
}

/// What stands behind a region.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Backing {
    /// Memory of its own that begins as zeros.
    Anonymous,
    /// An object: a file, or memory that several spaces share.
    Object {
        /// Which.
        object: ObjectIndex,
        /// The object's byte behind the region's first one.
        offset: u64,
        /// Whether writes reach it.
        sharing: Sharing,
    },
}

impl Backing {
    /// Returns whether stores reach an object.
    pub fn is_shared_object(self) -> bool {
        matches!(self, Self::Object { sharing: Sharing::Shared, .. })
    }

    /// Returns the backing as seen `bytes` further on.
    pub fn advanced(self, bytes: u64) -> Self {
        match self {
            Backing::Anonymous => self,
            Backing::Object { object, offset, sharing } => {
                Backing::Object { object, offset: offset.wrapping_add(bytes), sharing }
            }
        }
    }
}

/// One mapping.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Region {
    /// The first byte.
    pub start: u64,
    /// The byte behind the last one.
    pub end: u64,
    /// What it allows: `READ`, `WRITE`, `EXEC`, nothing else.
    pub prot: Prot,
    /// What stands behind it.
    pub backing: Backing,
    /// What else is known.
    pub traits: Traits,
    /// Pages whose last fault is older than this step are not there: a fork left them out.
    pub fresh_since: u32,
    /// Whether a store has made pages of its own here, or guards were put there, so that a fork copies its tables.
    pub root: Root,
}

/// Whether an area has a reverse-map root, or guards, which count as much at a fork; one that is joined with another
/// has what either has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Root {
    /// It has none.
    #[default]
    Absent,
    /// A store gave it one that may have come later, or met another area.
    Uncertain,
    /// It has one.
    Present,
}

impl Region {
    /// Returns whether its pages are the space's own from the beginning, and begin as zeros.
    pub fn is_private_anonymous(&self) -> bool {
        self.backing == Backing::Anonymous && !self.traits.contains(Traits::SPECIAL)
    }

    /// Returns whether the hardware lets `access` through: on x86-64 whatever can be used can be read.
    pub fn allows(&self, access: faultless_trace::Access) -> bool {
        match access {
            faultless_trace::Access::Read => !self.prot.is_empty(),
            faultless_trace::Access::Write => self.prot.contains(Prot::WRITE),
            faultless_trace::Access::Fetch => self.prot.contains(Prot::EXEC),
        }
    }

    fn tail_from(&self, start: u64) -> Region {
        Region { start, backing: self.backing.advanced(start - self.start), ..*self }
    }

    /// Returns whether `next` is more of the same; as in Linux a root spreads to the neighbour that has none.
    fn continues_in(&self, next: &Region) -> bool {
        let expected = self.tail_from(self.end);
        self.end == next.start && *next == Region { end: next.end, root: next.root, ..expected }
    }

    /// Returns whether Linux has this and `next` in one area.
    fn is_one_area_with(&self, next: &Region) -> bool {
        let traits = |region: &Region| region.traits - Traits::OF_PAGES;
        let as_this = Region { traits: self.traits, fresh_since: self.fresh_since, ..*next };
        traits(self) == traits(next) && self.continues_in(&as_this)
    }
}

/// All regions of a space.
#[derive(Clone, Debug, Default)]
pub struct Regions {
    by_start: BTreeMap<u64, Region>,
}

impl Regions {
    /// Returns the region that holds `address`.
    pub fn find(&self, address: u64) -> Option<&Region> {
        let (_, region) = self.by_start.range(..=address).next_back()?;
        (address < region.end).then_some(region)
    }

    /// Notes that the area that holds `address` has pages of its own.
    pub fn give_root(&mut self, address: u64, root: Root) {
        let holder = self.by_start.range_mut(..=address).next_back();
        let Some((_, region)) = holder.filter(|(_, region)| address < region.end && region.root < root) else { return };
        region.root = root;
        let start = region.start;
        self.spread_root(start);
    }

    /// Gives the area of the region that begins at `start` the root that any of its regions has.
    fn spread_root(&mut self, start: u64) {
        let joined = |(one, next): (&Region, &Region)| one.is_one_area_with(next);
        let below = self.by_start.range(..=start).rev().map(|(_, region)| region);
        let first = below.clone().skip(1).zip(below).take_while(|&pair| joined(pair)).last();
        let first = first.map_or(start, |(region, _)| region.start);
        let above = self.by_start.range(first..).map(|(_, region)| region);
        let last = above.clone().zip(above.skip(1)).take_while(|&pair| joined(pair)).last();
        let last = last.map_or(first, |(_, region)| region.start);
        let root = self.by_start.range(first..=last).map(|(_, region)| region.root).max().unwrap_or_default();
        self.by_start.range_mut(first..=last).for_each(|(_, region)| region.root = root);
    }

    /// Returns the first region that ends after `address`.
    pub fn at_or_after(&self, address: u64) -> Option<&Region> {
        self.find(address).or_else(|| self.by_start.range(address..).next().map(|(_, region)| region))
    }

    /// Returns the last region that ends at or before `address`.
    pub fn before(&self, address: u64) -> Option<&Region> {
        self.by_start.range(..address).next_back().map(|(_, region)| region).filter(|region| region.end <= address)
    }

    /// Visits the regions that overlap the range, whole.
    pub fn overlapping(&self, range: Range<u64>) -> impl Iterator<Item = &Region> {
        let first = self.find(range.start).map_or(range.start, |region| region.start);
        self.by_start.range(first..range.end.max(first)).map(|(_, region)| region)
    }

    /// Returns a region as far as its area goes within a range.
    pub fn area_of(&self, region: &Region, within: &Range<u64>) -> Region {
        let mut area = *region;
        while let Some(next) = self.find(area.end).filter(|next| area.end < within.end && area.is_one_area_with(next)) {
            area.end = next.end;
        }
        while area.start > within.start {
            let Some(before) = self.before(area.start).filter(|before| before.is_one_area_with(&area)) else { break };
            (area.start, area.backing) = (before.start, before.backing);
        }
        area
    }

    /// Returns how many there are.
    pub fn count(&self) -> usize {
        self.by_start.len()
    }

    /// Visits all regions, ascending.
    pub fn iter(&self) -> impl Iterator<Item = &Region> {
        self.by_start.values()
    }

    /// Returns a range with the whole of the regions that overlap or touch it.
    pub fn with_neighbours(&self, range: &Range<u64>) -> Range<u64> {
        let first = self.find(range.start.saturating_sub(1)).or_else(|| self.find(range.start));
        let last = self.find(range.end).or_else(|| self.find(range.end.saturating_sub(1)));
        let (start, end) = (first.map_or(range.start, |first| first.start), last.map_or(range.end, |last| last.end));
        start.min(range.start)..end.max(range.end)
    }

    /// Returns where the first hole in the range begins, if there is one.
    pub fn first_hole(&self, range: Range<u64>) -> Option<u64> {
        let mut reached = range.start;
        for region in self.overlapping(range.clone()) {
            if region.start > reached {
                break;
            }
            reached = region.end;
        }
        (reached < range.end).then_some(reached)
    }

    /// Returns where the first region in the range begins, or the range inside it, that nobody may access.
    pub fn first_barred(&self, range: &Range<u64>) -> Option<u64> {
        let barred = self.overlapping(range.clone()).find(|region| region.prot.is_empty());
        barred.map(|region| region.start.max(range.start))
    }

    /// Maps a region over whatever was there.
    pub fn insert(&mut self, region: Region) {
        if region.start >= region.end {
            return;
        }
        self.remove(region.start..region.end);
        self.by_start.insert(region.start, region);
        self.join_around(region.start..region.end);
    }

    /// Takes the range away.
    pub fn remove(&mut self, range: Range<u64>) {
        drop(self.take(range));
    }

    /// Takes the range away; returns what was there, cut to it.
    pub fn take(&mut self, range: Range<u64>) -> Vec<Region> {
        self.cut(range.start);
        self.cut(range.end);
        let starts: Vec<u64> =
            self.by_start.range(range.start..range.end.max(range.start)).map(|(&at, _)| at).collect();
        starts.iter().filter_map(|start| self.by_start.remove(start)).collect()
    }

    /// Changes what is mapped in the range, region by region.
    pub fn change(&mut self, range: Range<u64>, mut change: impl FnMut(&mut Region)) {
        self.cut(range.start);
        self.cut(range.end);
        for (_, region) in self.by_start.range_mut(range.start..range.end.max(range.start)) {
            change(region);
        }
        self.join_around(range);
    }

    /// Changes every region; whatever `change` refuses goes away.
    pub fn retain(&mut self, mut change: impl FnMut(&mut Region) -> bool) {
        self.by_start.retain(|_, region| change(region));
    }

    /// Lets the region that begins at `start` begin at `lower`.
    pub fn grow_down(&mut self, start: u64, lower: u64) {
        if let Some(region) = self.by_start.remove(&start) {
            self.by_start.insert(lower, Region { start: lower, ..region });
        }
    }

    /// Makes `at` a boundary.
    fn cut(&mut self, at: u64) {
        let Some((_, region)) = self.by_start.range_mut(..at).next_back() else { return };
        if region.end > at {
            let tail = region.tail_from(at);
            region.end = at;
            self.by_start.insert(at, tail);
        }
    }

    /// Joins what is alike, from the region before the range to the one behind it.
    fn join_around(&mut self, range: Range<u64>) {
        let first = self.by_start.range(..range.start).next_back().map_or(range.start, |(&start, _)| start);
        let mut starts: Vec<u64> =
            self.by_start.range(first..=range.end.max(range.start)).map(|(&start, _)| start).collect();
        let mut kept = starts.drain(..1.min(starts.len())).next();
        for start in starts {
            let (lower, upper) = (kept.unwrap_or(start), self.join(kept.unwrap_or(start), start));
            let is_alike = |one: &Region, next: &Region| one.root != next.root && one.is_one_area_with(next);
            let pair = self.by_start.get(&lower).zip(self.by_start.get(&upper));
            if pair.is_some_and(|(one, next)| is_alike(one, next)) {
                self.spread_root(upper);
            }
            kept = Some(upper);
        }
    }

    /// Joins two neighbours if they are alike; returns where the latter's bytes now belong.
    fn join(&mut self, lower: u64, upper: u64) -> u64 {
        let (Some(&first), Some(&second)) = (self.by_start.get(&lower), self.by_start.get(&upper)) else {
            return upper;
        };
        if !first.continues_in(&second) {
            return upper;
        }
        self.by_start.remove(&upper);
        let root = first.root.max(second.root);
        self.by_start.insert(lower, Region { end: second.end, root, ..first });
        lower
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fmt::Write;

    /// Maps a drawing: one letter a page, the same letter the same region, a space a hole.
    fn drawn(drawing: &str) -> Regions {
        let mut regions = Regions::default();
        for (page, letter) in drawing.chars().enumerate().filter(|&(_, letter)| letter != ' ') {
            regions.insert(page_of(page as u64, letter));
        }
        regions
    }

    fn page_of(page: u64, letter: char) -> Region {
        let prot = Prot::from_bits_retain(u64::from(letter as u8 - b'a'));
        let backing = Backing::Anonymous;
        let (start, end) = (page * PAGE, (page + 1) * PAGE);
        Region { start, end, prot, backing, traits: Traits::empty(), fresh_since: 0, root: Root::Absent }
    }

    fn draw(regions: &Regions) -> String {
        regions.iter().fold(String::new(), |mut drawing, region| {
            let letter = char::from(b'a' + region.prot.bits() as u8);
            let _ = write!(drawing, "{letter}{}-{} ", region.start / PAGE, region.end / PAGE);
            drawing
        })
    }

    #[test]
    fn alike_neighbours_are_one_region() {
        assert_eq!(draw(&drawn("aab aa")), "a0-2 b2-3 a4-6 ");
        let mut regions = drawn("aabaa");
        regions.change(2 * PAGE..3 * PAGE, |region| region.prot = Prot::empty());
        assert_eq!(draw(&regions), "a0-5 ");
    }

    #[test]
    fn an_area_goes_as_far_as_only_pages_differ() {
        let mut regions = drawn("aaaaaaaab");
        regions.change(2 * PAGE..3 * PAGE, |region| region.traits |= Traits::RECLAIMABLE);
        regions.change(5 * PAGE..6 * PAGE, |region| region.traits |= Traits::FILLED);
        regions.change(6 * PAGE..7 * PAGE, |region| region.fresh_since = 7);
        let area_at = |regions: &Regions, page: u64, within: Range<u64>| {
            let region = *regions.find(page * PAGE).expect("mapped");
            let area = regions.area_of(&region, &(within.start * PAGE..within.end * PAGE));
            (area.start / PAGE, area.end / PAGE)
        };
        assert_eq!(regions.count(), 7);
        assert_eq!(area_at(&regions, 4, 0..512), (0, 8));
        assert_eq!(area_at(&regions, 2, 3..4), (2, 5), "no further than what is asked for, by whole regions");
        regions.change(3 * PAGE..4 * PAGE, |region| region.traits |= Traits::LOCKED);
        assert_eq!(area_at(&regions, 4, 0..512), (4, 8));
        assert_eq!(area_at(&regions, 0, 0..512), (0, 3));
    }

    #[test]
    fn a_range_in_the_middle_is_taken_and_reported() {
        let mut regions = drawn("aaabbb");
        let taken = regions.take(2 * PAGE..5 * PAGE);
        assert_eq!(taken.len(), 2);
        assert_eq!(draw(&regions), "a0-2 b5-6 ");
        assert_eq!(regions.first_hole(0..6 * PAGE), Some(2 * PAGE));
        assert_eq!(regions.first_hole(0..2 * PAGE), None);
        assert_eq!(regions.at_or_after(3 * PAGE).map(|region| region.start), Some(5 * PAGE));
        assert_eq!(regions.before(4 * PAGE).map(|region| region.end), Some(2 * PAGE));
    }

    #[test]
    fn a_files_offset_goes_with_the_cut() {
        let backing = Backing::Object { object: 3, offset: 8 * PAGE, sharing: Sharing::Private };
        let mut regions = Regions::default();
        regions.insert(Region { end: 4 * PAGE, backing, ..page_of(0, 'b') });
        regions.remove(PAGE..2 * PAGE);
        let last = regions.find(3 * PAGE).expect("the tail is mapped");
        assert_eq!(last.backing, Backing::Object { object: 3, offset: 10 * PAGE, sharing: Sharing::Private });
        regions.insert(Region { start: PAGE, end: 2 * PAGE, backing: backing.advanced(PAGE), ..page_of(1, 'b') });
        assert_eq!(regions.iter().count(), 1);
    }

    #[test]
    fn empty_and_reversed_ranges_change_nothing() {
        let mut regions = drawn("aa");
        #[expect(clippy::reversed_empty_ranges, reason = "the case under test")]
        regions.change(PAGE..0, |region| region.prot = Prot::RIGHTS);
        regions.insert(Region { end: 0, ..page_of(1, 'b') });
        assert_eq!(draw(&regions), "a0-2 ");
    }
}
