//! `--placement`: where address spaces put mappings.

use clap::builder::PossibleValue;
use clap::{Args, ValueEnum};
use faultless_bench::measure::PlacementPolicy;

/// The arguments of whoever runs workloads.
#[derive(Args)]
pub struct PlacementArgs {
    /// Where address spaces put mappings that may lie anywhere; the host's kernel puts its own where it does. Without
    /// it, auto under faultless and linux under all others. Example: --placement spread
    #[arg(long, value_name = "POLICY", value_enum)]
    placement: Option<Policy>,
}

impl PlacementArgs {
    /// Returns the policy, if one was asked for.
    pub fn asked(&self) -> Option<PlacementPolicy> {
        self.placement.map(|policy| policy.0)
    }
}

#[derive(Clone, Copy)]
struct Policy(PlacementPolicy);

impl ValueEnum for Policy {
    fn value_variants<'a>() -> &'a [Self] {
        const { &[Self(PlacementPolicy::ALL[0]), Self(PlacementPolicy::ALL[1]), Self(PlacementPolicy::ALL[2])] }
    }

    fn to_possible_value(&self) -> Option<PossibleValue> {
        let help = match self.0 {
            PlacementPolicy::Linux => "Where Linux puts them: side by side, below one address",
            PlacementPolicy::Spread => "In a range of addresses for each CPU, as far as there is room",
            PlacementPolicy::Auto => {
                "As linux until a second thread has come and a second CPU maps, as spread from then on"
            }
        };
        Some(PossibleValue::new(self.0.name()).help(help))
    }
}
