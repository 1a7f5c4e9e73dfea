//! What a CPU has deferred: an open batch, and two closed ones that wait for their grace periods.
//!
//! # Drawn
//! ```text
//! defer --> [open] --close--> [newer: ticket] --> [older: ticket] --grace period over--> [ready] --> run
//! ```
//! Two closed batches are enough: a ticket is at most 2 above the last completed grace period, so at most two tickets
//! are incomplete. What is closed with the newer ticket joins the newer batch.
//!
//! # Invariants
//! * I1 the lists are changed under the CPU's lock; callbacks run outside it.
//! * I2 the older batch is empty only if the newer is; its ticket is smaller. A batch's ticket never changes.
//! * I3 `nr_running` counts those who have taken callbacks and not finished them.

use super::domain::{Driven, Urgency};
use super::numbers::Numbers;
use crate::{SpinMutex, lock_class};
use core::cell::UnsafeCell;
use core::ptr::{self, NonNull};
use faultless_platform::{Atomic, AtomicInteger, Ordering, Processor};

/// Called with what was deferred, after its grace period.
pub type RcuCallback<P> = unsafe fn(head: NonNull<RcuHead<P>>);

/// Stands inside an object that is freed after a grace period; two words, of which nothing matters before `defer`.
///
/// Its bits may be zero: it can be viewed inside zeroed memory.
#[repr(C)]
pub struct RcuHead<P: Processor> {
    next: UnsafeCell<*mut RcuHead<P>>,
    callback: UnsafeCell<Option<RcuCallback<P>>>,
}

// SAFETY: whoever defers a head hands it over (`Domain::defer`); its fields are private to the CPU's lists.
unsafe impl<P: Processor> Send for RcuHead<P> {}
// SAFETY: as above: a shared reference gives no access to the fields.
unsafe impl<P: Processor> Sync for RcuHead<P> {}

impl<P: Processor> RcuHead<P> {
    /// Returns a head that is on no list.
    pub const fn new() -> Self {
        Self { next: UnsafeCell::new(ptr::null_mut()), callback: UnsafeCell::new(None) }
    }
}

impl<P: Processor> Default for RcuHead<P> {
    fn default() -> Self {
        Self::new()
    }
}

/// Heads in the order in which they were deferred, owned by the chain.
struct Chain<P: Processor> {
    first: *mut RcuHead<P>,
    last: *mut RcuHead<P>,
    len: usize,
}

// SAFETY: the chain owns its heads, which may go anywhere.
unsafe impl<P: Processor> Send for Chain<P> {}

impl<P: Processor> Chain<P> {
    const fn new() -> Self {
        Self { first: ptr::null_mut(), last: ptr::null_mut(), len: 0 }
    }

    fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Puts a head at the end.
    ///
    /// # Safety
    /// The head is valid and belongs to the chain from now on.
    unsafe fn push(&mut self, head: NonNull<RcuHead<P>>, callback: RcuCallback<P>) {
        // SAFETY: the caller gives the head away.
        unsafe {
            *head.as_ref().next.get() = ptr::null_mut();
            *head.as_ref().callback.get() = Some(callback);
        }
        self.append(Self { first: head.as_ptr(), last: head.as_ptr(), len: 1 });
    }

    fn append(&mut self, behind: Self) {
        if behind.is_empty() {
            return;
        }
        if self.is_empty() {
            self.first = behind.first;
        } else {
            // SAFETY: the last head is ours.
            unsafe { *(*self.last).next.get() = behind.first };
        }
        self.last = behind.last;
        self.len += behind.len;
    }
}

impl<P: Processor> Iterator for Chain<P> {
    type Item = (NonNull<RcuHead<P>>, RcuCallback<P>);

    fn next(&mut self) -> Option<Self::Item> {
        let head = NonNull::new(self.first)?;
        // SAFETY: the head is ours until it is returned; the next one is read before that.
        let (next, callback) = unsafe { (*head.as_ref().next.get(), *head.as_ref().callback.get()) };
        self.first = next;
        self.len -= 1;
        callback.map(|callback| (head, callback))
    }
}

lock_class! {
    /// The lock of what waits to be freed.
    ListsLock = "rcu_lists"
}

struct Batch<P: Processor> {
    chain: Chain<P>,
    ticket: u64,
}

