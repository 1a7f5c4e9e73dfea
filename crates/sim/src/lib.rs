//! The simulated machine: the code under test on up to 1,024 CPUs, with a clock of their own and a bill for every cache
//! line that moves.
//!
//! # Guarantee
//! * G1 code that is generic over [`Threads`](faultless_platform::Threads) runs on [`Sim`] unchanged; every access to
//!   an atomic is charged and takes place in the order of virtual time, but for a bounded run-ahead on lines that no
//!   other CPU has touched.
//! * G2 the same machine, seed and program give the same bytes, in any process and beside any other simulation: the
//!   state belongs to a [`Machine`], and nothing depends on an address if [`isolate`] and [`LineAllocator`] are used.
//! * G3 a panic or a deadlock of the program ends the run with a message that names the CPU, the virtual time, the
//!   machine and the seed.
//!
//! # Not guaranteed
//! Values are sequentially consistent: a missing barrier is not found here. Caches have no capacity, but for pages
//! being zeroed. `docs/simulation.md` has the list, with what was measured.
//!
//! # Rooms
//! `machine` reads machine files; `engine` is the simulation: `lines` who has which cache line, `access` what an access
//! costs, `schedule` who runs next, `wait` spinning and sleeping, `slots` CPUs and the threads that share them,
//! `interrupts` shootdown, `pages` zeroing and copying, `profile` where the time of
//! threads goes, `story` what is said of a run that failed; `platform` and
//! `atomics` are the traits; `isolate` keeps host addresses out of the results. The crate `explore` is another machine,
//! without a clock.
//!
//! ```
//! use faultless_platform::{Atomic, AtomicInteger, Ordering, Processor, Threads};
//! use faultless_sim::{Machine, Sim, Spec};
//!
//! let spec = Spec::preset("xeon-40").expect("a machine of that name");
//! let machine = Machine::new(&spec, 40, 1)?;
//! let total = <Sim as Processor>::AtomicU64::new(0);
//! Sim::run(&machine, 40, &|_| {
//!     Sim::enter();
//!     total.fetch_add(1, Ordering::Relaxed);
//!     Sim::leave();
//! });
//! assert_eq!(total.load(Ordering::Relaxed), 40);
//! assert!(machine.figures().elapsed_ns > 0);
//! # Ok::<(), faultless_sim::TooManyCpus>(())
//! ```

mod atomics;
mod engine;
mod isolate;
mod machine;
mod platform;

pub use engine::{Failure, Figures, LineCost, Machine, NamedLines, Profile, TooManyCpus, waits};
pub use isolate::{LineAllocator, isolate};
pub use machine::{MACHINES, Number, Spec, SpecError};
pub use platform::Sim;
