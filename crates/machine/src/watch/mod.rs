//! Watching a run: what its locks cost, and its events as they happen.
//!
//! # Guarantee
//! A run on a platform that is not [`Watched`] is what it is without this module. Of a watched run only what lies
//! between [`begin`] and [`end`] counts, so that setting up and taking down are not reported.
//!
//! Simulated machines are always [`Simulated`], that is watched, if only by nobody: watching takes no virtual time, and
//! a second copy of everything that runs on them would be most of what there is to compile.

mod locks;
mod stream;

use std::sync::Arc;

use faultless_platform::watched::{Happening, Sink};
use faultless_platform::{Processor, Tracepoint};

pub use faultless_platform::watched::{HighMemory, Machine, Watched};
use faultless_sim::Sim;
pub use locks::{Figures, LockRow, LockTable, LockWatch, Window};
pub use stream::Stream;

/// The platform of all simulated machines.
pub type Simulated = Watched<Sim>;

/// The point at which a run's window begins.
const BEGIN: &str = "window:begin";
/// The point at which it ends.
const END: &str = "window:end";

/// Tells those who watch that the run's window begins; called once, while nobody works.
#[inline]
pub fn begin<P: Processor>() {
    P::trace(Tracepoint::Point { name: BEGIN, value: 0 });
}

/// Tells those who watch that the run's window has ended; called once, when nobody works any more.
#[inline]
pub fn end<P: Processor>() {
    P::trace(Tracepoint::Point { name: END, value: 0 });
}

/// An edge of a run's window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Edge {
    /// It begins.
    Begin,
    /// It has ended.
    End,
}

/// Returns the edge of the window that an event is, if it is one.
pub fn edge(event: &Tracepoint) -> Option<Edge> {
    match event {
        Tracepoint::Point { name: BEGIN, .. } => Some(Edge::Begin),
        Tracepoint::Point { name: END, .. } => Some(Edge::End),
        _ => None,
    }
}

/// Tells several.
pub struct All(pub Vec<Arc<dyn Sink>>);

impl Sink for All {
    fn note(&self, happening: &Happening) {
        self.0.iter().for_each(|sink| sink.note(happening));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use faultless_platform::Threads;
    use faultless_sim::{Figures, Spec, isolate};
    use faultless_sync::{SpinMutex, lock_class};
    use std::sync::atomic::{AtomicUsize, Ordering};

    lock_class! {
        /// A lock that is told of.
        Contended = "contended"
    }

    /// Lets four CPUs of a simulated machine fight for a lock; says what the machine did.
    fn fight<P: Threads>(run: impl FnOnce(faultless_sim::Machine, &(dyn Fn(usize) + Sync)) -> Figures) -> Figures {
        let spec = Spec::preset("xeon-40").expect("a machine that comes along");
        let ran = isolate(|| {
            let lock = Box::new(SpinMutex::<P, u64, Contended>::classed(0));
            let figures = run(faultless_sim::Machine::new(&spec, 4, 1).expect("enough CPUs"), &|_| {
                P::enter();
                (0..50).for_each(|_| *lock.lock() += 1);
                P::leave();
            });
            assert_eq!(lock.into_inner(), 200);
            figures
        });
        ran.expect("nobody fails")
    }

    #[derive(Default)]
    struct Ears(AtomicUsize);

    impl Sink for Ears {
        fn note(&self, happening: &Happening) {
            assert!((happening.now)() > 0);
            // Who waited for the lock tells that, too.
            let is_of_lock = matches!(happening.event, Tracepoint::LockTaken { .. } | Tracepoint::LockReleased { .. });
            self.0.fetch_add(usize::from(is_of_lock), Ordering::Relaxed);
        }
    }

    #[test]
    fn watching_takes_no_virtual_time() {
        let ears = Arc::new(Ears::default());
        let watched = |sink: Option<Arc<Ears>>| {
            fight::<Simulated>(|machine, body| {
                let machine = match sink {
                    Some(sink) => Machine::new(machine, sink),
                    None => Machine::unwatched(machine),
                };
                Simulated::run(&machine, 4, body);
                machine.inner().figures()
            })
        };
        let alone = fight::<Sim>(|machine, body| {
            Sim::run(&machine, 4, body);
            machine.figures()
        });
        assert!(alone.transfers > 50, "they did fight: {alone:?}");
        assert_eq!(watched(None), alone);
        assert_eq!(watched(Some(ears.clone())), alone);
        assert_eq!(ears.0.load(Ordering::Relaxed), 2 * 200);
    }
}
