//! Workloads on a simulated machine whose page tables, or pages, lie in high memory.
//!
//! # Guarantee
//! * I1 what lies there, what is a map, and what is counted is said in [`faultless_machine::high`]; maps are those of
//!   the workload's window
//! * I2 schemes whose maps sleep map tables under the design `mmap-sem` alone, because the others do it inside
//!   read-side sections, where nobody may sleep
//! * I3 the recorded programs' threads are processes, and so are the workers of a workload of processes

use std::sync::Arc;

use faultless_kmap::{Costs, Shape};
use faultless_linux::space::has_interrupt;
use faultless_machine::high::{When, Zones, maps};
use faultless_machine::host_frames::alone;
use faultless_machine::session::arms_in_parallel;
use faultless_machine::simulated::{Spec, with_rerun};
use faultless_machine::watch::{self, All, LockTable, LockWatch, Simulated};
use faultless_pass::Replayer;
use faultless_plan::Pace;
use faultless_platform::PAGE_BYTES;
use faultless_platform::watched::Sink;
use faultless_sim::{Machine, Sim, isolate};
use faultless_workloads::Spec as Workload;
use serde_json::{Map, Value};

pub use faultless_machine::high::{Brief, Counted, Lies};

pub use crate::measure::compile::{Sources, Start};

use crate::measure::compile::{self, Files, Manner, Needs};
use crate::measure::{self, Job, Length, MeasureError, Mode, NoSite, PlacementPolicy, Run};

/// Memory of a workload that maps little; a compile has what it needs.
const MEMORY_BYTES: usize = 128 << 20;

/// The design that every scheme runs under.
pub const DESIGN: &str = "mmap-sem";

/// High memory, and how it gets addresses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Memory {
    /// What lies there.
    pub lies: Lies,
    /// Bytes of normal memory, from the first frame on; those behind have no address. If nothing, what `lies` says has
    /// none, wherever it is.
    pub boundary_bytes: Option<usize>,
    /// The scheme.
    pub scheme: String,
    /// Slots of a pool.
    pub slots: usize,
    /// What the hardware's part costs.
    pub costs: Costs,
    /// Whether the pool's lock is metered as lockmeter did it.
    pub is_metered: bool,
    /// Where maps are made that nobody keeps over a sleep.
    pub brief: Brief,
}

impl Memory {
    /// Returns the flags that ask for it.
    pub fn params(&self) -> Map<String, Value> {
        let Lies { tables, upper_tables, files, anonymous } = self.lies;
        let lies = [("tables", tables), ("upper_tables", upper_tables), ("files", files), ("anonymous", anonymous)];
        let lies = lies.map(|(name, is_high)| (name.to_owned(), is_high.into()));
        let rest = [
            ("scheme".to_owned(), self.scheme.as_str().into()),
            ("slots".to_owned(), self.slots.into()),
            ("boundary_bytes".to_owned(), self.boundary_bytes.into()),
        ];
        lies.into_iter().chain(rest).collect()
    }
}

/// A run to make.
#[derive(Clone, Debug)]
pub struct HighArm {
    /// The workload. A compile is one for each CPU, whatever the duration.
    pub workload: Workload,
    /// How long other workloads work.
    pub duration_ns: u64,
    /// Whether workers share an address space; compiles never do.
    pub mode: Mode,
    /// What lies in high memory; nothing if all frames have addresses.
    pub high: Option<Memory>,
    /// CPUs, and workers.
    pub cpus: usize,
    /// Whether compilers compute between their calls and faults as recorded.
    pub pace: Pace,
    /// When compilers begin.
    pub start: Start,
    /// What they compile.
    pub sources: Sources,
    /// The locking design.
    pub design: String,
    /// The semaphore beneath it.
    pub semaphore: String,
    /// Who replays recordings.
    pub replayer: &'static dyn Replayer,
}

/// What came of a run.
#[derive(Clone, Debug)]
pub struct Made {
    /// The workload's own.
    pub run: Run,
    /// The maps.
    pub counted: Counted,
    /// What locks cost.
    pub locks: LockTable,
}

