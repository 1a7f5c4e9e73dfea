//! What a space counts.
//!
//! # Guarantee
//! Each quantity has a counter by its number, below [`NR_QUANTITIES`].

/// How many quantities there are.
pub(crate) const NR_QUANTITIES: usize = 4;

/// See the module.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Quantity {
    /// Areas (map_count).
    Areas,
    /// Bytes of all areas.
    Bytes,
    /// Bytes of private writable areas but stacks.
    DataBytes,
    /// Bytes of locked areas.
    LockedBytes,
}

impl Quantity {
    pub(super) const ALL: [Self; NR_QUANTITIES] = [Self::Areas, Self::Bytes, Self::DataBytes, Self::LockedBytes];
}
