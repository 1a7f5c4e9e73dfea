//! What locks cost, lock by lock and caller by caller: how long they are held and waited for.
//!
//! # Guarantee
//! Every acquisition in the window is counted, with its hold if it is released in the window. Times include what
//! measuring takes, as those of any lock meter do: a few clock readings for each acquisition.

use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use faultless_platform::watched::{Happening, Sink};
use faultless_platform::{Holding, LockId, Tracepoint};
use rustc_hash::FxHashMap;

use super::{BEGIN, END};

/// Threads note in shards, so that they seldom wait for each other.
const SHARDS: usize = 64;

/// Where a lock was taken, and how.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
struct Place {
    lock: &'static str,
    holding: Holding,
    caller: Caller,
}

/// Who took it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum Caller {
    /// A function that names itself.
    Function(&'static str),
    /// A line of code, by its file.
    Line(&'static str, u32),
}

/// What acquisitions cost.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Figures {
    /// Acquisitions.
    pub taken: u64,
    /// Of these, those that waited.
    pub waited: u64,
    /// Attempts that did not wait and got nothing.
    pub refused: u64,
    /// Time held, in all.
    pub hold_ns: u64,
    /// The longest hold.
    pub longest_hold_ns: u64,
    /// Time waited, in all.
    pub wait_ns: u64,
    /// The longest wait.
    pub longest_wait_ns: u64,
}

impl Figures {
    /// Adds others.
    pub fn add(&mut self, other: &Figures) {
        self.taken += other.taken;
        self.waited += other.waited;
        self.refused += other.refused;
        self.hold_ns += other.hold_ns;
        self.longest_hold_ns = self.longest_hold_ns.max(other.longest_hold_ns);
        self.wait_ns += other.wait_ns;
        self.longest_wait_ns = self.longest_wait_ns.max(other.longest_wait_ns);
    }

    /// Returns all attempts.
    pub fn attempts(&self) -> u64 {
        self.taken + self.refused
    }

    /// Returns the share of attempts that found the lock taken.
    pub fn contention(&self) -> f64 {
        share(self.waited + self.refused, self.attempts())
    }

    /// Returns the mean hold in ns.
    pub fn mean_hold_ns(&self) -> f64 {
        share(self.hold_ns, self.taken)
    }

    /// Returns the mean wait in ns of those who waited.
    pub fn mean_wait_ns(&self) -> f64 {
        share(self.wait_ns, self.waited)
    }
}

fn share(part: u64, whole: u64) -> f64 {
    if whole == 0 { 0.0 } else { part as f64 / whole as f64 }
}

/// A lock's figures, and those of its callers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LockRow {
    /// The lock's name; of one with readers, with the side.
    pub name: String,
    /// All callers together.
    pub figures: Figures,
    /// Caller by caller, a function or `file:line`, the one who holds longest first.
    pub callers: Vec<(String, Figures)>,
}

/// How long the run was.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Window {
    /// When it began.
    pub began_ns: u64,
    /// When it ended.
    pub ended_ns: u64,
}

/// All locks of a run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LockTable {
    /// The run's length.
    pub elapsed_ns: u64,
    /// How many CPUs it had.
    pub cpus: usize,
    /// Lock by lock, the one that is held longest first.
    pub locks: Vec<LockRow>,
}

impl LockTable {
    /// Returns the share of the run in which a lock was held: of several locks of one name, and of several readers, the
    /// sum, which may exceed 1.
    pub fn utilisation(&self, figures: &Figures) -> f64 {
        share(figures.hold_ns, self.elapsed_ns)
    }

    /// Returns the share of all CPUs' time that waiting took.
    pub fn cpu_share(&self, figures: &Figures) -> f64 {
        share(figures.wait_ns, self.elapsed_ns * self.cpus as u64)
    }
}

struct Held {
    place: Place,
    since_ns: u64,
}

/// What the threads of a shard hold, and what their acquisitions cost.
#[derive(Default)]
struct Shard {
    held: FxHashMap<(usize, LockId), Held>,
    figures: FxHashMap<Place, Figures>,
}

/// Watches the locks of one run.
pub struct LockWatch {
    shards: Vec<Mutex<Shard>>,
    is_open: AtomicBool,
    window: Mutex<Window>,
}

impl Default for LockWatch {
    fn default() -> Self {
        let shards = (0..SHARDS).map(|_| Mutex::default()).collect();
        Self { shards, is_open: AtomicBool::new(false), window: Mutex::default() }
    }
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // A thread that panicked left whole figures behind.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl LockWatch {
    /// Returns what was seen, on a machine of so many CPUs.
    pub fn table(&self, cpus: usize) -> LockTable {
        let window = *locked(&self.window);
        let mut sums: BTreeMap<Place, Figures> = BTreeMap::new();
        for shard in &self.shards {
            let shard = locked(shard);
            shard.figures.iter().for_each(|(place, figures)| sums.entry(*place).or_default().add(figures));
        }
        let elapsed_ns = window.ended_ns.saturating_sub(window.began_ns);
        LockTable { elapsed_ns, cpus, locks: rows(&sums) }
    }

