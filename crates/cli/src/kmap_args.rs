//! The flags of the workload kmap.

use clap::Args;
use faultless_bench::kmap::KmapLoad;
use faultless_kmap::registry::SCHEMES;
use faultless_kmap::{Costs, NEST_MOST, pool};
use faultless_machine::high::may_sleep;

use crate::choose::known;
use crate::duration::{self, Written};
use crate::message::Failure;

/// How long a run is, after as long a warm-up, unless told.
const SIMULATED_NS: u64 = 40_000_000;

/// The flags of the workload kmap alone.
#[derive(Args, Debug)]
pub struct KmapArgs {
    /// Of the workload kmap, and with --tables or --pages: schemes of kernel maps, or all of them. Example: --scheme
    /// pool,atomic,local
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    scheme: Vec<String>,

    /// Of the workload kmap: frames to choose from; 4096 unless said. Example: --frames 500
    #[arg(long, value_name = "F", value_parser = clap::value_parser!(u32).range(1..=1 << 22))]
    frames: Option<u32>,

    /// Of the workload kmap: how long a map is held, no longer than a run; 200ns unless said. Example: --hold 5us
    #[arg(long, value_name = "TIME", value_parser = duration::parse_written)]
    hold: Option<Written>,

    /// Of the workload kmap: maps that a thread holds at a time; one unless said, or two with --copy; four at most.
    /// Example: --nest 2
    #[arg(long, value_name = "D", value_parser = clap::value_parser!(u8).range(1..=pool::CLASSES.min(NEST_MOST) as i64))]
    nest: Option<u8>,

    /// Of the workload kmap: of 100 maps so many are of the frame that the thread mapped before; 0 unless said.
    /// Example: --reuse 80
    #[arg(long, value_name = "P", value_parser = clap::value_parser!(u8).range(0..=100))]
    reuse: Option<u8>,

    /// Of the workload kmap: while both are mapped, the first frame of each round is copied into the second. Example:
    /// --copy
    #[arg(long)]
    copy: bool,

    /// Of the workload kmap: threads beside the others that sleep while they hold maps, so that a pool gets full; for
    /// schemes that allow it, which atomic does not. Example: --sleepers 128
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1 << 12))]
    sleepers: Option<u32>,

    /// Of the workload kmap: how long each of the --sleepers sleeps with its maps, and then without; 1ms unless said.
    /// Example: --sleep 5ms
    #[arg(long, value_name = "TIME", value_parser = duration::parse_written, requires = "sleepers")]
    sleep: Option<Written>,

    /// With --scheme: slots of a pool; 1024 unless said. Example: --slots 128
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(2..=1 << 16))]
    slots: Option<u32>,
}

impl KmapArgs {
    /// Says whether any of them was given.
    pub fn is_any(&self) -> bool {
        !self.scheme.is_empty() || self.typed() != ""
    }

    /// Returns the flags as they were given, without the scheme.
    pub fn typed(&self) -> String {
        let number =
            |name: &str, value: Option<u64>| value.map_or_else(String::new, |value| format!(" --{name} {value}"));
        let time = |name: &str, value: Option<&Written>| {
            value.map_or_else(String::new, |time| format!(" --{name} {}", time.text))
        };
        [
            number("frames", self.frames.map(Into::into)),
            time("hold", self.hold.as_ref()),
            number("nest", self.nest.map(Into::into)),
            number("reuse", self.reuse.map(Into::into)),
            if self.copy { " --copy".to_owned() } else { String::new() },
            number("sleepers", self.sleepers.map(Into::into)),
            time("sleep", self.sleep.as_ref()),
            number("slots", self.slots.map(Into::into)),
        ]
        .concat()
    }

    /// Returns the slots of a pool.
    pub fn nr_slots(&self) -> usize {
        self.slots.unwrap_or(1024) as usize
    }

    /// Says whether a flag was given that the workload kmap alone has.
    pub fn has_own(&self) -> bool {
        self.frames.is_some()
            || self.hold.is_some()
            || self.nest.is_some()
            || self.reuse.is_some()
            || self.copy
            || self.sleepers.is_some()
    }

    /// Returns what each thread does.
    pub fn load(&self, processes: bool, duration_ns: Option<u64>) -> Result<KmapLoad, Failure> {
        let ns = |written: &Option<Written>, usual: u64| written.as_ref().map_or(usual, |written| written.ns);
        let nest = self.nest.unwrap_or(if self.copy { 2 } else { 1 });
        if self.copy && (nest < 2 || self.frames == Some(1)) {
            return Err(Failure::usage("--copy takes two frames: --nest must be 2 or more, and so must --frames"));
        }
        if self.sleepers.is_some()
            && let Some(scheme) = self.schemes()?.iter().find(|scheme| may_sleep(scheme) == Some(false))
        {
            let why = format!("under {scheme} nobody sleeps while holding a map: leave it or --sleepers out");
            return Err(Failure::usage(why));
        }
        let duration_ns = duration_ns.unwrap_or(SIMULATED_NS);
        self.hold.iter().try_for_each(|hold| hold.check_within("--hold", duration_ns))?;
        Ok(KmapLoad {
            frames: self.frames.unwrap_or(4096) as usize,
            hold_ns: ns(&self.hold, 200),
            nest: nest.into(),
            copies: self.copy,
            sleepers: self.sleepers.unwrap_or(0) as usize,
            sleep_ns: ns(&self.sleep, 1_000_000),
            reuse_percent: self.reuse.unwrap_or(0).into(),
            slots: self.nr_slots(),
            processes,
            costs: Costs::default(),
            duration_ns,
        })
    }

    /// Returns the schemes that were asked for.
    pub fn schemes(&self) -> Result<Vec<String>, Failure> {
        let has_all = self.scheme.iter().any(|scheme| scheme == "all");
        known("scheme", if has_all { &[] } else { &self.scheme }, SCHEMES.to_vec())
    }
}
