//! Rings that programs fill with records, one for each CPU, and their reader.
//!
//! # Guarantee
//! Every record that a program published is handed out once, in the order in which their places were taken; what found
//! no room is counted.
//!
//! # Invariants
//! S1  `taken - returned <= NR_SLOTS`, but for the few programs that take places on one CPU at the same instant.
//! S2  A slot is read only when its first word is the place that it was taken as, and one: only its writer stores that,
//!     last, and the writer of the same slot before stored a smaller one.
//!
//! # Protocol
//! ```text
//! program                                   reader
//! leave if taken - returned > most          slot's first word = returned + 1?
//! place = taken++                           copy the record
//! fill the slot                             returned += 1
//! slot's first word = place + 1
//! ```
//! One CPU's places are taken by what runs there: a program, and another that interrupts it. A writer is never moved to
//! another CPU. x86 keeps stores in their order, and programs run on nothing else here.
//!
//! # Why not perf's rings
//! A record there costs 0.3 us, of which a fault's own program takes a tenth.

use std::io;
use std::os::fd::RawFd;
use std::sync::atomic::Ordering;

use super::kernel::Words;

/// Before the slots of a CPU: three words, each in a cache line of its own.
pub(super) const HEAD_BYTES: usize = 4096;
pub(super) const TAKEN: usize = 0;
pub(super) const RETURNED: usize = 64;
pub(super) const LOST: usize = 128;

pub(super) const SLOT_BYTES: usize = 128;
const SLOT_SHIFT: u32 = SLOT_BYTES.trailing_zeros();

/// So many programs may take places on one CPU at once: one interrupts another.
const NESTED: usize = 8;

const WORD_BYTES: usize = size_of::<u64>();

/// The rings.
#[derive(Debug)]
pub(super) struct Slots {
    shared: Words,
    nr_slots: usize,
}

impl Slots {
    /// Makes rings that hold as many records as perf's of so many bytes, a power of two, and at least those of a trial:
    /// a fault takes 72 bytes there, and a slot here.
    pub(super) fn new(ring_bytes: usize, nr_cpus: usize) -> io::Result<Self> {
        const LEAST_BYTES: usize = 2 << 20;
        let ring_bytes = (2 * ring_bytes).max(LEAST_BYTES);
        let shared = Words::array(nr_cpus, (HEAD_BYTES + ring_bytes) / WORD_BYTES)?;
        Ok(Self { shared, nr_slots: ring_bytes / SLOT_BYTES })
    }

    pub(super) fn fd(&self) -> RawFd {
        self.shared.fd()
    }

    /// Returns the number of slots, which is a power of two.
    pub(super) fn nr_slots(&self) -> usize {
        self.nr_slots
    }

    /// Returns how many places may be taken and not returned when another is taken.
    pub(super) fn nr_most(&self) -> usize {
        self.nr_slots - NESTED
    }

    /// Returns how many records found no room.
    pub(super) fn lost(&self) -> u64 {
        let nr_cpus = self.shared.nr_values();
        // Relaxed: it is only a count.
        (0..nr_cpus).map(|cpu| self.shared.value(cpu)[LOST / WORD_BYTES].load(Ordering::Relaxed)).sum()
    }

    /// Hands all records of a CPU to `take`, many at a time.
    pub(super) fn drain<E>(&self, cpu: usize, mut take: impl FnMut(&[u8]) -> Result<(), E>) -> Result<(), E> {
        const BATCH_BYTES: usize = 64 << 10;
        let value = self.shared.value(cpu);
        let returned_word = &value[RETURNED / WORD_BYTES];
        // Relaxed: only this reader writes it.
        let mut returned = returned_word.load(Ordering::Relaxed);
        let mut batch = Vec::with_capacity(BATCH_BYTES);
        loop {
            let is_more = self.copy(cpu, returned, &mut batch);
            returned += u64::from(is_more);
            if !batch.is_empty() && (!is_more || batch.len() + SLOT_BYTES > BATCH_BYTES) {
                // ORDER: Release pairs with the program's test of the word: what was copied may be overwritten.
                returned_word.store(returned, Ordering::Release);
                take(&batch)?;
                batch.clear();
            }
            if !is_more {
                return Ok(());
            }
        }
    }

    /// Copies the record of this place, if it is published (S2); returns whether it is.
    fn copy(&self, cpu: usize, place: u64, batch: &mut Vec<u8>) -> bool {
        let first = (HEAD_BYTES + ((place as usize & (self.nr_slots - 1)) << SLOT_SHIFT)) / WORD_BYTES;
        let slot = &self.shared.value(cpu)[first..first + SLOT_BYTES / WORD_BYTES];
        // ORDER: Acquire pairs with the program's last store: the rest of the slot is visible.
        if slot[0].load(Ordering::Acquire) != place + 1 {
            return false;
        }
        // Relaxed: the slot is whole, and stays so until it is returned.
        let word = |number: usize| slot[number].load(Ordering::Relaxed);
        // The size stands in the last two bytes of the record's head.
        let nr_words = (word(1) >> 48) as usize / WORD_BYTES;
        (1..=nr_words.min(slot.len() - 1)).for_each(|number| batch.extend_from_slice(&word(number).to_ne_bytes()));
        true
    }

    /// Forgets all that was written; nobody may be writing.
    pub(super) fn forget(&self) {
        for cpu in 0..self.shared.nr_values() {
            let word = |place: usize| &self.shared.value(cpu)[place / WORD_BYTES];
            // Relaxed: nobody is writing.
            word(RETURNED).store(word(TAKEN).load(Ordering::Relaxed), Ordering::Relaxed);
            word(LOST).store(0, Ordering::Relaxed);
        }
    }
}