/// Makes every arm's runs, under the seeds `seeds`; in the order of the arms. An interrupt ends it with what there is.
pub fn run(
    spec: &Spec,
    arms: &[HighArm],
    seeds: std::ops::Range<u64>,
    jobs: usize,
    ended: impl FnMut(usize),
) -> Result<Vec<Vec<Made>>, MeasureError> {
    let one = |arm: usize, seed: u64| once(spec, &arms[arm], seed, Vec::new());
    arms_in_parallel(arms.len(), seeds, jobs, has_interrupt, one, ended)
}

/// Makes one run, and tells `sinks` what happens.
pub fn once(spec: &Spec, arm: &HighArm, seed: u64, sinks: Vec<Arc<dyn Sink>>) -> Result<Made, MeasureError> {
    let job = arm.job();
    let all = MEMORY_BYTES / PAGE_BYTES;
    let needs = match arm.workload.workload.is_recorded() {
        true => compile::needs(&job, arm.sources)?,
        false => Needs { frames: all, processes: if arm.mode == Mode::Processes { arm.cpus } else { 1 } },
    };
    let result = isolate(|| {
        let machine = Machine::new(spec, arm.cpus, seed).map_err(MeasureError::TooManyCpus)?;
        on_machine(machine, arm, &job, needs, sinks)
    });
    result.unwrap_or_else(|failure| Err(MeasureError::Simulation(with_rerun(failure, seed))))
}

impl HighArm {
    fn job(&self) -> Job {
        Job {
            spec: self.workload.clone(),
            design: self.design.clone(),
            semaphore: self.semaphore.clone(),
            cpus: self.cpus,
            mode: self.mode,
            length: Length::Fixed(if self.workload.workload.is_recorded() { 1 } else { self.duration_ns }),
            memory_bytes: (!self.workload.workload.is_recorded()).then_some(MEMORY_BYTES),
            placement: PlacementPolicy::Linux,
            replayer: Some(self.replayer),
        }
    }
}

/// Runs the workload on a machine.
fn run_on(machine: &watch::Machine<Sim>, arm: &HighArm, job: &Job) -> Result<Run, MeasureError> {
    let manner = Manner { pace: arm.pace, files: Files::Moved, start: arm.start, sources: arm.sources };
    match arm.workload.workload.is_recorded() {
        true => compile::once_at::<Simulated>(machine, job, manner, &has_interrupt),
        false => measure::once::<Simulated>(machine, job, &NoSite, &has_interrupt),
    }
}

