//! `--machine` and `--jobs`, the same wherever something runs on a machine.

use clap::Args;
use faultless_machine::host;
use faultless_machine::simulated::{self, MachineChoice, MachineError};

use crate::message::Failure;
use crate::nearest::unknown;

/// Where to run.
#[derive(Args, Debug)]
pub struct MachineArgs {
    /// The machine to run on: native, a simulated one of `faultless machines`, or a machine file.
    /// Example: --machine skylake-192
    #[arg(long, value_name = "NAME|FILE", default_value = simulated::NATIVE)]
    machine: String,

    /// How many simulations run at once; as many as this machine has CPUs unless said. Results don't depend on it.
    /// Example: --jobs 1
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..))]
    jobs: Option<u16>,
}

impl MachineArgs {
    /// Returns the machine.
    pub fn choice(&self) -> Result<MachineChoice, Failure> {
        find(&self.machine)
    }

    /// Returns how many simulations run at once.
    pub fn jobs(&self) -> usize {
        self.jobs.map_or_else(host::cpus, usize::from)
    }
}

/// Returns the machine of a name or a file.
pub fn find(name: &str) -> Result<MachineChoice, Failure> {
    simulated::find(name).map_err(|error| match error {
        MachineError::Unknown(name) => {
            Failure::usage(format_args!("{}; or name a machine file", unknown("machine", &name, simulated::names())))
        }
        error => Failure::usage(error),
    })
}
