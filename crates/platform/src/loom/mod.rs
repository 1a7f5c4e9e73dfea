//! `Loom`: the processor of the loom checker, which tries all interleavings of a small model.
//!
//! # Guarantee
//! A model that passes has, within its bounds, no interleaving and no allowed reordering of its atomics that breaks its
//! assertions, sleeps for ever, or touches an atomic after its drop. SeqCst accesses count as AcqRel: use SeqCst
//! fences.
//!
//! # Waiting
//! A spinner sleeps until an atomic that its condition read is written, so that models stay finite, and a spinner
//! for whom nobody writes is a deadlock. Time does not pass: a deadline is far away, or over at once if CPUs are
//! wanted.
//!
//! # What it can't tell
//! Histories are cut at seven stores of an atomic, threads at five. Whoever is woken sees all that the waker did
//! before, so a missing ordering shows where the waiter comes too late to wait. Each thread has a slot of its own, and
//! keeps it.
//!
//! All model threads are coroutines of one OS thread, so plain cells keep what belongs to the model and not to the
//! code. `orders` takes single orderings away, to see which model notices.

pub mod judge;
pub mod orders;

use crate::{Atomic, AtomicInteger, Processor, ThreadToken};
use core::cell::{Cell, RefCell};
use core::sync::atomic::{AtomicU64, Ordering};
use loom::sync::atomic as checked;
use loom::thread::{self, JoinHandle, Thread, ThreadId};
use orders::Part;
use std::sync::{Arc, Mutex, PoisonError};
use std::vec::Vec;

/// A plain cell whose accesses must be ordered: the checker fails if a write is concurrent with another access.
pub use loom::cell::UnsafeCell;

/// The processor under the loom checker. It has no memory: loom's atomics can't live inside frames.
#[derive(Debug, Clone, Copy)]
pub enum Loom {}

/// Bounds of an exploration.
#[derive(Debug, Clone, Copy)]
pub struct Bounds {
    /// CPU slots: at least as many as the model has threads.
    pub nr_cpus: usize,
    /// How often a thread may be interrupted in one interleaving; `None`: any number.
    pub max_preemptions: Option<usize>,
}

/// What is known of the model now running.
#[derive(Default)]
struct Model {
    nr_cpus: usize,
    threads: Vec<ModelThread>,
    /// Those who sleep: on which address, and who.
    sleepers: Vec<(usize, usize)>,
    may_be_crowded: bool,
    /// The slots of the second node, a bit each.
    second_node: u64,
    now_ns: u64,
    /// Accessed by each park and unpark, so that the checker knows that their order matters.
    order: Option<&'static checked::AtomicU32>,
}

struct ModelThread {
    id: ThreadId,
    handle: Thread,
    irq_depth: u32,
    is_running: bool,
    /// The addresses that a spinner's condition read; `None` unless it looks or waits.
    watched: Option<Vec<usize>>,
    /// One of them was written since.
    is_notified: bool,
}

impl ModelThread {
    fn new(handle: Thread) -> Self {
        Self { id: handle.id(), handle, irq_depth: 0, is_running: true, watched: None, is_notified: false }
    }
}

/// Held by who explores; see [`explore`].
static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

std::thread_local! {
    static MODEL: RefCell<Model> = RefCell::default();
}

loom::lazy_static! {
    static ref ORDER: checked::AtomicU32 = checked::AtomicU32::new(0);
    static ref CROWDED: checked::AtomicU32 = checked::AtomicU32::new(0);
}

/// Runs `body` under every interleaving within `bounds`, on a slot; returns how many there were.
///
/// Other threads that explore wait. Each interleaving maps its threads' stacks and unmaps them, for which they would
/// wait longer: for the lock of the process's memory map, and for each other's CPUs to forget the stacks.
///
/// # Panics
/// With the first failure of an assertion, or if all threads sleep.
pub fn explore(bounds: Bounds, body: impl Fn() + Send + Sync + 'static) -> u64 {
    // A model that failed has said so; the next one is none of its business.
    let _alone = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    let nr_runs = Arc::new(AtomicU64::new(0));
    let counted = Arc::clone(&nr_runs);
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = bounds.max_preemptions;
    builder.max_branches = 5_000;
    builder.check(move || {
        counted.fetch_add(1, Ordering::Relaxed);
        let order = Some(&*ORDER);
        MODEL.with(|model| *model.borrow_mut() = Model { nr_cpus: bounds.nr_cpus, order, ..Model::default() });
        Loom::enter();
        body();
        Loom::leave();
    });
    nr_runs.load(Ordering::Relaxed)
}

