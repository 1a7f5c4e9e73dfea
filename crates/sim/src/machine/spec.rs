//! A machine file: TOML, every number with its source.
//!
//! # Guarantee
//! [`Spec::parse`] returns only machines that can be simulated; its errors name the key, the value and the limit.

use super::presets::MACHINES;
use serde::Deserialize;
use std::fmt;

/// A number of a machine file, and where it comes from.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, expecting = "a number with its source, such as { value = 3.5, source = \"measured\" }")]
pub struct Number {
    /// The value, in the unit that the key names.
    pub value: f64,
    /// A publication, a measurement, or the word `guessed`.
    pub source: String,
    /// Between what it lies, for one that was guessed: the least, and the most.
    #[serde(default)]
    pub range: Option<[f64; 2]>,
    /// Why the range is this one, or its source.
    #[serde(default)]
    pub because: String,
}

impl Number {
    /// Says whether nobody has measured it.
    pub fn is_guessed(&self) -> bool {
        self.source.starts_with("guessed")
    }
}

macro_rules! tables {
    ($($(#[$doc:meta])* $table:ident { $($(#[$key_doc:meta])* $key:ident: $least:literal ..= $most:literal,)+ })+) => {
        $(
            $(#[$doc])*
            #[derive(Clone, Debug, PartialEq, Deserialize)]
            #[serde(deny_unknown_fields, expecting = "a table of numbers")]
            pub(crate) struct $table { $($(#[$key_doc])* pub(crate) $key: Number,)+ }

            impl $table {
                /// Visits the numbers: key, number, least and most.
                fn visit<'a>(&'a self, visit: &mut dyn FnMut(&'static str, &'a Number, f64, f64)) {
                    $(visit(stringify!($key), &self.$key, f64::from($least), f64::from($most));)+
                }

                /// Returns the number of a key.
                fn slot(&mut self, key: &str) -> Option<&mut Number> {
                    match key {
                        $(stringify!($key) => Some(&mut self.$key),)+
                        _ => None,
                    }
                }
            }
        )+
    };
}

tables! {
    /// How CPUs are arranged. A complex is a group of cores that share a last-level cache; groups of sockets are far
    /// from each other.
    TopologyTable {
        sockets: 1..=64,
        sockets_per_group: 1..=64,
        complexes_per_socket: 1..=64,
        cores_per_complex: 1..=1024,
        threads_per_core: 1..=8,
    }
    /// What a CPU needs by itself, in ns. `fill_line_ns`: the instructions that fill a line of plain memory, besides
    /// those before its access. `sibling_slowdown`: how much longer one other busy thread of the core makes it take;
    /// each further one adds as much.
    CpuTable {
        instructions_ns: 0..=1000,
        fill_line_ns: 0..=1000,
        load_ns: 0..=1000,
        store_ns: 0..=1000,
        rmw_ns: 0..=1000,
        fence_ns: 0..=1000,
        pause_ns: 0..=1000,
        clock_ns: 0..=1000,
        sibling_slowdown: 1..=8,
    }
    /// What it takes until a line that another CPU has arrives, in ns.
    TransferTable {
        sibling_ns: 0..=100_000,
        complex_ns: 0..=100_000,
        socket_ns: 0..=100_000,
        remote_ns: 0..=100_000,
        far_ns: 0..=100_000,
    }
    /// How lines behave under contention.
    LineTable {
        hold_share: 0..=1,
        read_occupancy_ns: 0..=10_000,
        invalidate_each_ns: 0..=1000,
        notice_ns: 0..=100_000,
        migratory: 0..=1,
    }
    /// Memory, and what is done to whole pages. `interleave` 1: pages go round the sockets; 0: to the first that
    /// touches them. A page is hot in the core's cache, warm in the complex's, and cold in neither;
    /// `cache_kib_per_complex` 0: none is ever warm.
    MemoryTable {
        local_ns: 1..=100_000,
        remote_ns: 1..=100_000,
        far_ns: 1..=100_000,
        interleave: 0..=1,
        zero_hot_ns: 1..=100_000,
        zero_warm_ns: 1..=100_000,
        zero_cold_ns: 1..=100_000,
        copy_hot_ns: 1..=100_000,
        copy_warm_ns: 1..=100_000,
        copy_cold_ns: 1..=100_000,
        cache_kib_per_core: 1..=10_000_000,
        cache_kib_per_complex: 0..=100_000_000,
        bandwidth_gb_per_s: 0.01..=100_000,
    }
    /// Sleeping, waking and sharing a CPU, in ns.
    SchedulerTable {
        sleep_ns: 0..=10_000_000,
        wake_ns: 0..=10_000_000,
        wake_latency_ns: 0..=10_000_000,
        context_switch_ns: 0..=10_000_000,
        slice_ns: 1000..=10_000_000_000.0,
        start_ns: 0..=1_000_000_000,
    }
    /// Interrupts between CPUs, in ns.
    InterruptTable {
        send_each_ns: 0..=1_000_000,
        deliver_ns: 0..=1_000_000,
        deliver_remote_ns: 0..=1_000_000,
        handle_ns: 0..=1_000_000,
    }
    /// What the hardware and the kernel's entry code take beyond the library's own instructions, in ns; 0 where guests
    /// are the library's own.
    EntryTable {
        exception_ns: 0..=1_000_000,
        call_ns: 0..=1_000_000,
    }
    /// Idle states, the shallowest first: what it takes to leave each, and how long a CPU must be idle for it to be
    /// worth it; and the time between a busy CPU's ticks. The first one's exit is in `scheduler.wake_latency_ns`.
    IdleTable {
        exit_1_ns: 0..=10_000_000,
        residency_1_ns: 0..=100_000_000,
        exit_2_ns: 0..=10_000_000,
        residency_2_ns: 0..=100_000_000,
        exit_3_ns: 0..=10_000_000,
        residency_3_ns: 0..=100_000_000,
        exit_4_ns: 0..=10_000_000,
        residency_4_ns: 0..=100_000_000,
        tick_ns: 1000..=1_000_000_000,
    }
    /// The governor of idle states in whole numbers, as the kernel has it: it predicts a share of the time to the next
    /// timer; timers of a CPU are so far apart.
    GovernorTable {
        timer_us: 100..=60_000_000,
    }
}

/// A machine to simulate.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Spec {
    name: String,
    description: String,
    pub(crate) topology: TopologyTable,
    pub(crate) cpu: CpuTable,
    pub(crate) read: TransferTable,
    pub(crate) write: TransferTable,
    pub(crate) line: LineTable,
    pub(crate) memory: MemoryTable,
    pub(crate) scheduler: SchedulerTable,
    pub(crate) interrupt: InterruptTable,
    pub(crate) entry: EntryTable,
    /// What is asleep for long wakes late; without it all wake alike.
    #[serde(default)]
    pub(crate) idle: Option<IdleTable>,
    /// With it a CPU's idle time is predicted in whole numbers.
    #[serde(default)]
    pub(crate) governor: Option<GovernorTable>,
}

/// Why a machine file can't be used.
#[derive(Clone, Debug, PartialEq)]
pub enum SpecError {
    /// It is not TOML, or a key is missing, unknown or of the wrong type; the parser's words, with the line.
    Syntax(String),
    /// A number is absurd.
    OutOfRange {
        /// Which.
        key: String,
        /// What it says.
        value: f64,
        /// The least that makes sense.
        least: f64,
        /// The most that makes sense.
        most: f64,
    },
    /// A number that must be whole isn't.
    NotWhole {
        /// Which.
        key: String,
        /// What it says.
        value: f64,
    },
    /// A number has no source.
    NoSource {
        /// Which.
        key: String,
    },
    /// A range leaves out the number that it is about, or what makes sense; or a machine of that topology would be
    /// another one.
    BadRange {
        /// Whose.
        key: String,
        /// The least, and the most.
        range: [f64; 2],
        /// What the number says.
        value: f64,
    },
    /// Nothing says why a range is this one.
    NoReason {
        /// Whose.
        key: String,
    },
    /// The machine has no name, or one that can't be told from a path.
    BadName {
        /// What it says.
        name: String,
    },
    /// More CPUs than anything here can count.
    TooManyCpus {
        /// How many the topology gives.
        cpus: f64,
        /// The limit.
        most: usize,
    },
    /// Sockets can't be divided into groups of this size.
    UnevenGroups {
        /// All sockets.
        sockets: f64,
        /// Sockets of a group.
        per_group: f64,
    },
    /// A nearer level costs more than a farther one.
    Order {
        /// The nearer level's key.
        near: String,
        /// Its value.
        near_value: f64,
        /// The farther level's key.
        far: String,
        /// Its value.
        far_value: f64,
    },
}

impl fmt::Display for SpecError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Syntax(words) => write!(out, "not a machine file: {}", words.trim_end()),
            Self::OutOfRange { key, value, least, most } => {
                write!(out, "{key} = {value} makes no sense: it is between {least} and {most}")
            }
            Self::NotWhole { key, value } => write!(out, "{key} = {value}: a whole number is wanted"),
            Self::NoSource { key } => write!(out, "{key} has an empty source: name one, or write \"guessed\""),
            Self::BadRange { key, range: [low, high], value } => {
                write!(out, "{key} has the range [{low}, {high}]: ")?;
                match key.starts_with("topology.") {
                    true => write!(out, "a machine of another topology is another machine"),
                    false => write!(out, "it must hold the value {value} and make sense itself"),
                }
            }
            Self::NoReason { key } => write!(out, "{key} has a range: `because` must say why it is this one"),
            Self::BadName { name } => {
                write!(out, "name = {name:?}: a machine's name is made of letters, digits and dashes")
            }
            Self::TooManyCpus { cpus, most } => {
                write!(out, "topology gives {cpus} CPUs: a machine has at most {most}")
            }
            Self::UnevenGroups { sockets, per_group } => write!(
                out,
                "topology.sockets_per_group = {per_group} does not divide topology.sockets = {sockets} evenly"
            ),
            Self::Order { near, near_value, far, far_value } => {
                write!(out, "{near} = {near_value} is more than {far} = {far_value}, which is farther away")
            }
        }
    }
}

impl std::error::Error for SpecError {}

impl Spec {
    /// Reads a machine file.
    pub fn parse(text: &str) -> Result<Self, SpecError> {
        let spec: Self = toml::from_str(text).map_err(|error| SpecError::Syntax(error.to_string()))?;
        spec.check()?;
        Ok(spec)
    }

    /// Returns the machine of that name among those that come with the program.
    pub fn preset(name: &str) -> Option<Self> {
        let (_, text) = MACHINES.iter().find(|(known, _)| *known == name)?;
        Self::parse(text).ok()
    }

    /// Returns the name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns a line that says what it is.
    pub fn description(&self) -> &str {
        &self.description
    }

    /// Returns how many CPUs it has.
    pub fn nr_cpus(&self) -> usize {
        let table = &self.topology;
        [&table.sockets, &table.complexes_per_socket, &table.cores_per_complex, &table.threads_per_core]
            .iter()
            .map(|number| number.value as usize)
            .product()
    }

    /// Returns the value of `table.key`.
    pub fn number(&self, path: &str) -> Option<f64> {
        let mut value = None;
        self.for_each_number(|key, number| value = value.or((key == path).then_some(number.value)));
        value
    }

    /// Visits all numbers by key.
    pub fn for_each_number(&self, mut visit: impl FnMut(&str, &Number)) {
        self.visit(&mut |table, key, number, _, _| visit(&format!("{table}.{key}"), number));
    }

    /// Returns the file with one number replaced; for calibration and experiments.
    pub fn with_number(mut self, key: &str, value: f64, source: &str) -> Result<Self, SpecError> {
        match self.slot(key) {
            Some(slot) => *slot = Number { value, source: source.to_owned(), range: None, because: String::new() },
            None => return Err(SpecError::Syntax(format!("there is no number {key}"))),
        }
        self.check()?;
        Ok(self)
    }

    /// Returns the number of `table.key`.
    pub(super) fn slot(&mut self, path: &str) -> Option<&mut Number> {
        let (table, key) = path.split_once('.')?;
        macro_rules! choose {
            ($($name:ident),+) => {
                match table {
                    $(stringify!($name) => self.$name.slot(key),)+
                    "idle" => self.idle.as_mut()?.slot(key),
                    "governor" => self.governor.as_mut()?.slot(key),
                    _ => None,
                }
            };
        }
        choose!(topology, cpu, read, write, line, memory, scheduler, interrupt, entry)
    }

    /// Returns the machine as a file.
    pub fn to_toml(&self) -> String {
        let quoted = |text: &str| toml::Value::String(text.to_owned()).to_string();
        let mut text = format!("name = {}\ndescription = {}\n", quoted(&self.name), quoted(&self.description));
        let mut last = "";
        self.visit(&mut |table, key, number, _, _| {
            if std::mem::replace(&mut last, table) != table {
                text.push_str(&format!("\n[{table}]\n"));
            }
            text.push_str(&format!("{key} = {{ value = {}, source = {}", number.value, quoted(&number.source)));
            if let Some([low, high]) = number.range {
                text.push_str(&format!(", range = [{low:?}, {high:?}], because = {}", quoted(&number.because)));
            }
            text.push_str(" }\n");
        });
        text
    }

    /// Returns the machine under another description.
    pub fn described(mut self, description: &str) -> Self {
        description.clone_into(&mut self.description);
        self
    }

    fn visit<'a>(&'a self, visit: &mut dyn FnMut(&'static str, &'static str, &'a Number, f64, f64)) {
        macro_rules! each {
            ($($table:ident),+) => {
                $(self.$table.visit(&mut |key, number, least, most| visit(stringify!($table), key, number, least, most));)+
            };
        }
        each!(topology, cpu, read, write, line, memory, scheduler, interrupt, entry);
        if let Some(idle) = &self.idle {
            idle.visit(&mut |key, number, least, most| visit("idle", key, number, least, most));
        }
        if let Some(governor) = &self.governor {
            governor.visit(&mut |key, number, least, most| visit("governor", key, number, least, most));
        }
    }

    fn check(&self) -> Result<(), SpecError> {
        let is_plain = |c: char| c.is_ascii_alphanumeric() || c == '-';
        if self.name.is_empty() || !self.name.chars().all(is_plain) {
            return Err(SpecError::BadName { name: self.name.clone() });
        }
        let mut result = Ok(());
        self.visit(&mut |table, key, number, least, most| {
            if result.is_ok() {
                result = check_number(&format!("{table}.{key}"), number, least, most);
            }
        });
        result?;
        if self.governor.is_some() && self.idle.is_none() {
            return Err(SpecError::Syntax(
                "a table governor, but no table idle: it would choose among no states".into(),
            ));
        }
        self.check_topology()?;
        check_order("read", &self.read)?;
        check_order("write", &self.write)
    }

    fn check_topology(&self) -> Result<(), SpecError> {
        let most = faultless_platform::MAX_CPUS;
        let mut cpus = 1.0;
        let mut wrong = None;
        self.topology.visit(&mut |key, number, _, _| {
            if number.value.fract() != 0.0 {
                wrong = Some(SpecError::NotWhole { key: format!("topology.{key}"), value: number.value });
            }
            cpus *= if key == "sockets_per_group" { 1.0 } else { number.value };
        });
        let (sockets, per_group) = (self.topology.sockets.value, self.topology.sockets_per_group.value);
        match wrong {
            Some(error) => Err(error),
            None if cpus > most as f64 => Err(SpecError::TooManyCpus { cpus, most }),
            None if sockets % per_group != 0.0 => Err(SpecError::UnevenGroups { sockets, per_group }),
            None => Ok(()),
        }
    }
}

fn check_number(key: &str, number: &Number, least: f64, most: f64) -> Result<(), SpecError> {
    if !(least..=most).contains(&number.value) {
        return Err(SpecError::OutOfRange { key: key.to_owned(), value: number.value, least, most });
    }
    if number.source.trim().is_empty() {
        return Err(SpecError::NoSource { key: key.to_owned() });
    }
    if is_whole(key) && number.value.fract() != 0.0 {
        return Err(SpecError::NotWhole { key: key.to_owned(), value: number.value });
    }
    check_range(key, number, least, most)
}

/// Says whether a number of that key, besides those of the topology, is a choice and no size.
pub(super) fn is_whole(key: &str) -> bool {
    matches!(key, "line.migratory" | "memory.interleave")
}

fn check_range(key: &str, number: &Number, least: f64, most: f64) -> Result<(), SpecError> {
    let Some([low, high]) = number.range else { return Ok(()) };
    let is_ordered = least <= low && low <= number.value && number.value <= high && high <= most;
    if !is_ordered || key.starts_with("topology.") {
        return Err(SpecError::BadRange { key: key.to_owned(), range: [low, high], value: number.value });
    }
    match number.because.trim().is_empty() {
        true => Err(SpecError::NoReason { key: key.to_owned() }),
        false => Ok(()),
    }
}

fn check_order(table: &str, transfer: &TransferTable) -> Result<(), SpecError> {
    let mut before: Option<(&str, f64)> = None;
    let mut result = Ok(());
    transfer.visit(&mut |key, number, _, _| {
        if let Some((near, near_value)) = before
            && near_value > number.value
            && result.is_ok()
        {
            let (near, far) = (format!("{table}.{near}"), format!("{table}.{key}"));
            result = Err(SpecError::Order { near, near_value, far, far_value: number.value });
        }
        before = Some((key, number.value));
    });
    result
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text() -> String {
        MACHINES[0].1.to_owned()
    }

    fn replaced(from: &str, to: &str) -> Result<Spec, SpecError> {
        let text = text();
        let line = text.lines().find(|line| line.starts_with(from)).expect("the key is in the file").to_owned();
        Spec::parse(&text.replace(&line, to))
    }

    #[test]
    fn all_presets_are_whole_and_say_where_their_numbers_are_from() {
        for (name, text) in MACHINES {
            let spec = Spec::parse(text).unwrap_or_else(|error| panic!("{name}: {error}"));
            assert_eq!(spec.name(), *name);
            let mut numbers = 0;
            spec.for_each_number(|key, number| {
                numbers += usize::from(!number.source.is_empty());
                assert!(!number.is_guessed() || number.range.is_some(), "{name}: {key} is guessed, and has no range");
            });
            assert!(numbers > 40);
        }
    }

    #[test]
    fn a_missing_number_is_named() {
        let error = replaced("rmw_ns", "").expect_err("a number is missing");
        assert!(error.to_string().contains("rmw_ns"), "{error}");
    }

    #[test]
    fn an_absurd_number_is_named_with_its_value_and_limits() {
        let error = replaced("rmw_ns", "rmw_ns = { value = -3, source = \"guessed\" }").expect_err("negative");
        assert_eq!(error.to_string(), "cpu.rmw_ns = -3 makes no sense: it is between 0 and 1000");
        assert!(replaced("rmw_ns", "rmw_ns = { value = nan, source = \"guessed\" }").is_err());
        assert!(replaced("sockets ", "sockets = { value = 1.5, source = \"guessed\" }").is_err());
        let many = replaced("cores_per_complex", "cores_per_complex = { value = 1024, source = \"guessed\" }");
        assert!(matches!(many, Err(SpecError::TooManyCpus { .. })), "{many:?}");
    }

    #[test]
    fn a_number_without_a_source_and_an_unknown_key_are_refused() {
        let error = replaced("rmw_ns", "rmw_ns = { value = 3, source = \" \" }").expect_err("no source");
        assert_eq!(error, SpecError::NoSource { key: "cpu.rmw_ns".into() });
        let told = replaced("rmw_ns", "rmw_ns = 3").expect_err("a bare number").to_string();
        assert!(told.contains("rmw_ns = 3") && !told.contains("struct"), "{told}");
        let wanted = "integer `3`, expected a number with its source, such as { value = 3.5, source = \"measured\" }";
        assert!(told.contains(wanted), "{told}");
        let told = Spec::parse("name = \"a\"\ndescription = \"b\"\ncpu = 3\n").expect_err("a bare table").to_string();
        assert!(told.contains("integer `3`, expected a table of numbers"), "{told}");
        let twice = replaced("rmw_ns", "rmw_ns = { value = 3, source = \"a\" }\nspeed = 3").expect_err("unknown");
        assert!(twice.to_string().contains("speed"), "{twice}");
    }

    #[test]
    fn a_range_holds_its_number_and_has_a_reason() {
        let with = |rest: &str| replaced("rmw_ns", &format!("rmw_ns = {{ value = 3, source = \"guessed\", {rest} }}"));
        assert!(with("range = [3, 3.5], because = \"of cycles\"").is_ok());
        let told = |rest: &str| with(rest).expect_err("a bad range").to_string();
        assert_eq!(told("range = [3, 4]"), "cpu.rmw_ns has a range: `because` must say why it is this one");
        let outside = "cpu.rmw_ns has the range [3.5, 4]: it must hold the value 3 and make sense itself";
        assert_eq!(told("range = [3.5, 4], because = \"x\""), outside);
        assert!(with("range = [4, 2], because = \"x\"").is_err() && with("range = [2, nan], because = \"x\"").is_err());
        let sockets = "sockets = { value = 1, source = \"guessed\", range = [1, 2], because = \"x\" }";
        assert!(replaced("sockets ", sockets).expect_err("topology").to_string().ends_with("is another machine"));
    }

    #[test]
    fn a_near_line_is_not_farther_than_a_far_one() {
        let spec = Spec::parse(&text()).expect("a preset");
        let error = spec.with_number("read.sibling_ns", 9999.0, "guessed").expect_err("too far");
        assert!(error.to_string().starts_with("read.sibling_ns = 9999 is more than read.complex_ns"), "{error}");
    }

    #[test]
    fn a_machine_that_is_written_is_read_again() {
        let spec = Spec::parse(&text()).expect("a preset").described("with \"quotes\" and a \\");
        assert_eq!(Spec::parse(&spec.to_toml()), Ok(spec));
    }

    #[test]
    fn every_number_can_be_replaced() {
        let spec = Spec::parse(&text()).expect("a preset");
        let mut keys = Vec::new();
        spec.for_each_number(|key, number| keys.push((key.to_owned(), number.value)));
        for (key, value) in keys {
            let changed = spec.clone().with_number(&key, value, "a test").expect("the same value");
            changed.for_each_number(|other, number| assert_eq!(number.source == "a test", other == key, "{other}"));
        }
    }
}
