//! What a frame is, in one word of its metadata.
//!
//! # Word first
//! ```text
//! bits   0-3   kind            0 = Free, so that metadata that nobody touched yet says the truth
//!        4-7   order           of the block that this frame heads
//!          8   listed          heads a block on the buddy allocator's list of that order
//!          9   poisoned        holds the pattern since it was freed
//!         10   deferred        waits for a grace period
//!         11   uncounted       references are not counted
//!      16-20   width           of the reference count, in bits
//! ```
//! listed and poisoned go with kind Free alone; deferred and uncounted never do. A frame within a block that another
//! frame heads has a word without listed; nothing else is said about it.

/// What a frame is used for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Kind {
    /// Nobody's.
    Free = 0,
    /// Anonymous memory of a program.
    Anonymous = 1,
    /// A page of a memory object (the page cache).
    Object = 2,
    /// A node of a page table.
    Table = 3,
    /// Holds objects of a [`Slab`](crate::Slab).
    Slab = 4,
    /// Given out for something else, or not yet said for what.
    Reserved = 5,
    /// A page that several mappings show and none owns: not counted, and never written.
    Reference = 6,
}

impl Kind {
    /// Every kind, in the order of their numbers.
    /// For reports, which count frames by kind.
    pub const ALL: [Self; 7] =
        [Self::Free, Self::Anonymous, Self::Object, Self::Table, Self::Slab, Self::Reserved, Self::Reference];

    fn from_bits(bits: u32) -> Self {
        *Self::ALL.get(bits as usize).unwrap_or(&Self::Reserved)
    }
}

const KIND: u32 = 0xf;
const ORDER_SHIFT: u32 = 4;
const ORDER: u32 = 0xf << ORDER_SHIFT;
const LISTED: u32 = 1 << 8;
const POISONED: u32 = 1 << 9;
const DEFERRED: u32 = 1 << 10;
const UNCOUNTED: u32 = 1 << 11;
const WIDTH_SHIFT: u32 = 16;
const WIDTH: u32 = 0x1f;

/// The word, taken apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct State(pub(crate) u32);

impl State {
    /// A free frame that heads no listed block.
    pub(crate) const FREE: Self = Self(0);

    /// A block just given out, for what isn't said yet, its references counted with `width` bits.
    pub(crate) const fn given(order: u8, width: u32) -> Self {
        Self(Kind::Reserved as u32 | (order as u32) << ORDER_SHIFT | width << WIDTH_SHIFT)
    }

    /// A free frame that heads a block on the list of `order`.
    pub(crate) const fn listed(order: u8) -> Self {
        Self(LISTED | (order as u32) << ORDER_SHIFT)
    }

    pub(crate) fn kind(self) -> Kind {
        Kind::from_bits(self.0 & KIND)
    }

    pub(crate) fn order(self) -> u8 {
        ((self.0 & ORDER) >> ORDER_SHIFT) as u8
    }

    pub(crate) fn is_free(self) -> bool {
        self.0 & KIND == 0
    }

    pub(crate) fn is_listed(self) -> bool {
        self.0 & LISTED != 0
    }

    pub(crate) fn is_listed_at(self, order: u8) -> bool {
        self.0 & !POISONED == Self::listed(order).0
    }

    /// Says whether this heads a block of `order` that is given out and not deferred.
    pub(crate) fn is_in_use(self, order: u8) -> bool {
        !self.is_free() && self.0 & (ORDER | DEFERRED) == u32::from(order) << ORDER_SHIFT
    }

    pub(crate) fn is_poisoned(self) -> bool {
        self.0 & POISONED != 0
    }

    pub(crate) fn is_deferred(self) -> bool {
        self.0 & DEFERRED != 0
    }

    pub(crate) fn is_uncounted(self) -> bool {
        self.0 & UNCOUNTED != 0
    }

    /// The largest number of references that the width can count.
    pub(crate) fn most_references(self) -> u32 {
        (1 << (self.0 >> WIDTH_SHIFT & WIDTH)) - 1
    }

    pub(crate) fn with_kind(self, kind: Kind) -> Self {
        Self(self.0 & !KIND | kind as u32)
    }

    pub(crate) fn with_poison(self) -> Self {
        Self(self.0 | POISONED)
    }

    pub(crate) fn keep_poison(self, of: Self) -> Self {
        Self(self.0 | of.0 & POISONED)
    }