/// Starts a thread of the model, on a slot of its own.
pub fn start<R: 'static>(body: impl FnOnce() -> R + 'static) -> JoinHandle<R> {
    thread::spawn(|| {
        Loom::enter();
        let result = body();
        Loom::leave();
        result
    })
}

/// Says from now on whether threads wait for slots, so that spinners give way. A model in which that changes says so
/// before its threads start.
pub fn set_crowded(is_crowded: bool) {
    with(|model| model.may_be_crowded = true);
    CROWDED.store(is_crowded.into(), Ordering::Relaxed);
    notify_if(|_| true);
}

/// Says which slots, a bit each, are of a second node. A model says so before its threads start.
pub fn set_second_node(slots: u64) {
    with(|model| model.second_node = slots);
}

fn with<R>(act: impl FnOnce(&mut Model) -> R) -> R {
    MODEL.with(|model| act(&mut model.borrow_mut()))
}

/// Tells the checker that the order of sleeping and waking matters.
fn note_order() {
    if let Some(order) = with(|model| model.order) {
        // Relaxed: it hands nothing on, so it hides no missing ordering.
        order.fetch_add(1, Ordering::Relaxed);
    }
}

/// Acts on the calling thread's entry, which is made when it first enters a slot.
fn with_me<R>(act: impl FnOnce(usize, &mut ModelThread) -> R) -> R {
    let id = thread::current().id();
    with(|model| {
        let me = model.threads.iter().position(|thread| thread.id == id);
        let me = me.unwrap_or_else(|| panic!("this thread owns no slot: call enter first"));
        act(me, &mut model.threads[me])
    })
}

fn is_asleep(me: usize) -> bool {
    with(|model| model.sleepers.iter().any(|&(_, sleeper)| sleeper == me))
}

/// Says whether the calling thread looks with a spinner's eyes; if so, notes that it reads this address.
fn is_watching(address: usize) -> bool {
    with_me(|_, thread| {
        let watched = thread.watched.as_mut();
        watched.map(|watched| watched.push(address)).is_some()
    })
}

/// Lets those look again whose condition read this address.
fn notify(address: usize) {
    notify_if(|watched| watched.contains(&address));
}

fn notify_if(is_concerned: impl Fn(&[usize]) -> bool) {
    with(|model| {
        for thread in &mut model.threads {
            if thread.watched.as_deref().is_some_and(&is_concerned) {
                thread.is_notified = true;
                thread.handle.unpark();
            }
        }
    });
}

/// Looks at the newest values; if the condition does not hold, sleeps until one of them has changed.
fn look_or_sleep(condition: &mut impl FnMut() -> bool) -> bool {
    with_me(|_, thread| (thread.watched, thread.is_notified) = (Some(Vec::new()), false));
    let holds = condition();
    while !holds && !with_me(|_, thread| thread.is_notified) {
        thread::park();
    }
    with_me(|_, thread| thread.watched = None);
    holds
}

/// An atomic of the checker.
pub trait Checked {
    /// Ends its life: every access to it must be ordered before.
    fn end(&mut self);
}

/// An atomic that wakes spinners, and notices its use after its drop, or unordered with it.
pub struct Mortal<A: Checked> {
    atomic: A,
    life: Cell<u64>,
}

/// In `life` while the atomic lives: no likely content of a stack.
const ALIVE: u64 = 0xa11c_e5a0_a11c_e5a0;

// SAFETY: all threads of a model are coroutines of one OS thread, and `life` is never borrowed.
unsafe impl<A: Checked + Send> Send for Mortal<A> {}
// SAFETY: as above.
unsafe impl<A: Checked + Sync> Sync for Mortal<A> {}

