//! What fills a page without a page to copy.

/// What fills a page without a page to copy: 1, 2, 4 or 8 bytes, again and again, as the machine stores them.
///
/// ```
/// use faultless_vm::Pattern;
///
/// // What scudo fills freed blocks with.
/// assert_eq!(Pattern::Byte(0xab).word(), 0xabab_abab_abab_abab);
/// assert_eq!(Pattern::Half(0x1234).word(), 0x1234_1234_1234_1234);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pattern {
    /// One byte.
    Byte(u8),
    /// 2 bytes.
    Half(u16),
    /// 4 bytes.
    Word(u32),
    /// 8 bytes.
    Double(u64),
}

impl Pattern {
    /// Returns the 8 bytes that a page repeats.
    pub const fn word(self) -> u64 {
        match self {
            Self::Byte(byte) => u64::from_ne_bytes([byte; 8]),
            Self::Half(half) => half as u64 * 0x0001_0001_0001_0001,
            Self::Word(word) => word as u64 * 0x0000_0001_0000_0001,
            Self::Double(double) => double,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Pattern;

    #[test]
    fn a_pattern_repeats_its_bytes() {
        assert_eq!(Pattern::Byte(0xaa).word(), 0xaaaa_aaaa_aaaa_aaaa);
        assert_eq!(Pattern::Half(0x1234).word(), 0x1234_1234_1234_1234);
        assert_eq!(Pattern::Word(0x1234_5678).word(), 0x1234_5678_1234_5678);
        assert_eq!(Pattern::Double(7).word(), 7);
    }
}
