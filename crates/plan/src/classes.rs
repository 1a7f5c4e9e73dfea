//! Why a replayed fault may differ from the recorded one: the classes, and the rule of each.
//!
//! # Guarantee
//! A class is given from the recording alone, before anything is replayed, and only to a fault that the recorded events
//! before it do not explain: one that comes although the page should allow the access, or that shows another present
//! bit than the page should have. Everything else must be replayed exactly as it was recorded, and so must what is
//! unexplained and fits no rule.
//!
//! | class | the recording shows |
//! |---|---|
//! | ambiguous | the fault lies inside another thread's call on that page, beside a fork, or within the clock error of one, or may have been held up before one until it was over; or that call makes pages, which may be absent for a moment; or a store beside a fork may have come too late for the child's copy of its area's tables; or another thread's call on that page and a fork were under way at once; or two threads' calls about that memory met, and nothing has mapped or unmapped it since whatever was there; or the kernel tried the page twice in a row, from two places of its code; or an instruction faulted twice in a row, at one address, the second time on a page that was there, in a space of several threads or, if it was there the first time too, by a thread that was switched out in between; or a fork failed, which may have taken the right to store; or a file may end before the page, so that the access before was a bus error; or a protection key may forbid what the rights allow, or something unseen changed the page (`unseen`); or the recording lacks what would decide |
//! | raced | another thread's fault on that page was under way when the access was made, or made the entry stronger while this CPU still held the weaker one; or the thread did so itself after a fork, and may have come to this CPU since; or a call that fills memory did so |
//! | populated | populate, lock, advice, exec or a driver filled the page; or a fault says that it is there though none made it, and a fork came between or a debugger traces the process |
//! | fault_around | the page is an object's, a fault beside it reached it (see [`super::around`]), and it is there; but a fork, or what another thread did to the page, leaves open which fault mapped it |
//! | huge | the page is private memory of a program that could get huge pages, and lies in a 16 KiB block of one area, the smallest that Linux makes one of; or its mapping asked for huge pages |
//! | inherited | the page stood before the recording joined its process, and this is its first event since |
//! | reclaimed | advice or the page cache let the kernel take a page away that was there, or write it back to its file, so that the next store faults; or a page of a file's private mapping may have gone since, because a file was cut |

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
    /// A huge page may have come or gone.
    Huge,
    /// The kernel took the page away.
    Reclaimed,
    /// Its order is not known.
    Ambiguous,
    /// The page stood before the recording, and nothing has told since what its entry allows.
    Inherited,
}

impl Class {
    /// All of them, in the order of reports.
    pub const ALL: [Class; 7] = [
        Class::Raced,
        Class::Populated,
        Class::FaultAround,
        Class::Huge,
        Class::Reclaimed,
        Class::Ambiguous,
        Class::Inherited,
    ];

    /// Returns whether a large share of the class is a reason to worry, and what to do then.
    pub fn advice(self) -> &'static str {
        match self {
            Class::Raced => {
                "threads often fault on one page at once, and who wins may differ each time; no reason to worry"
            }
            Class::Populated => {
                "the kernel filled pages by itself; those faults are cheaper in the recording than here"
            }
            Class::FaultAround => {
                "the kernel maps up to 16 cached pages of a file at once, a replay maps each by itself; no reason to \
                 worry, the designs only handle that many more file faults"
            }
            Class::Huge => {
                "huge pages save faults that a replay can't know of; record without --thp to check every page"
            }
            Class::Reclaimed => {
                "the kernel took pages back, or wrote a file's pages back and so was told of the next store to each; \
                 record with more free memory, and without fsync, to check them"
            }
            Class::Inherited => {
                "what those entries allowed before the recording is not known; record for longer, and their share falls"
            }
            Class::Ambiguous => "the recording does not tell the order of those faults; results hold for the others",
        }
    }

    /// Returns the name used in reports and in JSON.
    pub fn name(self) -> &'static str {
        match self {
            Class::Raced => "raced",
            Class::Populated => "populated",
            Class::FaultAround => "fault_around",
            Class::Huge => "huge",
            Class::Reclaimed => "reclaimed",
            Class::Ambiguous => "ambiguous",
            Class::Inherited => "inherited",
        }
    }
}