impl<A: Checked> Mortal<A> {
    fn alive(&self) -> &A {
        // SAFETY: the cell is ours, or was: if the code under test is wrong it is read after the drop, to say so.
        let life = unsafe { self.life.as_ptr().read_volatile() };
        assert_eq!(life, ALIVE, "an atomic is used after its drop");
        &self.atomic
    }

    /// Does something that writes the atomic.
    fn write<R>(&self, act: impl FnOnce(&A) -> R) -> R {
        let address = (&raw const *self).addr();
        let result = act(self.alive());
        notify(address);
        result
    }
}

impl<A: Checked> Drop for Mortal<A> {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            self.atomic.end();
        }
        // SAFETY: the cell is ours. Volatile: the store must not be left out because the cell dies.
        unsafe { self.life.as_ptr().write_volatile(0) };
    }
}

macro_rules! end_alone {
    ($($name:ty $(, $param:ident)?;)+) => {
        $(impl$(<$param>)? Checked for $name {
            fn end(&mut self) {
                self.with_mut(|_| ());
            }
        })+
    };
}

end_alone!(checked::AtomicU8; checked::AtomicU16; checked::AtomicU32; checked::AtomicU64; checked::AtomicUsize;);
end_alone!(checked::AtomicPtr<T>, T;);

impl Checked for checked::AtomicBool {
    fn end(&mut self) {
        // SAFETY: the borrow is exclusive. Loom has no stronger check for this type: it sees unordered writes alone.
        unsafe { self.unsync_load() };
    }
}

/// Watches an atomic type; `$unused` is a value that no code uses.
macro_rules! watch_atomic {
    ($name:ty, $value:ty, $unused:expr $(, $param:ident)?) => {
        impl$(<$param>)? Mortal<$name> {
            /// Returns the newest value, as a futex's comparison and a spinner's last look see it.
            ///
            /// By an exchange that fails: a load may return an older value, and one that succeeds is a store, of which
            /// the checker does not know that no other can come between its two halves.
            fn newest(&self, order: Ordering) -> $value {
                // ORDER: the caller's.
                let (Ok(value) | Err(value)) = self.alive().compare_exchange($unused, $unused, order, order);
                value
            }
        }

        impl$(<$param>)? Atomic for Mortal<$name> {
            type Value = $value;
            #[track_caller]
            fn new(value: $value) -> Self {
                Self { atomic: <$name>::new(value), life: Cell::new(ALIVE) }
            }
            #[track_caller]
            fn load(&self, order: Ordering) -> $value {
                let order = orders::access(Part::Whole, order);
                if is_watching((&raw const *self).addr()) { self.newest(order) } else { self.alive().load(order) }
            }
            #[track_caller]
            fn store(&self, value: $value, order: Ordering) {
                let order = orders::access(Part::Whole, order);
                self.write(|atomic| atomic.store(value, order));
            }
            #[track_caller]
            fn swap(&self, value: $value, order: Ordering) -> $value {
                let order = orders::access(Part::Whole, order);
                self.write(|atomic| atomic.swap(value, order))
            }
            #[track_caller]
            fn compare_exchange(
                &self,
                current: $value,
                new: $value,
                success: Ordering,
                failure: Ordering,
            ) -> Result<$value, $value> {
                let success = orders::access(Part::Whole, success);
                let failure = orders::access(Part::OnFailure, failure);
                self.write(|atomic| atomic.compare_exchange(current, new, success, failure))
            }
            #[track_caller]
            fn compare_exchange_weak(
                &self,
                current: $value,
                new: $value,
                success: Ordering,
                failure: Ordering,
            ) -> Result<$value, $value> {
                self.compare_exchange(current, new, success, failure)
            }
        }
    };
}

