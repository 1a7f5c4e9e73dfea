//! Where sequences may do what they like: a window, and the first pages of the address space.
//!
//! # Guarantee
//! [`Zone::harm`] is `None` only if a call on the range fails whatever is mapped, or touches nothing outside the zones.

/// Bytes of a page.
pub const PAGE: u64 = 4096;

/// The window's first byte: far from everything that a process maps by itself.
pub const WINDOW: u64 = 0x10_0000_0000;

/// Length of the window: two page tables.
pub const WINDOW_BYTES: u64 = 4 << 20;

/// First address behind the zone at the bottom, where a privileged process may map page 0.
pub const LOW_END: u64 = 0x1_0000;

/// First address that user memory can't have.
pub const USER_END: u64 = 0x7fff_ffff_f000;

/// Where the heap of a sequence begins: inside the window, off a page's start.
pub const HEAP_START: u64 = WINDOW + WINDOW_BYTES / 2 + 64 * PAGE + 0x123;

/// What an operation may do to what does not belong to the sequence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Harm {
    /// Nothing.
    None,
    /// It could reach this address, where the executing process itself lives.
    Reaches(u64),
}

impl Harm {
    /// Returns this harm, or the other one.
    pub fn or(self, other: Self) -> Self {
        if self == Self::None { other } else { self }
    }
}

/// One of the places that belong to a sequence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Zone {
    /// First byte.
    pub start: u64,
    /// First byte behind.
    pub end: u64,
}

impl Zone {
    /// The places that belong to a sequence, ascending.
    pub const ALL: [Self; 2] = [Self { start: 0, end: LOW_END }, Self { start: WINDOW, end: WINDOW + WINDOW_BYTES }];

    /// Returns what a call on a range could reach.
    pub fn harm(start: u64, len_bytes: u64, beyond: Beyond) -> Harm {
        // Lengths are rounded up to pages; ranges that wrap are refused, or empty.
        let len = len_bytes.checked_next_multiple_of(PAGE).filter(|&len| start.checked_add(len).is_some());
        let Some(len) = len else { return Harm::None };
        let last = start + len.saturating_sub(1);
        if start >= USER_END || last >= USER_END && beyond == Beyond::Refused {
            return Harm::None;
        }
        let is_inside = |zone: &Zone| zone.start <= start && last < zone.end;
        if Self::ALL.iter().any(is_inside) {
            return Harm::None;
        }
        let begins_in = Self::ALL.iter().find(|zone| (zone.start..zone.end).contains(&start));
        Harm::Reaches(begins_in.map_or(start, |zone| zone.end))
    }
}

/// What a call does with a range that leaves user memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Beyond {
    /// It refuses it.
    Refused,
    /// It works on the part inside, up to the first hole or to the end.
    Partial,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_that_leave_the_zones_are_harmful_unless_they_leave_user_memory() {
        let last = WINDOW + WINDOW_BYTES - PAGE;
        let (refused, partial) = (Beyond::Refused, Beyond::Partial);
        assert_eq!(Zone::harm(last, PAGE, partial), Harm::None);
        assert_ne!(Zone::harm(last, PAGE + 1, partial), Harm::None);
        assert_ne!(Zone::harm(LOW_END - 1, 2, partial), Harm::None);
        assert_eq!(Zone::harm(last, u64::MAX, partial), Harm::None);
        assert_eq!(Zone::harm(last, 1 << 62, refused), Harm::None);
        assert_ne!(Zone::harm(last, 1 << 62, partial), Harm::None);
        assert_eq!(Zone::harm(USER_END, 1, partial), Harm::None);
        assert_eq!(Zone::harm(u64::MAX, 0, partial), Harm::None);
        assert_ne!(Zone::harm(last, 1 << 46, refused), Harm::None);
    }
}