impl<P: Processor> Batch<P> {
    const fn new() -> Self {
        Self { chain: Chain::new(), ticket: 0 }
    }
}

struct Lists<P: Processor> {
    open: Chain<P>,
    newer: Batch<P>,
    older: Batch<P>,
    ready: Chain<P>,
}

impl<P: Processor> Lists<P> {
    fn close(&mut self, numbers: &Numbers<P>) {
        if self.open.is_empty() {
            return;
        }
        let ticket = numbers.ticket();
        // After the ticket was drawn: it makes room for it (module drawing).
        self.collect(numbers);
        let is_older = self.older.chain.is_empty() || self.older.ticket == ticket;
        let batch = if is_older { &mut self.older } else { &mut self.newer };
        batch.chain.append(core::mem::replace(&mut self.open, Chain::new()));
        batch.ticket = ticket;
    }

    /// Moves the batches whose grace period has passed to the ready ones.
    fn collect(&mut self, numbers: &Numbers<P>) {
        while !self.older.chain.is_empty() && numbers.is_complete(self.older.ticket) {
            let newer = core::mem::replace(&mut self.newer, Batch::new());
            self.ready.append(core::mem::replace(&mut self.older, newer).chain);
        }
    }

    fn take_ready(&mut self, numbers: &Numbers<P>) -> Chain<P> {
        self.collect(numbers);
        core::mem::replace(&mut self.ready, Chain::new())
    }

    fn has_batches(&self) -> bool {
        !self.older.chain.is_empty() || !self.ready.is_empty()
    }

    fn len(&self) -> usize {
        self.open.len + self.newer.chain.len + self.older.chain.len + self.ready.len
    }
}

/// What one CPU has deferred.
pub(super) struct Deferred<P: Processor> {
    lists: SpinMutex<P, Lists<P>, ListsLock>,
    /// Whether a batch is closed; written under the lock.
    has_batches: P::AtomicBool,
    nr_running: P::AtomicU32,
    /// Polls until the CPU looks at grace periods again, and roughly how many looks found none ended.
    patience: P::AtomicU32,
    last_patience: P::AtomicU32,
}

/// The most polls that pass where another CPU drives grace periods. Many CPUs that all ask would take the lines of
/// drivers' locks away from them all the time.
const PATIENCE_MAX: u32 = 16;
/// After about this many fruitless looks a CPU drives the grace period alone: other CPUs may never poll.
const NR_LOOKS: u32 = 64;
/// So many batches that wait make a CPU begin a grace period that others don't: on a machine of many CPUs each grace
/// period costs all of them a few lines, and somebody always has one batch.
const PRESSING_BATCHES: usize = 3;

impl<P: Processor> Deferred<P> {
    pub(super) fn new() -> Self {
        Self {
            lists: SpinMutex::classed(Lists {
                open: Chain::new(),
                newer: Batch::new(),
                older: Batch::new(),
                ready: Chain::new(),
            }),
            has_batches: P::AtomicBool::new(false),
            nr_running: P::AtomicU32::new(0),
            patience: P::AtomicU32::new(0),
            last_patience: P::AtomicU32::new(0),
        }
    }

    /// Says whether the CPU lets this poll pass; counts it. The CPU's own.
    #[inline]
    pub(super) fn is_patient(&self) -> bool {
        // Relaxed: the CPU's own number.
        let left = self.patience.load(Ordering::Relaxed);
        if left != 0 {
            self.patience.store(left - 1, Ordering::Relaxed);
        }
        left != 0
    }

    /// Lets more polls pass than the last time, if it is up to other CPUs again. The CPU's own.
    pub(super) fn set_patience(&self, driven: Driven) {
        // Relaxed: the CPU's own numbers.
        let last = self.last_patience.load(Ordering::Relaxed);
        let next = match driven {
            Driven::Busy if last < PATIENCE_MAX => (last * 2).max(1),
            Driven::Busy if last < NR_LOOKS => last + 1,
            // It looked everywhere: not again at once, or many who wait keep each other from it.
            Driven::Busy => PATIENCE_MAX,
            Driven::Complete | Driven::Blocked => 0,
        };
        self.patience.store(next.min(PATIENCE_MAX), Ordering::Relaxed);
        self.last_patience.store(next, Ordering::Relaxed);
    }

