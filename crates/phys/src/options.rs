//! What a memory is set up with.

use crate::error::SetupError;
use crate::stash;

/// Choices made at set-up.
///
/// ```
/// use faultless_phys::Options;
/// let for_tests = Options { poison: true, refcount_bits: 8, list_high: 4, list_batch: 2 };
/// assert!(!Options::default().poison && for_tests.poison);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// Fills freed frames and objects with a pattern and panics if it changed when they are handed out again. Panics
    /// too if an allocation that may sleep is made inside an RCU section.
    pub poison: bool,
    /// Width of reference counts, 2 to 31: tests narrow it to reach the limit.
    pub refcount_bits: u32,
    /// A CPU's page list gives frames back once it is longer, 2 to 192. Lists of objects are no longer than this
    /// either.
    pub list_high: usize,
    /// How many frames go between a CPU's page list and the buddy allocator at once, 1 to 64 and at most `list_high`.
    pub list_batch: usize,
}

impl Default for Options {
    fn default() -> Self {
        Self::DEFAULT
    }
}

impl Options {
    /// What serves most machines: no poison, counts of 31 bits, lists of 128 frames that move 32 at once.
    pub const DEFAULT: Self = Self { poison: false, refcount_bits: 31, list_high: 128, list_batch: 32 };

    pub(crate) fn check(&self) -> Result<(), SetupError> {
        within("refcount_bits", self.refcount_bits as usize, 2, 31)?;
        within("list_high", self.list_high, 2, stash::HIGH_MAX)?;
        within("list_batch", self.list_batch, 1, stash::BATCH_MAX.min(self.list_high))
    }
}

fn within(name: &'static str, value: usize, least: usize, most: usize) -> Result<(), SetupError> {
    if (least..=most).contains(&value) {
        return Ok(());
    }
    Err(SetupError::BadOption { name, value, least, most })
}
