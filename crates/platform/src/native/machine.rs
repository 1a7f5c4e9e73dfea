//! A machine: its slots, the names of its threads, its interrupt handler.

use super::fence::fence;
use super::handler::Place;
use super::slots::{FREE, GUEST, KERNEL, Slots};
use crate::{CpuSet, InterruptHandler, MAX_CPUS, Nodes};
use core::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::boxed::Box;
use std::sync::{Mutex, OnceLock, PoisonError};
use std::vec::Vec;

/// A fixed number of CPU slots that threads share.
///
/// ```
/// use faultless_platform::{Processor, native::{Machine, Native}};
/// let machine = Machine::new(4);
/// assert_eq!(machine.attach(|| (Native::cpu(), Native::nr_cpus())), (0, 4));
/// ```
#[derive(Debug)]
pub struct Machine {
    slots: Slots,
    tokens: Tokens,
    handler: Place,
    is_dying: AtomicBool,
    nodes: Nodes,
}

impl Machine {
    /// Returns a machine of `nr_cpus` slots.
    ///
    /// # Panics
    /// If `nr_cpus` is 0 or above [`MAX_CPUS`]: a caller that takes the number from its user checks it first.
    pub fn new(nr_cpus: usize) -> Self {
        Self::with_nodes(nr_cpus, Nodes::one())
    }

    /// As [`Machine::new`], with slots that belong to NUMA nodes. The host decides where memory lies; whoever knows it
    /// says so here.
    ///
    /// ```
    /// use faultless_platform::{Nodes, Threads, native::{Machine, Native}};
    ///
    /// let machine = Machine::with_nodes(4, Nodes::new(2, |cpu| cpu / 2 % 2, |_, _| 21));
    /// assert_eq!(Native::nodes(&machine).of_cpu(3), 1);
    /// ```
    ///
    /// # Panics
    /// As [`Machine::new`].
    pub fn with_nodes(nr_cpus: usize, nodes: Nodes) -> Self {
        assert!((1..=MAX_CPUS).contains(&nr_cpus), "{nr_cpus} CPUs: a machine has 1 to {MAX_CPUS}");
        Self {
            slots: Slots::new(nr_cpus),
            tokens: Tokens::default(),
            handler: Place::default(),
            is_dying: AtomicBool::new(false),
            nodes,
        }
    }

    pub(super) fn nodes(&self) -> &Nodes {
        &self.nodes
    }

    pub(super) fn nr_cpus(&self) -> usize {
        self.slots.len()
    }

    pub(super) fn tokens(&self) -> &Tokens {
        &self.tokens
    }

    pub(super) fn is_awaited(&self) -> bool {
        self.slots.is_awaited()
    }

    /// Ends the waits of all threads, because one has panicked.
    pub(super) fn condemn(&self) {
        self.is_dying.store(true, Ordering::Relaxed);
    }

    pub(super) fn revive(&self) {
        self.is_dying.store(false, Ordering::Relaxed);
    }

    /// Panics if another thread of this machine did; not while unwinding.
    pub(super) fn check_alive(&self) {
        // Relaxed: nothing is read on the strength of the flag.
        if self.is_dying.load(Ordering::Relaxed) && !std::thread::panicking() {
            std::panic::resume_unwind(Box::new("another thread of this machine panicked"));
        }
    }

    #[inline]
    pub(super) fn guest_enter(&self, cpu: usize) -> bool {
        let slot = self.slots.get(cpu);
        slot.state.store(GUEST, Ordering::Relaxed);
        // ORDER: pairs with the fence in `request`; forbids that the target misses the request and the sender the
        // state.
        fence(Ordering::SeqCst);
        // Relaxed: the fence orders it; the queue has its own lock.
        slot.is_pending.load(Ordering::Relaxed)
    }

    #[inline]
    pub(super) fn guest_exit(&self, cpu: usize) {
        // ORDER: Release pairs with the Acquire in `is_outside_guest`: accesses made in guest are over when KERNEL is
        // seen.
        self.slots.get(cpu).state.store(KERNEL, Ordering::Release);
    }

    pub(super) fn is_idle(&self, cpu: usize) -> bool {
        // Relaxed: a hint.
        self.slots.get(cpu).state.load(Ordering::Relaxed) == FREE
    }

