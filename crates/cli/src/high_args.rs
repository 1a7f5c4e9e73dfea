//! What lies in high memory: flags of `bench` and `stat`.

use clap::{Args, ValueEnum};
use faultless_bench::high::{Brief, Lies, Memory};
use faultless_kmap::Costs;
use faultless_plan::Pace;

use crate::kmap_args::KmapArgs;
use crate::message::Failure;
use crate::size;

/// What lies in high memory.
#[derive(Args, Debug)]
pub struct HighArgs {
    /// Where leaf page tables lie, on a simulated machine: in normal memory, or in high memory, which has no addresses:
    /// then each look at their entries is a map under the --scheme. Example: --tables high
    #[arg(long, value_name = "ZONE", value_enum)]
    tables: Option<Zone>,

    /// Where page tables above the leaves lie; in high memory, each entry that a walk of the kernel's reads is a map.
    /// Example: --upper-tables high
    #[arg(long, value_name = "ZONE", value_enum)]
    upper_tables: Option<Zone>,

    /// Where pages lie, of files and programs' own: those of high memory are mapped to be cleared, copied, or read by a
    /// call. Example: --pages high
    #[arg(long, value_name = "ZONE", value_enum)]
    pages: Option<Zone>,

    /// Where pages of files lie, whatever --pages says. Example: --files high
    #[arg(long, value_name = "ZONE", value_enum)]
    files: Option<Zone>,

    /// Where programs' own pages lie, whatever --pages says. Example: --anonymous high
    #[arg(long, value_name = "ZONE", value_enum)]
    anonymous: Option<Zone>,

    /// How much of memory has addresses, from its begin on: the rest is high memory, and what may not lie there never
    /// does. Unless said, high memory is a set: the frames of what lies there, taken from the kernel's own map when
    /// they are handed out. Example: --boundary 64M
    #[arg(long, value_name = "SIZE", value_parser = size::parse_memory)]
    boundary: Option<usize>,

    /// Of a compile with --tables or --pages: whether compilers compute between their calls and faults, as recorded, or
    /// not at all. Example: --pace recorded
    #[arg(long, value_name = "PACE", value_enum)]
    pace: Option<Pacing>,
}

/// A part of memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Zone {
    /// It has addresses.
    Normal,
    /// It has none.
    High,
}

/// Whether programs compute.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Pacing {
    /// Not at all.
    None,
    /// As recorded.
    Recorded,
}

impl HighArgs {
    /// Says whether any of them was given.
    pub fn is_any(&self) -> bool {
        self.zones().iter().any(|(_, zone)| zone.is_some()) || self.boundary.is_some() || self.pace.is_some()
    }

    /// Returns what lies in high memory.
    pub fn lies(&self) -> Lies {
        let is_high = |zone: Option<Zone>| zone == Some(Zone::High);
        Lies {
            tables: is_high(self.tables),
            upper_tables: is_high(self.upper_tables),
            files: is_high(self.files.or(self.pages)),
            anonymous: is_high(self.anonymous.or(self.pages)),
        }
    }

    /// Returns the zones as they were given.
    fn zones(&self) -> [(&'static str, Option<Zone>); 5] {
        [
            ("tables", self.tables),
            ("upper-tables", self.upper_tables),
            ("pages", self.pages),
            ("files", self.files),
            ("anonymous", self.anonymous),
        ]
    }

    /// Returns the pace of a compile.
    pub fn pace(&self) -> Pace {
        if self.pace == Some(Pacing::Recorded) { Pace::Recorded } else { Pace::None }
    }

    /// Returns the flags as they were given.
    pub fn typed(&self) -> String {
        let zone = |(name, zone): (&str, Option<Zone>)| match zone {
            None => String::new(),
            Some(Zone::Normal) => format!(" --{name} normal"),
            Some(Zone::High) => format!(" --{name} high"),
        };
        let pace = match self.pace {
            None => "",
            Some(Pacing::None) => " --pace none",
            Some(Pacing::Recorded) => " --pace recorded",
        };
        let boundary = self.boundary.map_or_else(String::new, |bytes| format!(" --boundary {bytes}"));
        [self.zones().map(zone).concat(), boundary, pace.to_owned()].concat()
    }

    /// Returns the high memory under each scheme that was asked for; none if all memory has addresses.
    pub fn memories(&self, kmap: &KmapArgs) -> Result<Vec<Memory>, Failure> {
        let lies = self.lies();
        if lies == Lies::default() {
            return Ok(Vec::new());
        }
        let schemes = kmap.schemes()?;
        let boundary_bytes = self.boundary;
        let of = |scheme| {
            let (slots, costs) = (kmap.nr_slots(), Costs::default());
            Memory { lies, boundary_bytes, scheme, slots, costs, is_metered: false, brief: Brief::ByScheme }
        };
        Ok(schemes.into_iter().map(of).collect())
    }
}
