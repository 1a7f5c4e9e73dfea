//! The simulation: virtual clocks, CPUs, threads as coroutines, and the directory of lines.
//!
//! # Guarantee
//! One thread of the simulation runs at a time, on the OS thread that called `run`: always the one whose clock is
//! lowest, but that it may run ahead by [`RUN_AHEAD`] on lines that no other CPU has touched. Not where it reads a line
//! that it has a copy of: that saved one turn in seven, and moved figures on 192 CPUs by up to 18 %.
//!
//! # Invariants
//! * E1 the engine is borrowed for the length of one step, never across a suspension.
//! * E2 a thread that is suspended is in the heap, or in a list of those that will put it there.
//! * E3 a CPU has one owner; only it is charged for what it does there.

mod access;
mod books;
mod figures;
mod governor;
mod heap;
mod idle;
mod interrupts;
mod lines;
mod machine;
mod pages;
mod pending;
mod places;
mod profile;
mod random;
mod record;
mod schedule;
mod slots;
mod state;
mod story;
mod suspend;
mod table;
mod thread;
mod wait;

pub(crate) use access::{access, enter_kernel, fence, look_at_clock, read_clock, touch};
pub use books::{LineCost, NamedLines, Profile, waits};
pub use figures::Figures;
pub(crate) use interrupts::{
    after_guest, clear_handler, guest_enter, guest_exit, irq_off, irq_on, set_handler, shoot_down,
};
pub use machine::{Failure, Machine, TooManyCpus};
pub(crate) use pages::{Filling, bulk, forget};
pub(crate) use pending::Kind;
pub(crate) use profile::note;
pub(crate) use slots::{current_token, enter, is_running, leave, prefer, should_yield, work};
pub(crate) use state::{cpu, is_idle, is_running_one, nr_cpus, owned_cpu, socket};
pub(crate) use story::{Quiet, words_of};
pub(crate) use thread::start;
pub(crate) use wait::{park, spin_until, unpark};
