//! How fast a simulation is: `simulate MACHINE|FILE CPUS DESIGN WORKLOAD [DURATION_US] [SEED] [threads|processes]`.

use faultless_bench::measure::{Job, Length, Mode, PlacementPolicy, once_simulated, shrunk};
use faultless_machine::designs::DEFAULT_SEMAPHORE;
use faultless_machine::simulated;
use faultless_sim::LineAllocator;
use faultless_workloads as workloads;
use std::time::Instant;

#[global_allocator]
static ALLOCATOR: LineAllocator = LineAllocator;

fn main() {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let word = |place: usize, default: &str| words.get(place).cloned().unwrap_or(default.to_owned());
    let number = |place: usize, default: &str| word(place, default).parse::<u64>().expect("a number");
    let choice = simulated::find(&word(0, "skylake-192")).expect("a machine");
    let machine = choice.simulated().expect("a simulated machine").clone();
    let job = Job {
        spec: shrunk(workloads::Spec::parse(&word(3, "page_fault1")).expect("a workload")),
        design: word(2, "spf-v11"),
        semaphore: DEFAULT_SEMAPHORE.to_owned(),
        cpus: number(1, "192") as usize,
        mode: if word(6, "threads") == "processes" { Mode::Processes } else { Mode::Threads },
        length: Length::Fixed(number(4, "1000") * 1000),
        memory_bytes: None,
        placement: PlacementPolicy::Linux,
        replayer: Some(&faultless_replay::AllDesigns),
    };
    let began = Instant::now();
    let (run, figures) = once_simulated(&machine, &job, number(5, "1"), &|| false).expect("a run");
    let seconds = began.elapsed().as_secs_f64();
    println!("{:.4} M ops/s, {} ops in {} ns", run.ops_per_s / 1e6, run.ops, run.elapsed_ns);
    println!("{figures:?}");
    eprintln!("{:.2} s, {:.2} M accesses/s", seconds, figures.accesses as f64 / seconds / 1e6);
}
