//! Kinds of accesses.

/// What an access does.
///
/// ```
/// use faultless_vm::Access;
///
/// assert!(Access::Write.is_write() && !Access::Fetch.is_write());
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// Loads data.
    Read,
    /// Stores data.
    Write,
    /// Fetches an instruction.
    Fetch,
}

impl Access {
    /// What a known bug makes of a store that took a fault.
    #[cfg(feature = "mutants")]
    pub(crate) const fn without_write(self) -> Self {
        if self.is_write() { Self::Read } else { self }
    }

    /// Says whether it stores.
    pub const fn is_write(self) -> bool {
        matches!(self, Self::Write)
    }
}
