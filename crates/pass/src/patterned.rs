//! Recorded programs as if their allocator asked for memory that starts as a byte (`--pattern`).
//!
//! # Guarantee
//! Private anonymous mappings that may be written and are at least as long as the threshold start as the byte, in one
//! of three ways; all else is replayed as recorded. What a program loads from fresh memory is then the byte where it
//! recorded zeros, and a page that is there earlier than it was counts as `populated`: both are what was asked for, not
//! mismatches.
//!
//! An arm's name is the design's with the way behind it: `vma-lock+refpage`.

use faultless_abi::{MapFlags, Prot};
use faultless_plan::memory_calls::Mapping;
use faultless_plan::regions;

/// What an allocator asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Patterned {
    /// The byte.
    pub byte: u8,
    /// The length of the shortest mapping that starts so.
    pub threshold_bytes: u64,
}

/// The length from which on Scudo maps a block by itself, more or less.
pub const DEFAULT_THRESHOLD_BYTES: u64 = 64 << 10;

/// How memory comes to hold the byte.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// The program stores it when the mapping is made.
    Memset,
    /// A reference page.
    Refpage,
    /// A pattern without a page.
    Pattern,
}

impl Way {
    /// All of them, in the order of reports.
    pub const ALL: [Self; 3] = [Self::Memset, Self::Refpage, Self::Pattern];

    const fn name(self) -> &'static str {
        match self {
            Self::Memset => "memset",
            Self::Refpage => "refpage",
            Self::Pattern => "pattern",
        }
    }
}

/// What an arm does to its mappings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Filling {
    /// How.
    pub way: Way,
    /// With what, and which.
    pub what: Patterned,
}

impl Filling {
    /// Returns the word that fresh memory holds.
    pub fn word(self) -> u64 {
        u64::from_ne_bytes([self.what.byte; 8])
    }

    /// Says whether a mapping starts as the byte. Stacks are no allocator's, and what may not be written yet is no
    /// block.
    pub fn covers(self, mapping: &Mapping) -> bool {
        let is_writable = mapping.prot.contains(Prot::WRITE);
        let is_private = mapping.flags & MapFlags::TYPE == MapFlags::PRIVATE;
        let is_stack = mapping.flags.intersects(MapFlags::STACK | MapFlags::GROWSDOWN);
        mapping.backing == regions::Backing::Anonymous
            && is_writable
            && is_private
            && !is_stack
            && mapping.len >= self.what.threshold_bytes
    }
}

/// Returns the names of a design's arms: as it is, and each way.
pub fn arms_of(design: &str) -> Vec<String> {
    let ways = Way::ALL.map(|way| format!("{design}+{}", way.name()));
    std::iter::once(design.to_owned()).chain(ways).collect()
}

/// Returns the design of an arm, and its way if it has one.
pub fn split(arm: &str) -> (&str, Option<Way>) {
    let Some((design, name)) = arm.split_once('+') else { return (arm, None) };
    (design, Way::ALL.into_iter().find(|way| way.name() == name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_arm_is_a_design_and_a_way() {
        assert_eq!(arms_of("spf-v11"), ["spf-v11", "spf-v11+memset", "spf-v11+refpage", "spf-v11+pattern"]);
        assert_eq!(split("spf-v11+refpage"), ("spf-v11", Some(Way::Refpage)));
        assert_eq!(split("spf-v11"), ("spf-v11", None));
    }

    #[test]
    fn blocks_from_the_threshold_on_are_covered() {
        let filling = Filling { way: Way::Refpage, what: Patterned { byte: 0xaa, threshold_bytes: 8192 } };
        let mapping = |len, prot, flags| Mapping {
            place: faultless_plan::memory_calls::Place::Fixed(0),
            len,
            prot: Prot::from_bits_retain(prot),
            flags: MapFlags::from_bits_retain(flags),
            backing: regions::Backing::Anonymous,
            is_locked_on_fault: false,
        };
        assert!(filling.covers(&mapping(8192, 3, 0x22)));
        assert!(!filling.covers(&mapping(4096, 3, 0x22)), "too short");
        assert!(!filling.covers(&mapping(8192, 1, 0x22)), "not to be written");
        assert!(!filling.covers(&mapping(8192, 3, 0x21)), "shared");
        assert!(!filling.covers(&mapping(8192, 3, 0x2_0022)), "a stack");
    }
}
