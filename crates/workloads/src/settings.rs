//! What a program is told: plain data, one type for the flags of each workload that has any.
//!
//! # Guarantee
//! Unless a flag says otherwise, each value is that of the published program.

use crate::PAGE;
use crate::program::Seat;
use crate::random::Random;
use crate::space::FileName;

/// What a program is told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Bytes of the memory that a worker maps at once (`--region`); the published size unless told otherwise.
    pub region_bytes: u64,
    /// Where workers begin what they walk from end to end; no flag says it.
    pub begins: Begins,
    /// Whether workers meet (`--low`, `--near`, `--interleaved`, `--high`).
    pub contention: Contention,
    /// Whether one worker changes rights instead, and where (`--protect`).
    pub protects: Option<Protects>,
    /// ebizzy's flags.
    pub ebizzy: Ebizzy,
    /// refpage's flags.
    pub refpage: Refpage,
    /// mmap_touch's flags.
    pub mmap_touch: MmapTouch,
    /// Whose file is used (`--own`, `--shared`).
    pub whose: Whose,
    /// pagefaults' flags.
    pub pagefaults: PageFaults,
    /// Whether one thread forks beside the others, and how often (fork's `--every`).
    pub fork_every: Option<Every>,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            region_bytes: 128 << 20,
            begins: Begins::default(),
            contention: Contention::default(),
            protects: None,
            ebizzy: Ebizzy::default(),
            refpage: Refpage::default(),
            mmap_touch: MmapTouch::default(),
            whose: Whose::default(),
            pagefaults: PageFaults::default(),
            fork_every: None,
        }
    }
}

impl Settings {
    /// Returns the file that a worker uses.
    pub(crate) fn file_of(&self, seat: Seat) -> FileName {
        match self.whose {
            Whose::Own => FileName::Own(seat.global),
            Whose::Shared => FileName::Common,
        }
    }

    /// Returns how many pages of its first region a worker passes over.
    pub(crate) fn pages_passed_over(&self, seat: Seat) -> u64 {
        match self.begins {
            Begins::AtTheStart => 0,
            Begins::Anywhere { seed } => Random::of_worker(seed, seat.global).below((self.region_bytes / PAGE).max(1)),
        }
    }
}

/// Where page_fault1 to page_fault3 begin to walk their first region; each further one is walked whole.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Begins {
    /// At its first page.
    #[default]
    AtTheStart,
    /// At a page that is drawn for each worker, as if it had been at work for long.
    Anywhere {
        /// What draws it.
        seed: u64,
    },
}

/// Whether the workers of a `corten-*` workload meet in the same page tables.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Contention {
    /// Each has an area and tables of its own.
    #[default]
    Low,
    /// Each has tables of its own in one area of all.
    Near,
    /// They alternate every 64 KiB, so that they share tables, but few lines of them.
    Interleaved,
    /// The pages of all are shuffled.
    High,
}

/// Where a worker changes rights all the time, in the area that the others use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protects {
    /// In the others' tables, on pages that they do not use.
    Inside,
    /// In a table of its own.
    Outside,
}

/// How often a thread forks beside others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Every {
    /// Not at all.
    Never,
    /// Whenever so many ns have passed since it last did.
    Ns(u64),
}

/// ebizzy's flags.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ebizzy {
    /// `-m`: chunks and copies are mappings.
    pub always_maps: bool,
    /// `-M`: malloc takes nothing from mappings.
    pub never_maps: bool,
    /// `-t`: threads; two for each CPU unless given.
    pub nr_threads: Option<usize>,
    /// `-n`: chunks.
    pub nr_chunks: u64,
    /// `-s`: bytes of a chunk.
    pub chunk_bytes: u64,
    /// `-T`: copies are only touched.
    pub only_touches: bool,
    /// `-R`: copies are of random length.
    pub has_random_lengths: bool,
    /// `-p`: every other chunk is read-only.
    pub alternates_rights: bool,
}

impl Default for Ebizzy {
    fn default() -> Self {
        Self {
            always_maps: false,
            never_maps: false,
            nr_threads: None,
            nr_chunks: 10,
            chunk_bytes: 512 << 10,
            only_touches: false,
            has_random_lengths: false,
            alternates_rights: false,
        }
    }
}

/// What the workload is told.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Refpage {
    /// `--variant`.
    pub variant: Variant,
    /// `--touch`.
    pub touch: Touch,
    /// `--load`, `--update`.
    pub access: Access,
    /// `--reuse`: the memory is mapped once; later rounds drop its pages, or fill it again.
    pub is_reused: bool,
}

/// How memory comes to hold the byte.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Variant {
    /// It does not: zeros.
    #[default]
    Anon,
    /// The program stores it.
    Memset,
    /// By a reference page.
    Refpage,
    /// By a pattern, without a page.
    Pattern,
}

/// Which pages are touched.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Touch {
    /// The first one.
    #[default]
    One,
    /// So many of a hundred, evenly spread; one at least.
    Percent(u64),
    /// Those of a recorded renderer's large blocks.
    Renderer,
}

/// How they are touched.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Access {
    /// By a store.
    #[default]
    Store,
    /// By a load, whose result is compared with what must be there.
    Load,
    /// By such a load, and a store that follows at once.
    Update,
}

/// What `pagefaults` is told.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PageFaults {
    /// In which order memory is accessed (`--pattern`).
    pub pattern: Pattern,
    /// How (`--access`).
    pub access: AccessKind,
    /// What is mapped (`--mapping`).
    pub mapping: Mapping,
}

/// In which order memory is accessed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Pattern {
    /// Page by page, ascending.
    #[default]
    Sequential,
    /// Each page once, in random order.
    Random,
    /// Ascending, so many bytes apart: a multiple of 8.
    Stride(u64),
}

/// How memory is accessed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum AccessKind {
    /// By loads.
    Read,
    /// By stores.
    #[default]
    Write,
}

/// What is mapped.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mapping {
    /// Private anonymous memory.
    #[default]
    Private,
    /// A file of the worker's own, shared.
    Shared,
}

/// mmap_touch's flags.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MmapTouch {
    /// `--mutex`: one worker at a time, behind a mutex of the program's.
    pub has_mutex: bool,
    /// `--untouched`: nothing is stored.
    pub is_untouched: bool,
}

/// Whose file is read or mapped.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Whose {
    /// Each worker's own (`--own`).
    #[default]
    Own,
    /// One for all (`--shared`).
    Shared,
}