    fn open(&self, now_ns: u64) {
        self.shards.iter().for_each(|shard| *locked(shard) = Shard::default());
        locked(&self.window).began_ns = now_ns;
        // Relaxed: nobody works while the window begins or ends, and what lets them work orders it.
        self.is_open.store(true, Ordering::Relaxed);
    }

    fn close(&self, now_ns: u64) {
        // Relaxed: see `open`.
        if self.is_open.swap(false, Ordering::Relaxed) {
            locked(&self.window).ended_ns = now_ns;
        }
    }

    fn shard(&self, happening: &Happening) -> MutexGuard<'_, Shard> {
        locked(&self.shards[happening.thread.bits() % SHARDS])
    }
}

impl Sink for LockWatch {
    fn note(&self, happening: &Happening) {
        match happening.event {
            Tracepoint::Point { name: BEGIN, .. } => return self.open((happening.now)()),
            Tracepoint::Point { name: END, .. } => return self.close((happening.now)()),
            Tracepoint::Point { .. } => return,
            // Relaxed: see `open`.
            _ if !self.is_open.load(Ordering::Relaxed) => return,
            _ => {}
        }
        let (thread, mut shard) = (happening.thread.bits(), self.shard(happening));
        match happening.event {
            Tracepoint::LockTaken { lock, holding, site, function, waited_ns } => {
                let caller = match function {
                    "" => Caller::Line(site.file(), site.line()),
                    function => Caller::Function(function),
                };
                let place = Place { lock: lock.name, holding, caller };
                shard.figures.entry(place).or_default().take(waited_ns);
                shard.held.insert((thread, lock), Held { place, since_ns: (happening.now)() });
            }
            Tracepoint::LockRefused { lock, holding, site } => {
                let place = Place { lock: lock.name, holding, caller: Caller::Line(site.file(), site.line()) };
                shard.figures.entry(place).or_default().refused += 1;
            }
            Tracepoint::LockReleased { lock, .. } => {
                let now_ns = (happening.now)();
                if let Some(held) = shard.held.remove(&(thread, lock)) {
                    let hold_ns = now_ns.saturating_sub(held.since_ns);
                    shard.figures.entry(held.place).or_default().release(hold_ns);
                }
            }
            _ => {}
        }
    }
}

impl Figures {
    fn take(&mut self, waited_ns: Option<u64>) {
        self.taken += 1;
        if let Some(wait_ns) = waited_ns {
            self.waited += 1;
            self.wait_ns += wait_ns;
            self.longest_wait_ns = self.longest_wait_ns.max(wait_ns);
        }
    }

    fn release(&mut self, hold_ns: u64) {
        self.hold_ns += hold_ns;
        self.longest_hold_ns = self.longest_hold_ns.max(hold_ns);
    }
}

fn rows(sums: &BTreeMap<Place, Figures>) -> Vec<LockRow> {
    let mut rows: Vec<LockRow> = Vec::new();
    let mut places: HashMap<String, usize> = HashMap::new();
    for (place, figures) in sums {
        let name = name(place);
        let row = *places.entry(name.clone()).or_insert_with(|| {
            rows.push(LockRow { name, figures: Figures::default(), callers: Vec::new() });
            rows.len() - 1
        });
        rows[row].figures.add(figures);
        rows[row].callers.push((caller(place), *figures));
    }
    rows.iter_mut().for_each(|row| row.callers.sort_by_key(|(_, figures)| std::cmp::Reverse(figures.hold_ns)));
    rows.sort_by_key(|row| std::cmp::Reverse(row.figures.hold_ns));
    rows
}

fn name(place: &Place) -> String {
    match place.holding {
        Holding::Plain => place.lock.to_owned(),
        Holding::Shared => format!("{} (read)", place.lock),
        Holding::Alone => format!("{} (write)", place.lock),
    }
}

