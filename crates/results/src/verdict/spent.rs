//! What the time of an operation is spent on, where a simulated machine kept books of it.
//!
//! # Guarantee
//! The parts add up to the mean time of an operation; what no book names is work. A line is called one line if it alone
//! took most of what lines of its name took.

use serde_json::Value;

use crate::set::PROFILE;
use crate::{Measured, Unit};

/// What waiting for the address-space lock is called in books: by readers, and by writers.
const LOCK: [&str; 2] = ["mmap_sem:read", "mmap_sem:write"];

/// The part that is no wait, but not the thread's own work either.
const INTERRUPTS: &str = "interrupts";

/// Of what lines of a name took, what one must have taken to be called the one.
const ONE: f64 = 0.8;

/// What a part of the time is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Waiting for the address-space lock.
    Lock,
    /// Waiting for lines that other CPUs had.
    Lines,
    /// Waiting for anything else.
    Wait,
    /// Work.
    Work,
}

/// A part of an operation's time.
#[derive(Clone, Debug, PartialEq)]
pub struct Part {
    /// What it is.
    pub kind: Kind,
    /// What is waited for; a line's name.
    pub name: String,
    /// How long.
    pub ns: f64,
    /// Transfers of lines for each operation.
    pub transfers: f64,
    /// Of the address-space lock, who waits for it.
    pub who: Option<String>,
    /// How many CPUs wrote the one line that this was about, if it was one.
    pub writers: Option<usize>,
}

/// Returns the parts of an operation's time, the longest first; nothing where no books were kept.
pub fn parts(arm: &Measured, op_ns: Option<f64>, waiting: Option<f64>) -> Vec<Part> {
    let (Some(profile), Some(op_ns)) = (arm.more.get(PROFILE), op_ns) else { return Vec::new() };
    let ops: f64 = arm.more.get("ops").and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_f64).sum();
    let number = |value: &Value| value.as_f64().unwrap_or(0.0);
    let thread_ns = number(&profile["thread_ns"]);
    if ops <= 0.0 || thread_ns <= 0.0 {
        return Vec::new();
    }
    let each = |ns: f64| ns / thread_ns * op_ns;
    let wait = |kind, name: &str, ns| Part { kind, name: name.into(), ns, transfers: 0.0, who: None, writers: None };
    let waits: Vec<(&str, f64)> = (profile["waits"].as_array().into_iter().flatten())
        .map(|told| (told["for"].as_str().unwrap_or_default(), number(&told["ns"])))
        .collect();
    let others = waits.iter().filter(|(name, _)| !LOCK.contains(name));
    let mut parts: Vec<Part> = others.map(|(name, ns)| wait(Kind::Wait, waited_for(name), each(*ns))).collect();
    let [readers, writers] =
        LOCK.map(|side| waits.iter().filter(|(name, _)| *name == side).map(|(_, ns)| ns).sum::<f64>());
    // As it was measured by itself, where it was.
    let lock = waiting.map_or(each(readers + writers), |share| share * op_ns);
    let who = Some(lock_by(readers, writers));
    parts.push(Part { who, ..wait(Kind::Lock, "the address-space lock", lock) });
    parts.push(wait(Kind::Wait, "the memory bus", each(number(&profile["bus_ns"]))));
    parts.push(wait(Kind::Wait, INTERRUPTS, each(number(&profile["interrupted_ns"]))));
    parts.extend(profile["lines"].as_array().into_iter().flatten().map(|line| {
        let (ns, hottest) = (number(&line["ns"]), &line["hottest"]);
        let writers = hottest["writers"].as_u64().filter(|_| number(&hottest["ns"]) >= ONE * ns);
        Part {
            kind: Kind::Lines,
            name: line["name"].as_str().unwrap_or_default().into(),
            ns: each(ns),
            transfers: number(&line["transfers"]) / ops,
            who: None,
            writers: writers.map(|writers| writers as usize),
        }
    }));
    let known: f64 = parts.iter().map(|part| part.ns).sum();
    parts.push(wait(Kind::Work, "work", (op_ns - known).max(0.0)));
    parts.retain(|part| part.ns > 0.0);
    parts.sort_by(|one, other| other.ns.total_cmp(&one.ns));
    parts
}

