//! Formats of page tables: how the hardware writes what an [`Entry`] says.
//!
//! # Guarantee
//! All of this crate works on [`Entry`]s; only here and in `slot` are they turned into the hardware's words and back.
//! [`X86_64`] is the layout that `Entry` itself has, so that it costs nothing; [`Ept`] is the second stage of Intel's
//! virtual machines. A format of an embedder's own implements [`TableFormat`] and is held to it by [`check_format`].

use crate::entry::{Entry, EntryFlags};
use faultless_phys::Pfn;

/// How the hardware writes entries.
///
/// Tables have 512 entries of 8 bytes, one page of 4 KiB each; levels are counted from the leaf, 1, to the root.
///
/// # Safety
/// Obligations of an implementation, for each entry that this crate makes: any flags, but `EXECUTE_ONLY` with
/// `NO_EXECUTE`:
/// * T1 `encode(Entry::EMPTY)` is 0, and `decode(0)` is `Entry::EMPTY`.
/// * T2 `decode(encode(entry))` is `entry`.
/// * T3 the hardware uses `encode(entry)` if and only if the entry is present: for loads unless `EXECUTE_ONLY`, for
///   stores if `WRITE`, for fetches unless `NO_EXECUTE`; and then it reaches `entry.pfn().address()`.
/// * T4 the hardware changes nothing in an entry but that it sets what `decode` shows as `ACCESSED` and `DIRTY`.
/// * T5 the hardware walks from an upper entry `table(pfn)` to the table at `pfn.address()`, for all accesses;
///   `decode(table(pfn))` is present, with `pfn`.
/// * T6 `encode(entry) & !USED` is `encode` of the entry without `ACCESSED` and `DIRTY`.
/// * T7 if `SHARES_TABLES`: by an upper entry `shared_table(pfn)` the hardware walks as by `table(pfn)`, and allows no
///   store, whatever the entries below say; `decode(shared_table(pfn))` is present, with `pfn` and without `WRITE`, and
///   `decode(table(pfn))` has `WRITE`.
///
/// # Who calls what
/// | callers | functions |
/// |---|---|
/// | every load and store of a leaf entry | `decode`, `encode` |
/// | whoever links a table in | `table` |
/// | fork, where a design shares tables, and whoever gets one of his own then | `shared_table`, where `SHARES_TABLES` holds |
/// | compare-and-swaps beside the hardware, which sets these bits | `USED` |
/// | a walk, from the root | `LEVELS` |
///
/// ```
/// use faultless_phys::Pfn;
/// use faultless_vm::{Ept, Entry, EntryFlags, TableFormat, X86_64, check_format};
///
/// let entry = Entry::new(Pfn::new(3), EntryFlags::PRESENT | EntryFlags::WRITE | EntryFlags::NO_EXECUTE);
/// assert_eq!(X86_64::encode(entry), entry.bits());
/// // EPT: read and write in bits 0 and 1, memory type 6 in bits 3 to 5.
/// assert_eq!(Ept::encode(entry) & 0b111, 0b011);
/// assert_eq!(Ept::decode(Ept::encode(entry)), entry);
/// assert_eq!((Ept::LEVELS, Ept::decode(0)), (4, Entry::EMPTY));
/// assert!(Ept::decode(Ept::table(Pfn::new(9))).is_present() && X86_64::USED != 0);
/// // What an embedder's test of its own format calls.
/// check_format::<Ept>(&[Pfn::new(1), Pfn::new(0xf_ffff)]);
/// ```
pub unsafe trait TableFormat: Send + Sync + 'static {
    /// The level of a space's root: 4 or 5.
    const LEVELS: u32;
    /// The bits of `ACCESSED` and `DIRTY`.
    const USED: u64;
    /// Returns the word for a leaf entry.
    fn encode(entry: Entry) -> u64;
    /// Returns what a word says.
    fn decode(bits: u64) -> Entry;
    /// Returns the word for an upper entry.
    fn table(table: Pfn) -> u64;

    /// Whether an upper entry can forbid stores to all that lies below it. Otherwise fork copies every table.
    const SHARES_TABLES: bool = false;
    /// Returns the word for an upper entry through which nothing is stored.
    fn shared_table(table: Pfn) -> u64 {
        Self::table(table)
    }
}

/// The processor's own tables, four levels (Intel SDM volume 3A, section 4.5; AMD APM volume 2, section 5.3).
///
/// Execute-only memory is protection key 1, whose loads and stores the embedder forbids in PKRU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct X86_64;

// SAFETY: `Entry` has this layout (see `entry`).
unsafe impl TableFormat for X86_64 {
    const LEVELS: u32 = 4;
    const USED: u64 = EntryFlags::ACCESSED.union(EntryFlags::DIRTY).bits();