/// Returns a function's name, or a line of code as `vm/fault/classic.rs:32`.
fn caller(place: &Place) -> String {
    match place.caller {
        Caller::Function(name) => name.to_owned(),
        Caller::Line(file, line) => {
            let file = file.rsplit_once("crates/").map_or(file, |(_, file)| file);
            format!("{}:{line}", file.replacen("/src/", "/", 1))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use faultless_platform::ThreadToken;
    use std::cell::Cell;
    use std::panic::Location;

    std::thread_local! {
        static NOW: Cell<u64> = const { Cell::new(0) };
    }

    fn at(watch: &LockWatch, now_ns: u64, thread: usize, event: Tracepoint) {
        NOW.set(now_ns);
        watch.note(&Happening { event, cpu: 0, thread: ThreadToken::from_bits(thread), now: || NOW.get() });
    }

    fn lock(address: usize) -> LockId {
        LockId { name: "zone", address }
    }

    #[track_caller]
    fn taken(address: usize, waited_ns: Option<u64>) -> Tracepoint {
        Tracepoint::LockTaken {
            lock: lock(address),
            holding: Holding::Plain,
            site: Location::caller(),
            function: "",
            waited_ns,
        }
    }

    fn released(address: usize) -> Tracepoint {
        Tracepoint::LockReleased { lock: lock(address), holding: Holding::Plain }
    }

    fn point(name: &'static str) -> Tracepoint {
        Tracepoint::Point { name, value: 0 }
    }

    #[test]
    fn a_known_sequence_gives_known_figures() {
        let watch = LockWatch::default();
        at(&watch, 10, 1, taken(7, None));
        at(&watch, 100, 1, point(BEGIN));
        at(&watch, 110, 1, released(7));
        at(&watch, 200, 1, taken(7, None));
        at(
            &watch,
            210,
            2,
            Tracepoint::LockRefused { lock: lock(7), holding: Holding::Plain, site: Location::caller() },
        );
        at(&watch, 250, 1, released(7));
        at(&watch, 300, 2, taken(7, Some(90)));
        at(&watch, 305, 1, taken(8, None));
        at(&watch, 310, 2, released(7));
        at(&watch, 405, 1, released(8));
        at(&watch, 1100, 1, point(END));
        at(&watch, 1200, 1, taken(7, None));
        let table = watch.table(2);
        assert_eq!((table.elapsed_ns, table.locks.len()), (1000, 1));
        let row = &table.locks[0];
        let expected = Figures {
            taken: 3,
            waited: 1,
            refused: 1,
            hold_ns: 160,
            longest_hold_ns: 100,
            wait_ns: 90,
            longest_wait_ns: 90,
        };
        assert_eq!((&*row.name, row.figures), ("zone", expected));
        assert_eq!((row.figures.contention(), row.figures.mean_wait_ns()), (0.5, 90.0));
        assert_eq!((table.utilisation(&row.figures), table.cpu_share(&row.figures)), (0.16, 0.045));
        assert_eq!(row.callers.len(), 4, "each line is a caller: {:?}", row.callers);
        assert!(row.callers[0].0.starts_with("machine/watch/locks.rs:"), "{:?}", row.callers);
        assert_eq!(row.callers[0].1.hold_ns, 100, "the one who holds longest comes first");
    }

    #[test]
    fn a_function_that_names_itself_is_one_caller_whatever_its_line() {
        let watch = LockWatch::default();
        at(&watch, 0, 1, point(BEGIN));
        for (now_ns, site) in [(10, Location::caller()), (30, Location::caller())] {
            let event = Tracepoint::LockTaken {
                lock: lock(7),
                holding: Holding::Plain,
                site,
                function: "kmap_high",
                waited_ns: None,
            };
            at(&watch, now_ns, 1, event);
            at(&watch, now_ns + 5, 1, released(7));
        }
        at(&watch, 50, 1, point(END));
        let callers = &watch.table(1).locks[0].callers;
        assert_eq!((callers.len(), &*callers[0].0, callers[0].1.hold_ns), (1, "kmap_high", 10));
    }

    #[test]
    fn readers_and_writers_are_told_apart_and_a_downgrade_is_both() {
        let watch = LockWatch::default();
        let lock = LockId { name: "mmap_sem", address: 1 };
        at(&watch, 0, 1, point(BEGIN));
        let site = Location::caller();
        at(&watch, 10, 1, Tracepoint::LockTaken { lock, holding: Holding::Alone, site, function: "", waited_ns: None });
        at(&watch, 30, 1, Tracepoint::LockReleased { lock, holding: Holding::Alone });
        at(
            &watch,
            30,
            1,
            Tracepoint::LockTaken { lock, holding: Holding::Shared, site, function: "", waited_ns: None },
        );
        at(&watch, 35, 1, Tracepoint::LockReleased { lock, holding: Holding::Shared });
        at(&watch, 40, 1, point(END));
        let shown: Vec<_> = watch.table(1).locks.iter().map(|row| (row.name.clone(), row.figures.hold_ns)).collect();
        assert_eq!(shown, [("mmap_sem (write)".to_owned(), 20), ("mmap_sem (read)".to_owned(), 5)]);
    }
}
