//! Soak: threads that fault, map, unmap, protect, move, advise, fork and truncate at random, each answer judged.
//!
//! # Guarantee
//! [`run`] returns only if every answer was one that the thread could expect, every invariant of [`check`] held at the
//! end of each round, and no frame was lost. Otherwise it panics with what was seen. The seed fixes each thread's
//! choices, not the interleaving.
//!
//! # What each thread knows
//! * Its own region, which nobody else changes: every page's value and rights, so that each access has one right
//!   answer.
//! * A counter page, which it alone writes, upwards: a child forked by anybody sees a value between the one before and
//!   the one after the fork, and the parent never goes back (Linux bug fb49c455323f).
//! * A region that all threads map, unmap and write: a load sees 0 or a value that names its page.
//! * An object that all threads truncate, extend, punch, read, store to, and map into children that live until the
//!   round's invariants are checked: what was cut off never comes back, and a thread's own word holds what it stored
//!   last, or zeros if anybody has begun to remove something since. Each round has a new object; its source asks to be
//!   asked again, and fails.
//! * With [`Settings::shortages`], that any call may fail for want of a frame, and has changed nothing then.
//!
//! # Rooms
//! * `worker`: a thread and its choices; `own`, `crowd`, `file`: what it does to each kind of memory
//! * `round`: the threads of a run, and what is checked between rounds
//! * [`api`]: any arguments to any public function, from several threads

pub mod api;
mod crowd;
mod file;
mod known;
mod own;
mod round;
mod settings;
mod shortage;
mod worker;
mod world;

use faultless_platform::native::Native;
#[cfg(doc)]
use faultless_vm::check;
use faultless_vm::design::{Design, GenerationOf};
use faultless_vm::registry::{DesignVisitor, Unknown, with_design};

pub use round::run;
pub use settings::{Report, Settings, Shortages};

/// Runs the design of that name over the semaphore of that name.
///
/// ```
/// use faultless_soak::{Settings, run_named};
/// let settings = Settings { duration: std::time::Duration::from_millis(50), ..Settings::default() };
/// assert!(run_named("vma-lock", "rwsem-v8", &settings)?.rounds > 0);
/// # Ok::<(), faultless_vm::registry::Unknown>(())
/// ```
///
/// # Errors
/// If there is no such design or semaphore.
///
/// # Panics
/// With what was seen, if a promise is broken.
pub fn run_named(design: &str, semaphore: &str, settings: &Settings<'_>) -> Result<Report, Unknown> {
    with_design::<Native, _>(design, semaphore, Run(settings))
}

struct Run<'a, 's>(&'a Settings<'s>);

impl DesignVisitor<Native> for Run<'_, '_> {
    type Output = Report;

    fn visit<D: Design<Native>>(self, semaphore: GenerationOf<Native, D>) -> Report {
        run::<D>(semaphore, self.0)
    }
}
