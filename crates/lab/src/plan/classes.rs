//! Why a replayed fault may differ from the recorded one: the classes, and the rule of each.
//!
//! # Guarantee
//! A class is given from the recording alone, before anything is replayed, and only to a fault that the recorded events
//! before it do not explain: one that comes although the page should allow the access, or that shows another present bit
//! than the page should have. Everything else must be replayed exactly as it was recorded, and so must what is
//! unexplained and fits no rule.
//!
//! | class | the recording shows |
//! |---|---|
//! | ambiguous | the fault lies inside another thread's call on that page, beside a fork, or within the clock error of one; or the kernel tried the page twice in a row; or the recording lacks what would decide |
//! | raced | another thread's fault on that page was under way, or made the entry stronger while this CPU still held the weaker one |
//! | populated | populate, lock, advice, huge pages or exec filled the page; or a fault says that it is there though none made it, and a fork came between |
//! | fault_around | the page is a file's, and a fault beside it mapped its neighbours |
//! | reclaimed | advice or the page cache let the kernel take a page away that was there |

/// Why a fault may differ.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub enum Class {
    /// Another thread's fault on the page overlaps.
    Raced,
    /// The kernel filled the page.
    Populated,
    /// A neighbour's fault mapped the page.
    FaultAround,
    /// The kernel took the page away.
    Reclaimed,
    /// Its order is not known.
    Ambiguous,
}

impl Class {
    /// All of them, in the order of reports.
    pub const ALL: [Class; 5] =
        [Class::Raced, Class::Populated, Class::FaultAround, Class::Reclaimed, Class::Ambiguous];

    /// Returns the name used in reports and in JSON.
    pub fn name(self) -> &'static str {
        match self {
            Class::Raced => "raced",
            Class::Populated => "populated",
            Class::FaultAround => "fault_around",
            Class::Reclaimed => "reclaimed",
            Class::Ambiguous => "ambiguous",
        }
    }
}
