//! Replays traces once under every design and semaphore, and prints the raw tallies.
//!
//! usage: `cargo run --release -p faultless-replay --example pass -- CPUS FILE...`

use std::path::Path;

use faultless_plan::{Losses, Options, Pace, plan};
use faultless_replay::{Checking, Settings, pass_natively};
use faultless_trace::Trace;

fn main() {
    let mut words = std::env::args().skip(1);
    let nr_cpus = words.next().and_then(|word| word.parse().ok()).unwrap_or(2);
    for file in words {
        let trace = Trace::open(Path::new(&file)).expect("the trace can be read");
        let options = Options { pace: Pace::None, losses: Losses::Allowed };
        let plan = plan(&trace, options).expect("the trace can be planned");
        println!("{file}: {:?}", plan.totals);
        for design in faultless_vm::registry::DESIGNS {
            for semaphore in faultless_sync::SEMAPHORES {
                let settings = Settings {
                    design: design.to_string(),
                    semaphore: semaphore.to_string(),
                    memory_bytes: plan.demand.bytes() as usize,
                    limits: trace.header.limits,
                    checking: if std::env::var_os("CHECK").is_some() { Checking::EachStep } else { Checking::AtEnd },
                };
                match pass_natively(nr_cpus, &plan, &settings) {
                    Err(error) => println!("  {design} {semaphore}: {error}"),
                    Ok(result) => {
                        let tally = &result.tally;
                        println!(
                            "  {design} {semaphore}: {} ms, faulted {}, classified {:?}, mismatches {}, read back {}, fault p50 {:?} p99 {:?}, call p50 {:?}, wait {}, rss {}",
                            result.elapsed_ns / 1_000_000,
                            tally.faulted,
                            tally.classified,
                            tally.mismatches,
                            tally.read_back,
                            tally.fault_ns.percentile(500),
                            tally.fault_ns.percentile(990),
                            tally.call_ns.percentile(500),
                            result.lock_wait_ns,
                            result.peak_rss_bytes
                        );
                        tally.first_mismatches.iter().take(6).for_each(|mismatch| println!("    {mismatch:?}"));
                        println!("    {:?}", result.counters);
                    }
                }
            }
        }
    }
}