    /// Puts a head into the open batch, and closes it at `BATCH` heads.
    ///
    /// # Safety
    /// As for `Domain::defer`.
    pub(super) unsafe fn push<const BATCH: usize>(
        &self,
        head: NonNull<RcuHead<P>>,
        callback: RcuCallback<P>,
        numbers: &Numbers<P>,
    ) {
        let mut lists = self.lists.lock();
        // SAFETY: the caller gives the head away.
        unsafe { lists.open.push(head, callback) };
        if lists.open.len >= BATCH {
            self.close(&mut lists, numbers);
        }
    }

    /// Says whether a batch is closed: a hint, exact for the CPU itself.
    #[inline]
    pub(super) fn has_batches(&self) -> bool {
        // Relaxed: the lists have their lock.
        self.has_batches.load(Ordering::Relaxed)
    }

    pub(super) fn close_batch(&self, numbers: &Numbers<P>) {
        self.close(&mut self.lists.lock(), numbers);
    }

    fn close(&self, lists: &mut Lists<P>, numbers: &Numbers<P>) {
        lists.close(numbers);
        self.note_batches(lists);
    }

    fn note_batches(&self, lists: &Lists<P>) {
        // Relaxed: the lists have their lock.
        self.has_batches.store(lists.has_batches(), Ordering::Relaxed);
    }

    /// Returns what the oldest closed batch waits for, and how much the CPU does for it.
    pub(super) fn oldest_ticket<const BATCH: usize>(&self) -> Option<(u64, Urgency)> {
        let lists = self.lists.lock();
        if lists.older.chain.is_empty() {
            return None;
        }
        let is_much = lists.older.chain.len + lists.newer.chain.len >= PRESSING_BATCHES * BATCH;
        // Relaxed: the CPU's own number.
        let is_long = self.last_patience.load(Ordering::Relaxed) >= NR_LOOKS;
        let urgency = if is_much { Urgency::Pressing } else { Urgency::Patient };
        Some((lists.older.ticket, if is_long { Urgency::Waiting } else { urgency }))
    }

    /// Says whether somebody runs callbacks taken from here (I3).
    pub(super) fn is_running(&self) -> bool {
        // ORDER: Acquire pairs with the Release in `Running`'s drop: what the callbacks did is seen.
        self.nr_running.load(Ordering::Acquire) != 0
    }

    /// Runs the callbacks whose grace period has passed.
    pub(super) fn run_ready(&self, numbers: &Numbers<P>) {
        let (ready, _running) = {
            let mut lists = self.lists.lock();
            let ready = lists.take_ready(numbers);
            self.note_batches(&lists);
            // Under the lock: whoever finds the lists without them finds them counted.
            (ready, Running::new(self))
        };
        run(ready);
    }

    /// Returns the number of callbacks on the lists.
    pub(super) fn len(&self) -> u64 {
        self.lists.lock().len() as u64
    }
}

/// Counts one who runs callbacks, until dropped.
struct Running<'a, P: Processor>(&'a Deferred<P>);

impl<'a, P: Processor> Running<'a, P> {
    fn new(deferred: &'a Deferred<P>) -> Self {
        // Relaxed: the lists' lock orders it.
        deferred.nr_running.fetch_add(1, Ordering::Relaxed);
        Self(deferred)
    }
}

impl<P: Processor> Drop for Running<'_, P> {
    fn drop(&mut self) {
        // ORDER: Release pairs with the Acquire in `is_running`.
        self.0.nr_running.fetch_sub(1, Ordering::Release);
    }
}