    /// Asks the targets but `me` to drain their queues.
    #[inline]
    pub(super) fn request(&self, me: usize, targets: &CpuSet) {
        for cpu in targets.iter().filter(|&cpu| cpu != me && cpu < self.nr_cpus()) {
            self.slots.get(cpu).is_pending.store(true, Ordering::Relaxed);
        }
        // ORDER: pairs with the fence in `guest_enter`; forbids that the target misses the request and the sender the
        // state.
        fence(Ordering::SeqCst);
    }

    /// Says whether `cpu`, which was asked, is not in guest: it drains its queue before it enters again.
    #[inline]
    pub(super) fn is_outside_guest(&self, cpu: usize) -> bool {
        // ORDER: Acquire pairs with the Release in `guest_exit`.
        self.slots.get(cpu).state.load(Ordering::Acquire) != GUEST
    }

    /// Takes a slot, the last one if it is free, for the thread behind `token`.
    pub(super) fn take_slot(&self, last_cpu: usize, token: usize) -> usize {
        let cpu = self.slots.take(last_cpu % self.nr_cpus(), &|| self.check_alive());
        self.tokens.set_running(token, true);
        cpu
    }

    /// Gives back the slot of the thread behind `token`.
    pub(super) fn give_slot(&self, cpu: usize, token: usize) {
        self.tokens.set_running(token, false);
        self.slots.give(cpu);
    }

    pub(super) fn set_handler(&self, function: InterruptHandler, context: *const ()) {
        self.handler.set(function, context);
    }

    /// Serves what was published for `cpu`, which the caller owns.
    #[inline]
    pub(super) fn serve(&self, cpu: usize) {
        let slot = self.slots.get(cpu);
        if slot.is_pending.load(Ordering::Relaxed) && slot.state.load(Ordering::Relaxed) != FREE {
            self.serve_slow(cpu);
        }
    }

    #[cold]
    fn serve_slow(&self, cpu: usize) {
        self.clear_pending(cpu);
        self.handler.run(cpu);
    }

    /// Notes that the owner of `cpu` is about to drain its queue.
    pub(super) fn clear_pending(&self, cpu: usize) {
        self.slots.get(cpu).is_pending.store(false, Ordering::Relaxed);
        // ORDER: the flag is down before the queue is read; pairs with the fence in `request`, which raises it after
        // filling the queue.
        fence(Ordering::SeqCst);
    }
}

/// Records of threads, by token; a record is used again after its thread has ended.
///
/// A token is the record's index + 1. Chunk `k` holds 64 << k records, so that a record never moves.
#[derive(Debug, Default)]
pub(super) struct Tokens {
    chunks: [OnceLock<Box<[AtomicBool]>>; 26],
    unused: Mutex<Vec<usize>>,
    nr_records: AtomicUsize,
}

impl Tokens {
    pub(super) fn take(&self) -> usize {
        let unused = self.unused.lock().unwrap_or_else(PoisonError::into_inner).pop();
        unused.unwrap_or_else(|| self.nr_records.fetch_add(1, Ordering::Relaxed) + 1)
    }

    pub(super) fn give(&self, token: usize) {
        self.unused.lock().unwrap_or_else(PoisonError::into_inner).push(token);
    }

    fn place(token: usize) -> (usize, usize) {
        let position = (token - 1).saturating_add(64);
        let chunk = (position.ilog2() - 6) as usize;
        (chunk, position - (64 << chunk))
    }

    pub(super) fn set_running(&self, token: usize, is_running: bool) {
        let (chunk, index) = Self::place(token);
        let records = self.chunks[chunk].get_or_init(|| (0..64 << chunk).map(|_| AtomicBool::new(false)).collect());
        // Relaxed: a hint for spinners.
        records[index].store(is_running, Ordering::Relaxed);
    }

    /// Says whether the thread behind a token owns a slot.
    pub(super) fn is_running(&self, token: usize) -> bool {
        if token == 0 {
            return false;
        }
        let (chunk, index) = Self::place(token);
        let records = self.chunks.get(chunk).and_then(OnceLock::get);
        // Relaxed: a hint for spinners.
        records.is_some_and(|records| records[index].load(Ordering::Relaxed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_are_found_again_across_chunks() {
        let tokens = Tokens::default();
        for token in [1, 64, 65, 192, 193, 5000] {
            assert!(!tokens.is_running(token));
            tokens.set_running(token, true);
            assert!(tokens.is_running(token));
        }
        assert!(!tokens.is_running(0) && !tokens.is_running(66) && !tokens.is_running(usize::MAX / 4));
        assert!(!tokens.is_running(usize::MAX) && !tokens.is_running(usize::MAX - 62));
    }
}