macro_rules! watch_integer {
    ($name:ty, $value:ty) => {
        watch_atomic!($name, $value, <$value>::MAX - 0x13);
        impl AtomicInteger for Mortal<$name> {
            #[track_caller]
            fn fetch_add(&self, value: $value, order: Ordering) -> $value {
                let order = orders::access(Part::Whole, order);
                self.write(|atomic| atomic.fetch_add(value, order))
            }
            #[track_caller]
            fn fetch_sub(&self, value: $value, order: Ordering) -> $value {
                let order = orders::access(Part::Whole, order);
                self.write(|atomic| atomic.fetch_sub(value, order))
            }
            #[track_caller]
            fn fetch_and(&self, value: $value, order: Ordering) -> $value {
                let order = orders::access(Part::Whole, order);
                self.write(|atomic| atomic.fetch_and(value, order))
            }
            #[track_caller]
            fn fetch_or(&self, value: $value, order: Ordering) -> $value {
                let order = orders::access(Part::Whole, order);
                self.write(|atomic| atomic.fetch_or(value, order))
            }
        }
    };
}

watch_atomic!(checked::AtomicBool, bool, true);
watch_atomic!(checked::AtomicPtr<T>, *mut T, core::ptr::without_provenance_mut(usize::MAX), T);
watch_integer!(checked::AtomicU8, u8);
watch_integer!(checked::AtomicU16, u16);
watch_integer!(checked::AtomicU32, u32);
watch_integer!(checked::AtomicU64, u64);
watch_integer!(checked::AtomicUsize, usize);

impl Processor for Loom {
    type AtomicBool = Mortal<checked::AtomicBool>;
    type AtomicU8 = Mortal<checked::AtomicU8>;
    type AtomicU16 = Mortal<checked::AtomicU16>;
    type AtomicU32 = Mortal<checked::AtomicU32>;
    type AtomicU64 = Mortal<checked::AtomicU64>;
    type AtomicUsize = Mortal<checked::AtomicUsize>;
    type AtomicPtr<T> = Mortal<checked::AtomicPtr<T>>;

    // ORDER: the caller's; it names the pair.
    #[track_caller]
    fn fence(order: Ordering) {
        if let Some(order) = orders::fence(order) {
            // ORDER: as above.
            checked::fence(order);
        }
    }

    fn nr_cpus() -> usize {
        with(|model| model.nr_cpus)
    }

    fn cpu() -> usize {
        with_me(|me, _| me)
    }

    fn enter() {
        let handle = thread::current();
        with(|model| {
            if let Some(me) = model.threads.iter_mut().find(|thread| thread.id == handle.id()) {
                me.is_running = true;
                return;
            }
            assert!(model.threads.len() < model.nr_cpus, "a model needs a slot for each of its threads");
            model.threads.push(ModelThread::new(handle));
        });
    }

    fn leave() {
        with_me(|_, thread| {
            assert_eq!(thread.irq_depth, 0, "a slot is left with interrupts off");
            thread.is_running = false;
        });
    }

    fn node() -> usize {
        let me = Self::cpu();
        with(|model| usize::from(model.second_node >> me & 1 != 0))
    }

    fn irq_off() {
        with_me(|_, thread| thread.irq_depth += 1);
    }

    fn irq_on() {
        with_me(|_, thread| thread.irq_depth -= 1);
    }

    fn current() -> ThreadToken {
        ThreadToken::from_bits(Self::cpu() + 1)
    }

    fn is_running(thread: ThreadToken) -> bool {
        with(|model| model.threads.get(thread.bits().wrapping_sub(1)).is_some_and(|thread| thread.is_running))
    }

    fn should_yield() -> bool {
        // A failed exchange sees the newest value. Relaxed: a hint.
        with(|model| model.may_be_crowded)
            && CROWDED.compare_exchange(2, 2, Ordering::Relaxed, Ordering::Relaxed) == Err(1)
    }

    fn now() -> u64 {
        with(|model| {
            model.now_ns += 1;
            model.now_ns
        })
    }

    fn spin_until(mut condition: impl FnMut() -> bool) {
        while !condition() && !look_or_sleep(&mut condition) {}
    }

    fn spin_until_deadline(_deadline_ns: u64, mut condition: impl FnMut() -> bool) -> bool {
        while !condition() {
            if Self::should_yield() {
                return false;
            }
            if look_or_sleep(&mut condition) {
                break;
            }
        }
        true
    }

