//! What both checks of schedules are told and show.

use clap::Args;
use faultless_machine::designs::DESIGNS;
use faultless_schedules::explore::ExploreSetup;
use faultless_schedules::worlds::{WORLDS, World};
use indicatif::ProgressBar;

use crate::choose;
use crate::choose::known;
use crate::message::Failure;
use crate::progress;

/// What both checks of schedules are told.
#[derive(Args)]
pub(super) struct ExploreArgs {
    /// Names the sequence of schedules: the same seed gives the same ones, on any machine. Example: --seed 7
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub(super) seed: u64,

    /// How many schedules of each design, all worlds together. Example: --runs 100000
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..), default_value_t = 10_000)]
    pub(super) runs: u64,

    /// Designs to explore; all of them unless named. Example: --design spf-v11,vma-lock
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    pub(super) design: Vec<String>,

    /// Semaphores beneath them, one for each program; all of them unless named. Example: --semaphore rwsem-v8
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    pub(super) semaphore: Vec<String>,

    /// Worlds to explore; all of them unless named. Example: --world fork,zap
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    pub(super) world: Vec<String>,

    /// How many CPUs of this machine explore; makes no difference to the result. All of them unless said. Example:
    /// --jobs 1
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..))]
    pub(super) jobs: Option<u16>,
}

impl ExploreArgs {
    pub(super) fn setup(&self) -> Result<ExploreSetup, Failure> {
        let worlds: Vec<&'static str> = WORLDS.iter().map(|world| world.name).collect();
        let worlds = known("world", &self.world, worlds)?;
        Ok(ExploreSetup {
            designs: known("design", &self.design, DESIGNS.to_vec())?,
            semaphores: choose::semaphores(&self.semaphore)?,
            worlds: worlds.iter().filter_map(|name| World::named(name)).collect(),
            seed: self.seed,
            runs: self.runs,
            mutant: None,
            jobs: self.jobs.map_or_else(faultless_machine::host::cpus, usize::from),
        })
    }
}

/// Returns a bar that is shown on a terminal only.
pub(super) fn progress_bar(schedules: u64) -> ProgressBar {
    let style = progress::style("exploring [{bar:40}] {pos} of {len} schedules, {eta} left");
    ProgressBar::new(schedules).with_style(style)
}
