//! Prints what the planner makes of traces, and the faults that it can't explain.
//!
//! usage: `cargo run -p faultless-plan --example plan -- FILE...`

use std::path::Path;
use std::time::Instant;

use faultless_plan::{Losses, Options, Pace, plan};
use faultless_trace::Trace;

fn main() {
    for file in std::env::args().skip(1) {
        let trace = match Trace::open(Path::new(&file)) {
            Ok(trace) => trace,
            Err(error) => {
                eprintln!("{file}: {error}");
                std::process::exit(1);
            }
        };
        show(&file, &trace);
    }
}

fn show(file: &str, trace: &Trace) {
    let began = Instant::now();
    let options = Options { pace: Pace::None, losses: Losses::Allowed };
    match plan(trace, options) {
        Err(error) => println!("{file}: {error}"),
        Ok(plan) => {
            println!("{file}: {:?}", plan.totals);
            println!("  {:?}, {} bytes, planned in {:?}", plan.demand, plan.demand.bytes(), began.elapsed());
            println!("  {} surprises", plan.surprises.len());
            for &event in plan.surprises.iter().take(8) {
                println!("    {event}: {:x?}", trace.events[event as usize]);
            }
        }
    }
}