/// Says who waits for the address-space lock.
fn lock_by(readers: f64, writers: f64) -> String {
    let share = writers / (readers + writers).max(1.0);
    match share {
        all if all >= 0.995 => "in mmap, munmap and other calls that change the map".to_owned(),
        none if none <= 0.005 => "in page faults".to_owned(),
        share => format!("{} of that in calls that change the map, the rest in page faults", Unit::Share.show(share)),
    }
}

/// Says for what a wait of that name is.
fn waited_for(name: &str) -> &str {
    match name {
        "sim:asleep" => "being woken by another thread",
        "sim:spinning" => "another CPU's next step",
        "sim:shootdown" => "TLB shootdowns",
        "sim:cpu" => "a CPU",
        "round" => "the other workers' part of a round",
        "rcu" => "the end of other CPUs' faults (a grace period)",
        "page_table" => "a page table's lock",
        "vma_lock" => "an area's lock",
        "mm_rb_lock" => "the area index's lock",
        "tlb_inbox" => "a lock of what CPUs are asked to flush",
        "rcu_scan" | "rcu_root" | "rcu_help" | "rcu_lists" => "a lock of grace periods",
        "zone" => "the frame allocator's lock",
        "slab" => "a lock of stored objects",
        "" => "locks without a name",
        other => other,
    }
}

/// What sets the most that a simulated machine can do, and the part of it that was reached.
#[derive(Clone, Debug, PartialEq)]
pub struct Ceiling {
    /// The cores, or the memory bus.
    pub set_by: String,
    /// The part.
    pub reached: f64,
}

impl Ceiling {
    /// Returns the ceiling of a figure's runs, if it was measured.
    pub fn of(arm: &Measured) -> Option<Self> {
        let linear = arm.more.get("linear")?;
        Some(Self { set_by: linear["set_by"].as_str()?.to_owned(), reached: linear["reached"].as_f64()? })
    }

    /// Says how near it a design is.
    pub fn told(&self, name: &str) -> String {
        let lets = if self.set_by == "cores" { "the cores can do" } else { "the memory bus lets through" };
        let reached = Unit::Share.show(self.reached);
        match (self.reached >= AT, &*self.set_by) {
            (true, "cores") => format!("{name} is as fast as the cores are: {reached} of what they can do"),
            (true, _) => format!("{name} is at the memory bus: {reached} of what it lets through"),
            (false, _) => format!("{name} reaches {reached} of what {lets}"),
        }
    }
}

/// From so much of a ceiling on a design is said to be at it.
const AT: f64 = 0.9;

impl Part {
    /// Says what it is, as in "An operation's time is ...".
    pub fn told(&self, cpus: usize) -> String {
        match (self.kind, self.writers) {
            (Kind::Work, _) => "work".into(),
            (Kind::Wait, _) if self.name == INTERRUPTS => "serving interrupts of other CPUs".into(),
            (Kind::Lock | Kind::Wait, _) => format!("waiting for {}", self.name),
            (Kind::Lines, Some(writers)) if writers > 1 => {
                let all = if writers == cpus { "all " } else { "" };
                format!("fetching one line that {all}{writers} CPUs write: {}", self.called())
            }
            (Kind::Lines, _) => format!("fetching lines that other CPUs had: {}", self.called()),
        }
    }

    /// Returns a line's name.
    pub fn called(&self) -> &str {
        if self.name.is_empty() { "without a name, as those of a CPU's own lists" } else { &self.name }
    }

    /// Says how often its lines moved, behind a comma; of the address-space lock, who waits.
    pub fn moved(&self) -> String {
        match (self.kind, &self.who) {
            (Kind::Lines, _) => format!(", {} transfers an operation", Unit::Count.show(self.transfers)),
            (_, Some(who)) => format!(" ({who})"),
            _ => String::new(),
        }
    }

    /// Says whether another design's part is the same.
    pub fn is_like(&self, other: &Part) -> bool {
        (self.kind, &self.name) == (other.kind, &other.name)
    }
}