    #[inline(always)]
    fn encode(entry: Entry) -> u64 {
        entry.bits()
    }

    #[inline(always)]
    fn decode(bits: u64) -> Entry {
        Entry::from_bits(bits)
    }

    #[inline(always)]
    fn table(table: Pfn) -> u64 {
        Entry::table(table).bits()
    }

    /// A store needs the right at every level (section 4.6).
    const SHARES_TABLES: bool = true;

    fn shared_table(table: Pfn) -> u64 {
        Entry::table(table).without(EntryFlags::WRITE).bits()
    }
}

/// Intel's extended page tables, four levels: guest-physical memory of a virtual machine (Intel SDM volume 3C, section
/// "The Extended Page Table Mechanism").
///
/// Reading, writing and executing are three independent bits, there is no user bit, and memory is write-back. The
/// processor sets accessed and dirty bits if bit 6 of the EPT pointer asks for it: set it.
///
/// # Word first
/// ```text
/// bits 0 R, 1 W, 2 X     3-5 memory type (6)     8 accessed     9 dirty     12-51 frame
/// ignored by the hardware: 10 user, 11 guard, 52 special, 53 exclusive, 54 may write, 55 no execute, 56 execute only,
/// 59 not written, 62 promised; and with the features that give them a meaning off: 57 and 58 promised to read, to write,
/// 61 (sub-page write permissions) a memory object's page
/// ```
/// Bits 54 to 56 say what R, W and X would say, for entries that hold a frame and are not present.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ept;

impl Ept {
    const READ: u64 = 1 << 0;
    const WRITE: u64 = 1 << 1;
    const EXECUTE: u64 = 1 << 2;
    const WRITE_BACK: u64 = 6 << 3;
    const FRAME: u64 = 0x000f_ffff_ffff_f000;
    /// What `WRITE` says of entries that are not present, too.
    const SOFT_WRITE: u64 = 1 << 54;

    /// Where each flag stands that is one bit here, too.
    const BITS: [(EntryFlags, u64); 14] = [
        (EntryFlags::ACCESSED, 1 << 8),
        (EntryFlags::DIRTY, 1 << 9),
        (EntryFlags::USER, 1 << 10),
        (EntryFlags::GUARD, 1 << 11),
        (EntryFlags::SPECIAL, 1 << 52),
        (EntryFlags::EXCLUSIVE, 1 << 53),
        (EntryFlags::WRITE, Self::SOFT_WRITE),
        (EntryFlags::NO_EXECUTE, 1 << 55),
        (EntryFlags::EXECUTE_ONLY, 1 << 56),
        (EntryFlags::COLLECTED, 1 << 59),
        (EntryFlags::OBJECT, 1 << 61),
        (EntryFlags::PROMISED, 1 << 62),
        (EntryFlags::MAY_READ, 1 << 57),
        (EntryFlags::MAY_WRITE, 1 << 58),
    ];

    /// Returns R, W, X and the memory type.
    fn rights(entry: Entry) -> u64 {
        let bit = |is_set: bool, bit: u64| if is_set { bit } else { 0 };
        bit(!entry.has(EntryFlags::EXECUTE_ONLY), Self::READ)
            | bit(entry.has(EntryFlags::WRITE) && !entry.has(EntryFlags::EXECUTE_ONLY), Self::WRITE)
            | bit(!entry.has(EntryFlags::NO_EXECUTE), Self::EXECUTE)
            | Self::WRITE_BACK
    }
}

// SAFETY: as the manual says; `tests` and `embed/hypervisor`, which has a walker of its own, check it.
unsafe impl TableFormat for Ept {
    const LEVELS: u32 = 4;
    const USED: u64 = 3 << 8;

    #[inline]
    fn encode(entry: Entry) -> u64 {
        let soft = Self::BITS.iter().filter(|(flag, _)| entry.has(*flag)).map(|(_, bit)| bit).sum::<u64>();
        let hard = if entry.is_present() { Self::rights(entry) } else { 0 };
        entry.bits() & Self::FRAME | soft | hard
    }

    #[inline]
    fn decode(bits: u64) -> Entry {
        let is_present = bits & (Self::READ | Self::WRITE | Self::EXECUTE) != 0;
        let mut flags = if is_present { EntryFlags::PRESENT } else { EntryFlags::empty() };
        for (flag, bit) in Self::BITS {
            flags.set(flag, bits & bit != 0);
        }
        Entry::from_bits(bits & Self::FRAME | flags.bits())
    }

    fn table(table: Pfn) -> u64 {
        table.address().get() | Self::READ | Self::WRITE | Self::EXECUTE | Self::SOFT_WRITE
    }

    /// A write needs the right at every level. Bits 52 to 62 of an entry that refers to a table are ignored.
    const SHARES_TABLES: bool = true;