/// Runs a chain of callbacks, outside all locks.
fn run<P: Processor>(chain: Chain<P>) {
    for (head, callback) in chain {
        // SAFETY: `Domain::defer` was promised so for both, and the chain's grace period has passed.
        unsafe { callback(head) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::boxed::Box;
    use alloc::vec::Vec;
    use faultless_platform::native::{Machine, Native};

    /// Returns how many polls pass before the next look.
    fn nr_polls(deferred: &Deferred<Native>, driven: Driven) -> u32 {
        deferred.set_patience(driven);
        (0..).take_while(|_| deferred.is_patient()).count() as u32
    }

    #[test]
    fn patience_grows_with_looks_in_vain_and_ends_with_one_that_was_not() {
        let deferred = Deferred::<Native>::new();
        assert!(!deferred.is_patient(), "the first poll looks");
        let in_vain =
            |nr_looks: usize| -> Vec<u32> { (0..nr_looks).map(|_| nr_polls(&deferred, Driven::Busy)).collect() };
        assert_eq!(in_vain(6), [1, 2, 4, 8, PATIENCE_MAX, PATIENCE_MAX]);
        assert_eq!(deferred.last_patience.load(Ordering::Relaxed), PATIENCE_MAX + 1);
        in_vain((NR_LOOKS - PATIENCE_MAX - 1) as usize);
        assert_eq!(deferred.last_patience.load(Ordering::Relaxed), NR_LOOKS, "it looks everywhere now");
        assert_eq!(in_vain(1), [PATIENCE_MAX]);
        assert_eq!(deferred.last_patience.load(Ordering::Relaxed), PATIENCE_MAX, "and not again at once");
        assert_eq!([Driven::Blocked, Driven::Complete].map(|driven| nr_polls(&deferred, driven)), [0, 0]);
        assert_eq!(in_vain(2), [1, 2]);
    }

    /// Frees a head that `Box` made.
    unsafe fn free(head: NonNull<RcuHead<Native>>) {
        // SAFETY: made by `defer`, and given away.
        drop(unsafe { Box::from_raw(head.as_ptr()) });
    }

    fn defer(deferred: &Deferred<Native>, numbers: &Numbers<Native>, nr_heads: usize) {
        for _ in 0..nr_heads {
            let head = NonNull::from(Box::leak(Box::new(RcuHead::new())));
            // SAFETY: the head is valid until `free`, which the callback is.
            unsafe { deferred.push::<2>(head, free, numbers) };
        }
    }

    #[test]
    fn batches_wait_for_their_tickets_and_many_of_them_press() {
        Machine::new(1).attach(|| {
            let (deferred, numbers) = (Deferred::<Native>::new(), Numbers::<Native>::new(1, 3));
            let grace_period = || {
                numbers.begin();
                numbers.end();
            };
            let oldest = || deferred.oldest_ticket::<2>();
            let has =
                |nr_heads, has_batches| assert_eq!((deferred.len(), deferred.has_batches()), (nr_heads, has_batches));
            defer(&deferred, &numbers, 1);
            has(1, false);
            assert!(oldest().is_none(), "nothing is closed");
            defer(&deferred, &numbers, 1);
            has(2, true);
            assert!(matches!(oldest(), Some((1, Urgency::Patient))));
            defer(&deferred, &numbers, 3);
            assert!(matches!(oldest(), Some((1, Urgency::Patient))), "two batches, and an open one");
            defer(&deferred, &numbers, 1);
            assert!(matches!(oldest(), Some((1, Urgency::Pressing))));
            deferred.run_ready(&numbers);
            has(6, true);
            grace_period();
            deferred.run_ready(&numbers);
            has(0, false);
            assert!(oldest().is_none());
            // What is closed while a grace period is at work waits for the next one.
            defer(&deferred, &numbers, 2);
            numbers.begin();
            defer(&deferred, &numbers, 4);
            assert!(matches!(oldest(), Some((2, Urgency::Pressing))));
            numbers.end();
            deferred.run_ready(&numbers);
            has(4, true);
            assert!(matches!(oldest(), Some((3, Urgency::Patient))));
            (0..2 * NR_LOOKS).take_while(|_| deferred.last_patience.load(Ordering::Relaxed) < NR_LOOKS).for_each(
                |_| {
                    assert!(matches!(oldest(), Some((3, Urgency::Patient))));
                    deferred.set_patience(Driven::Busy);
                },
            );
            assert!(matches!(oldest(), Some((3, Urgency::Waiting))));
            // An open batch is closed on request.
            defer(&deferred, &numbers, 1);
            grace_period();
            deferred.run_ready(&numbers);
            has(1, false);
            deferred.close_batch(&numbers);
            has(1, true);
            grace_period();
            deferred.run_ready(&numbers);
            has(0, false);
            assert!(!deferred.is_running());
        });
    }
}