    pub(crate) fn with_deferral(self) -> Self {
        Self(self.0 | DEFERRED)
    }

    pub(crate) fn without_deferral(self) -> Self {
        Self(self.0 & !DEFERRED)
    }

    pub(crate) fn without_counting(self) -> Self {
        Self(self.0 | UNCOUNTED)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_parts_of_a_word_do_not_disturb_each_other() {
        for kind in Kind::ALL {
            for (order, width) in [(0, 31), (10, 2), (3, 8)] {
                let state = State::given(order, width).with_kind(kind).without_counting().with_deferral();
                assert_eq!((state.kind(), state.order()), (kind, order));
                assert_eq!(u64::from(state.most_references()), (1 << width) - 1);
                assert!(state.is_deferred() && state.is_uncounted() && !state.is_listed());
                assert!(!state.without_deferral().is_deferred());
            }
        }
    }

    #[test]
    fn untouched_metadata_is_a_free_frame_on_no_list() {
        let state = State(0);
        assert_eq!(state, State::FREE);
        assert!(state.is_free() && !state.is_listed() && !state.is_listed_at(0));
        assert_eq!(state.most_references(), 0);
        assert!(State::given(4, 9).is_in_use(4) && !State::given(4, 9).is_in_use(0) && !state.is_in_use(0));
        assert!(!State::given(4, 9).with_deferral().is_in_use(4));
        assert!(State::listed(3).with_poison().is_listed_at(3) && !State::listed(3).is_listed_at(2));
    }

    #[test]
    fn a_frame_that_is_given_out_says_for_what_and_in_which_block() {
        for (kind, order) in
            Kind::ALL.into_iter().skip(1).flat_map(|kind| (0..=crate::MAX_ORDER).map(move |at| (kind, at)))
        {
            for width in [2, 3, 16, 31] {
                let plain = State::given(order, width).with_kind(kind);
                let changed =
                    [plain.with_deferral(), plain.without_counting(), plain.with_deferral().without_counting()];
                for state in changed.into_iter().chain([plain]) {
                    assert_eq!((state.kind(), state.order()), (kind, order));
                    assert_eq!(state.most_references(), (1_u32 << width) - 1);
                    assert!(!state.is_free() && !state.is_listed() && !state.is_poisoned());
                    assert!((0..=crate::MAX_ORDER).all(|other| !state.is_listed_at(other)));
                    let is_in_use = |other| state.is_in_use(other);
                    assert!(
                        (0..=crate::MAX_ORDER)
                            .all(|other| is_in_use(other) == (other == order && !state.is_deferred()))
                    );
                }
                let said = |state: State| (state.is_deferred(), state.is_uncounted());
                assert_eq!(said(plain), (false, false));
                assert_eq!(changed.map(said), [(true, false), (false, true), (true, true)]);
                assert_eq!(
                    changed.map(State::without_deferral),
                    [plain, plain.without_counting(), plain.without_counting()]
                );
                assert_eq!(plain.with_kind(Kind::Anonymous).with_kind(Kind::Object).with_kind(kind), plain);
            }
        }
    }

    #[test]
    fn a_frame_that_heads_a_listed_block_says_of_which_order() {
        for order in 0..=crate::MAX_ORDER {
            let listed = State::listed(order);
            for state in [listed, listed.with_poison()] {
                assert!(state.is_free() && state.is_listed() && !state.is_deferred() && !state.is_uncounted());
                assert_eq!(state.order(), order);
                assert!((0..=crate::MAX_ORDER).all(|other| state.is_listed_at(other) == (other == order)));
                assert!((0..=crate::MAX_ORDER).all(|other| !state.is_in_use(other)));
            }
            assert!(listed.with_poison().is_poisoned() && !listed.is_poisoned());
            assert_eq!(listed.with_poison().with_poison(), listed.with_poison());
            // What a frame holds outlives what it heads, and nothing else does.
            let poisoned = State::FREE.with_poison();
            assert_eq!(State::FREE.keep_poison(listed.with_poison()), poisoned);
            assert_eq!(State::FREE.keep_poison(listed), State::FREE);
            assert_eq!(listed.keep_poison(poisoned), listed.with_poison());
            assert_eq!(listed.with_poison().keep_poison(poisoned), listed.with_poison());
        }
        assert!(!State::FREE.is_listed() && !State::FREE.is_listed_at(0) && !State::FREE.is_in_use(0));
    }
}