    fn park(word: &Self::AtomicU32, expected: u32) {
        Self::leave();
        note_order();
        let me = Self::cpu();
        with(|model| model.sleepers.push(((&raw const *word).addr(), me)));
        // Relaxed: it hands nothing on.
        if word.newest(Ordering::Relaxed) != expected {
            with(|model| model.sleepers.retain(|&(_, sleeper)| sleeper != me));
        }
        while is_asleep(me) {
            thread::park();
        }
        Self::enter();
    }

    fn unpark(word: *const Self::AtomicU32, threads: usize) -> usize {
        note_order();
        let mut woken = 0;
        while woken < threads
            && let Some(sleeper) = take_sleeper(word.addr())
        {
            sleeper.unpark();
            woken += 1;
        }
        woken
    }
}

fn take_sleeper(address: usize) -> Option<Thread> {
    with(|model| {
        let place = model.sleepers.iter().position(|&(slept_on, _)| slept_on == address)?;
        let (_, sleeper) = model.sleepers.remove(place);
        Some(model.threads[sleeper].handle.clone())
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::rc::Rc;

    type Word = <Loom as Processor>::AtomicU32;
    const TWO: Bounds = Bounds { nr_cpus: 2, max_preemptions: None };

    /// Explores `first` beside `second` on two words.
    fn race(first: fn(&[Word; 2]), second: fn(&[Word; 2])) {
        explore(TWO, move || {
            let words = Rc::new([Word::new(0), Word::new(0)]);
            let other = Rc::clone(&words);
            let thread = start(move || second(&other));
            first(&words);
            thread.join().expect("the other thread failed");
        });
    }

    fn publish(words: &[Word; 2]) {
        words[0].store(7, Ordering::Relaxed);
        words[1].store(1, Ordering::Relaxed);
    }

    fn expect(words: &[Word; 2]) {
        Loom::spin_until(|| words[1].load(Ordering::Relaxed) == 1);
        assert_eq!(words[0].load(Ordering::Relaxed), 7);
    }

    #[test]
    #[should_panic(expected = "left == right")]
    fn a_missing_ordering_shows_as_an_old_value() {
        race(publish, expect);
    }

    #[test]
    fn a_thread_has_a_cpu_of_its_own() {
        let own = |cpu| assert!(Loom::try_cpu() == Some(cpu) && Loom::is_known(Loom::current()));
        explore(TWO, move || {
            let thread = start(move || own(1));
            own(0);
            thread.join().expect("the other thread failed");
        });
    }

    #[test]
    fn a_spinner_ends_when_its_word_is_written() {
        race(
            |words| words[1].store(1, Ordering::Release),
            |words| Loom::spin_until(|| words[1].load(Ordering::Acquire) == 1),
        );
    }

    #[test]
    #[should_panic(expected = "deadlock")]
    fn a_spinner_for_whom_nobody_writes_is_a_deadlock() {
        race(|_| (), |words| Loom::spin_until(|| words[1].load(Ordering::Acquire) == 1));
    }

    #[test]
    #[should_panic(expected = "used after its drop")]
    fn an_access_after_the_drop_is_noticed() {
        explore(TWO, || {
            let mut word = core::mem::ManuallyDrop::new(Word::new(0));
            // SAFETY: dropped once; the access below is what the checker is to notice, and the memory is still ours.
            unsafe { core::mem::ManuallyDrop::drop(&mut word) };
            word.load(Ordering::Relaxed);
        });
    }

    #[test]
    #[should_panic(expected = "Causality violation")]
    fn an_access_that_nothing_orders_before_the_drop_is_noticed() {
        explore(TWO, || {
            let (flag, word) = (Rc::new(Word::new(0)), Rc::new(core::cell::RefCell::new(Some(Word::new(0)))));
            let (other_flag, other_word) = (Rc::clone(&flag), Rc::clone(&word));
            let thread = start(move || {
                let word = other_word.as_ptr();
                // SAFETY: the word is taken out only after the flag is up.
                unsafe { (*word).as_ref() }.inspect(|word| word.store(1, Ordering::Relaxed));
                other_flag.store(1, Ordering::Relaxed);
            });
            if flag.load(Ordering::Relaxed) == 1 {
                drop(word.take());
            }
            thread.join().expect("the other thread failed");
        });
    }
}