/// Gives the machine its high memory, if the arm has some, and runs the workload.
fn on_machine(
    machine: Machine,
    arm: &HighArm,
    job: &Job,
    needs: Needs,
    mut sinks: Vec<Arc<dyn Sink>>,
) -> Result<Made, MeasureError> {
    let locks = Arc::new(LockWatch::default());
    sinks.push(locks.clone());
    let Some(high) = &arm.high else {
        let machine = watch::Machine::<Sim>::new(machine, Arc::new(All(sinks)));
        let run = run_on(&machine, arm, job)?;
        return Ok(Made { run, counted: Counted::default(), locks: locks.table(arm.cpus) });
    };
    let shape = Shape {
        nr_cpus: arm.cpus,
        nr_frames: needs.frames,
        nr_slots: high.slots,
        nr_processes: needs.processes,
        costs: high.costs,
        is_metered: high.is_metered,
    };
    let zones = Zones { lies: high.lies, boundary_bytes: high.boundary_bytes, when: When::InWindow, brief: high.brief };
    let unknown = || MeasureError::Message(format!("there is no scheme {}", high.scheme));
    let maps = maps::<Simulated>(&high.scheme, zones, shape).ok_or_else(unknown)?;
    if maps.map_sleeps() && high.lies.has_tables() && arm.design != DESIGN {
        let why = format!("{} may sleep: it runs under the design {DESIGN} alone", high.scheme);
        return Err(MeasureError::Message(why));
    }
    sinks.push(maps.clone());
    let machine = watch::Machine::<Sim>::new(machine, Arc::new(All(sinks))).with_high_memory(maps.clone());
    alone::<Simulated, _>(&machine, || maps.begin());
    let run = run_on(&machine, arm, job);
    let counted = maps.counted();
    alone::<Simulated, _>(&machine, || maps.end());
    Ok(Made { run: run?, counted, locks: locks.table(arm.cpus) })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn arm(scheme: Option<&str>, lies: Lies, cpus: usize) -> HighArm {
        let high = |scheme: &str| Memory {
            lies,
            boundary_bytes: None,
            scheme: scheme.into(),
            slots: 16,
            costs: Costs::default(),
            is_metered: false,
            brief: Brief::ByScheme,
        };
        HighArm {
            workload: Workload::parse("compile").expect("a workload"),
            duration_ns: 1_000_000,
            mode: Mode::Threads,
            high: scheme.map(high),
            cpus,
            pace: Pace::None,
            start: Start::Together,
            sources: Sources::Large,
            design: DESIGN.into(),
            semaphore: faultless_machine::designs::DEFAULT_SEMAPHORE.into(),
            replayer: &faultless_replay::AllDesigns,
        }
    }

    const NOTHING: Lies = Lies { tables: false, upper_tables: false, files: false, anonymous: false };
    const TABLES: Lies = Lies { tables: true, ..NOTHING };

    fn made(arm: &HighArm, seed: u64) -> Made {
        once(&Spec::preset("numaq-16").expect("a preset"), arm, seed, Vec::new()).expect("it compiles")
    }

    #[test]
    fn every_scheme_maps_the_same_tables_and_costs_time() {
        let plain = made(&arm(None, Lies::default(), 1), 1);
        assert_eq!(plain.counted, Counted::default());
        let alone = made(&arm(Some("atomic"), TABLES, 1), 1);
        let (plain_ns, alone_ns) = (plain.run.elapsed_ns, alone.run.elapsed_ns);
        assert!(
            alone_ns > plain_ns + 100 * alone.counted.maps,
            "each map takes 150 ns at least: {plain_ns} {alone_ns}"
        );
        let faults = |made: &Made| made.run.counters.iter().find(|(name, _)| *name == "faults").expect("counted").1;
        for &scheme in faultless_kmap::registry::SCHEMES {
            let made = made(&arm(Some(scheme), TABLES, 2), 1);
            let Counted { maps, table_maps, flushes, interrupts, .. } = made.counted;
            assert!(
                maps == table_maps && maps > faults(&made),
                "{scheme}: {:?}, {} faults",
                made.counted,
                faults(&made)
            );
            let is_own = ["atomic", "percpu-pinned", "local"].contains(&scheme);
            assert_eq!(flushes == 0, is_own || scheme == "pool-invlpg", "{scheme}: {:?}", made.counted);
            if scheme == "per-process" {
                assert!(
                    interrupts <= flushes,
                    "only a process that changed its CPU is anywhere else: {:?}",
                    made.counted
                );
            } else {
                assert_eq!(interrupts == 0, is_own, "{scheme}: {:?}", made.counted);
            }
            let lock = if scheme == "per-process" { "process_kmap_lock" } else { "kmap_lock" };
            let callers = made.locks.locks.iter().find(|row| row.name == lock).map(|row| &row.callers);
            let names = callers.map(|callers| callers.iter().map(|(name, _)| &**name).collect::<Vec<_>>());
            match is_own {
                true => assert_eq!(names, None, "{scheme}"),
                false => {
                    let mut names = names.expect("the lock is taken");
                    names.sort_unstable();
                    assert_eq!(names, ["kmap_high", "kunmap_high"], "{scheme}");
                }
            }
        }
    }

    #[test]
    fn the_same_seed_gives_the_same_and_pages_are_maps_of_their_own() {
        let both = arm(Some("pool"), Lies { anonymous: true, ..TABLES }, 2);
        let (first, again) = (made(&both, 3), made(&both, 3));
        assert_eq!((first.run.elapsed_ns, first.counted), (again.run.elapsed_ns, again.counted));
        let Counted { maps, table_maps, .. } = first.counted;
        assert!(table_maps > 0 && maps > table_maps, "{:?}", first.counted);
    }

    #[test]
    fn upper_tables_and_file_pages_are_maps_of_their_own() {
        let counted = |lies| made(&arm(Some("local"), lies, 1), 1).counted;
        let leaves = counted(TABLES);
        let all = counted(Lies { upper_tables: true, ..TABLES });
        assert!(all.table_maps > 2 * leaves.table_maps, "three tables above each leaf: {leaves:?} {all:?}");
        let files = counted(Lies { files: true, ..NOTHING });
        // 345 by calls; the others are cleared for what is mapped, and copied from where their source has filled them.
        assert!(files.table_maps == 0 && (345..3000).contains(&files.maps), "{files:?}");
    }

    #[test]
    fn a_fault_maps_its_table_once_where_a_map_may_be_kept_over_a_sleep() {
        let maps = |scheme| made(&arm(Some(scheme), TABLES, 1), 1).counted.maps;
        let (kept, at_each_look) = (maps("local"), maps("atomic"));
        assert!(kept * 3 < at_each_look * 2, "{kept} {at_each_look}");
        assert_eq!(maps("pool"), kept);
    }

    #[test]
    fn brief_maps_beside_the_scheme_are_none_of_its_maps_and_cost_time() {
        let made = |brief, flush_slot_ns| {
            let mut arm = arm(Some("pool"), Lies { files: true, anonymous: true, ..TABLES }, 1);
            let costs = Costs { flush_slot_ns, ..Costs::default() };
            arm.high = arm.high.map(|high| Memory { brief, costs, ..high });
            made(&arm, 1)
        };
        let all = made(Brief::ByScheme, 150).counted;
        let (own, slow) = (made(Brief::OwnSlot, 150), made(Brief::OwnSlot, 1150));
        let Counted { maps, brief_maps, .. } = own.counted;
        assert_eq!(all.brief_maps, 0);
        assert!(brief_maps > 1000 && maps > 1000, "{:?}", own.counted);
        assert_eq!(maps + brief_maps, all.maps, "{:?}", own.counted);
        let more_ns = slow.run.elapsed_ns - own.run.elapsed_ns;
        assert!(more_ns > brief_maps * 900, "each takes 1000 ns more: {more_ns} for {brief_maps}");
    }

    #[test]
    fn with_a_boundary_only_frames_behind_it_are_mapped() {
        let counted = |boundary_bytes| {
            let mut arm = arm(Some("local"), TABLES, 1);
            arm.high = arm.high.map(|high| Memory { boundary_bytes: Some(boundary_bytes), ..high });
            made(&arm, 1).counted
        };
        let without = made(&arm(Some("local"), TABLES, 1), 1).counted;
        // Nothing lies behind the last frame.
        assert_eq!(counted(usize::MAX), Counted::default());
        let most = counted(128 << 20);
        assert_eq!(most.table_maps, without.table_maps, "there is room for all tables in high memory");
    }

    #[test]
    fn each_read_of_a_page_in_high_memory_is_a_map() {
        let reading = |scheme: &str, text: &str| {
            let arm = arm(Some(scheme), Lies { files: true, ..NOTHING }, 4);
            made(&HighArm { workload: Workload::parse(text).expect("a workload"), ..arm }, 1)
        };
        for text in ["read-byte --own", "read-byte --shared"] {
            let (pool, local) = (reading("pool", text), reading("local", text));
            for made in [&pool, &local] {
                let (maps, ops) = (made.counted.maps, made.run.ops);
                assert!(maps >= ops && maps < ops + ops / 10 + 100, "{text}: {maps} maps, {ops} reads");
            }
            assert!(3 * local.run.ops > 4 * pool.run.ops, "{text}: {} {}", local.run.ops, pool.run.ops);
        }
    }

    #[test]
    fn what_cannot_be_is_said() {
        let said = |arm: &HighArm| once(&Spec::preset("numaq-16").expect("a preset"), arm, 1, Vec::new()).map(drop);
        let sleeper = HighArm { design: "vma-lock".into(), ..arm(Some("pool"), TABLES, 1) };
        assert!(matches!(said(&sleeper), Err(MeasureError::Message(why)) if why.contains("may sleep")));
    }
}