    fn shared_table(table: Pfn) -> u64 {
        table.address().get() | Self::READ | Self::EXECUTE
    }
}

/// Checks a format against those of [`TableFormat`]'s obligations that don't need the hardware: T1, T2, T5, T6 and
/// T7, for every set of flags and the frames `frames`.
///
/// # Panics
/// At the first that is broken, with the entry.
///
/// ```
/// use faultless_phys::Pfn;
/// use faultless_vm::{Ept, X86_64, check_format};
///
/// check_format::<X86_64>(&[Pfn::new(1), Pfn::new(0x1234_5678)]);
/// check_format::<Ept>(&[Pfn::new(1), Pfn::new(0x1234_5678)]);
/// ```
pub fn check_format<T: TableFormat>(frames: &[Pfn]) {
    const { assert!(T::LEVELS == 4 || T::LEVELS == 5, "a space has four or five levels") };
    assert!(T::encode(Entry::EMPTY) == 0 && T::decode(0) == Entry::EMPTY, "T1: the empty entry is not 0");
    for &pfn in frames {
        let upper = T::decode(T::table(pfn));
        assert!(upper.is_present() && upper.pfn() == pfn, "T5: an upper entry for {pfn} is decoded as {upper:?}");
        if T::SHARES_TABLES {
            let shared = T::decode(T::shared_table(pfn));
            assert!(upper.is_writable(), "T7: an upper entry for {pfn} is decoded as {upper:?}, without WRITE");
            let is_right = shared.is_present() && shared.pfn() == pfn && !shared.is_writable();
            assert!(is_right, "T7: a shared upper entry for {pfn} is decoded as {shared:?}");
        }
        each_set(|flags| check_entry::<T>(Entry::new(pfn, flags)));
    }
    check_entry::<T>(Entry::GUARD);
}

fn check_entry<T: TableFormat>(entry: Entry) {
    let bits = T::encode(entry);
    let back = T::decode(bits);
    assert!(back == entry, "T2: {entry:?} is written as {bits:#x} and read as {back:?}");
    let unused = T::encode(entry.without(EntryFlags::ACCESSED | EntryFlags::DIRTY));
    assert!(bits & !T::USED == unused, "T6: {bits:#x} without its used bits is not {unused:#x}");
}

/// Visits every set of flags that an entry may have.
fn each_set(mut visit: impl FnMut(EntryFlags)) {
    let all = EntryFlags::all().bits();
    let mut set = all;
    loop {
        let flags = EntryFlags::from_bits_truncate(set);
        if !flags.contains(EntryFlags::EXECUTE_ONLY | EntryFlags::NO_EXECUTE) {
            visit(flags);
        }
        if set == 0 {
            return;
        }
        set = (set - 1) & all;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ept(flags: EntryFlags) -> u64 {
        Ept::encode(Entry::new(Pfn::new(7), flags))
    }

    #[test]
    fn ept_has_three_independent_rights() {
        let present = EntryFlags::PRESENT | EntryFlags::USER;
        let rights = |flags| ept(flags) & 7;
        assert_eq!(rights(present), 0b101);
        assert_eq!(rights(present | EntryFlags::NO_EXECUTE), 0b001);
        assert_eq!(rights(present | EntryFlags::WRITE | EntryFlags::NO_EXECUTE), 0b011);
        assert_eq!(rights(present | EntryFlags::EXECUTE_ONLY), 0b100);
        assert_eq!(rights(EntryFlags::WRITE), 0, "an entry that is not present allows nothing");
        assert_eq!(ept(present) & Ept::FRAME, 7 << 12);
        assert_eq!(ept(present) >> 3 & 7, 6, "write-back");
    }

    #[test]
    fn both_formats_keep_their_obligations() {
        check_format::<X86_64>(&[Pfn::new(1), Pfn::new(u32::MAX - 1)]);
        check_format::<Ept>(&[Pfn::new(1), Pfn::new(u32::MAX - 1)]);
    }

    /// Loses a software bit.
    struct Forgetful;

    // SAFETY: never walked.
    unsafe impl TableFormat for Forgetful {
        const LEVELS: u32 = 4;
        const USED: u64 = X86_64::USED;
        fn encode(entry: Entry) -> u64 {
            entry.without(EntryFlags::EXCLUSIVE).bits()
        }
        fn decode(bits: u64) -> Entry {
            Entry::from_bits(bits)
        }
        fn table(table: Pfn) -> u64 {
            X86_64::table(table)
        }
    }

    #[test]
    #[should_panic(expected = "T2")]
    fn a_format_that_loses_a_bit_is_found() {
        check_format::<Forgetful>(&[Pfn::new(1)]);
    }
}
