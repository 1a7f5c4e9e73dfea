//! What the simulation knows of a thread.

use super::books::Book;
use super::lines::LineId;
use super::pending::Pending;
use corosensei::stack::DefaultStack;
use corosensei::{Coroutine, Yielder};
use std::ptr;

/// What the threads run, for as long as `run` lasts.
pub(super) type Body = *const (dyn Fn(usize) + Sync);

pub(super) type Fiber = Coroutine<(), (), (), DefaultStack>;
pub(super) type FiberYielder = Yielder<(), ()>;

/// No CPU owned.
pub(super) const NO_CPU: u16 = u16::MAX;

/// What a suspended thread waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Wait {
    /// Its turn.
    Turn,
    /// A write to a line that it read, or a deadline.
    Spin,
    /// That somebody wakes it.
    Sleep,
    /// A CPU.
    Slot,
    /// That a CPU leaves guest.
    Guest(u16),
}

/// A thread. What each turn looks at stands first, on one line of the host's.
#[repr(C, align(64))]
pub(super) struct Thread {
    /// In a box: it stays where it is while it runs.
    pub(super) fiber: Option<Box<Fiber>>,
    pub(super) yielder: *const FiberYielder,
    /// The access that its turn begins with.
    pub(super) pending: Option<Pending>,
    pub(super) generation: u32,
    pub(super) cpu: u16,
    pub(super) wait: Wait,
    pub(super) is_done: bool,
    /// It evaluates the condition of a wait.
    pub(super) is_recording: bool,
    /// It has panicked, or was told to.
    pub(super) is_unwinding: bool,
    /// It was woken before it slept.
    pub(super) is_roused: bool,
    /// Where its time goes.
    pub(super) book: Book,
    pub(super) irq_depth: u32,
    pub(super) last_cpu: u16,
    /// The number that its body got.
    pub(super) number: usize,
    /// Its clock when it began to wait.
    pub(super) since: u64,
    /// Until when an interrupt keeps it busy while it waits.
    pub(super) busy_until: u64,
    /// The address that it sleeps on.
    pub(super) word: usize,
    /// What the condition of its wait read: lines and their versions.
    pub(super) reads: Vec<(LineId, u32)>,
    /// The lines that it watches.
    pub(super) watched: Vec<LineId>,
}

const _: () = assert!(std::mem::offset_of!(Thread, book) <= 64);

impl Thread {
    pub(super) fn new(fiber: Fiber, number: usize) -> Self {
        Self {
            fiber: Some(Box::new(fiber)),
            yielder: ptr::null(),
            number,
            generation: 0,
            cpu: NO_CPU,
            last_cpu: NO_CPU,
            irq_depth: 0,
            wait: Wait::Turn,
            is_done: false,
            is_unwinding: false,
            is_roused: false,
            pending: None,
            is_recording: false,
            since: 0,
            busy_until: 0,
            word: 0,
            reads: Vec::new(),
            watched: Vec::new(),
            book: Book::default(),
        }
    }
}
