//! What a simulation counts.

/// What a simulation did so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Figures {
    /// Virtual time.
    pub elapsed_ns: u64,
    /// Accesses of atomics, and of memory that the program named as hot.
    pub accesses: u64,
    /// Those that had to get the line from another CPU.
    pub transfers: u64,
    /// Those that had to get the line from memory.
    pub fetches: u64,
    /// Times that a thread went to sleep.
    pub sleeps: u64,
    /// Interrupts sent.
    pub interrupts: u64,
    /// Pages zeroed or copied.
    pub pages_filled: u64,
    /// Those of them that no cache of this CPU's held.
    pub pages_missed: u64,
    /// Pages that went through a memory bus for that; of a copy its source, too.
    pub pages_moved: u64,
    /// Turns taken by threads.
    pub switches: u64,
    /// Lines ever touched.
    pub lines: u64,
}
