//! Says which faults of a trace are not checked one by one, by class and by what stands behind their page.
//!
//! `cargo run --release -p faultless-plan --example unchecked -- server.trace`

use std::collections::BTreeMap;
use std::error::Error;
use std::path::Path;

use faultless_plan::{Action, Before, Losses, Options, plan};
use faultless_trace::Trace;

fn main() -> Result<(), Box<dyn Error>> {
    for path in std::env::args().skip(1) {
        let trace = Trace::open(Path::new(&path))?;
        let plan = plan(&trace, Options { losses: Losses::Allowed, ..Options::default() })?;
        let mut counts: BTreeMap<String, u64> = BTreeMap::new();
        let steps = plan.programs.iter().flat_map(|program| &program.steps);
        for step in steps {
            let Action::Access(touch) = step.action else { continue };
            if touch.is_strict {
                continue;
            }
            let class = touch.class.map_or("as forecast", |class| class.name());
            let before = match touch.before {
                Before::Unknown => "not determined",
                Before::Zeros => "private memory",
                Before::Token { .. } => "stored",
                Before::Content { .. } => "a file's",
            };
            let present = if touch.is_present { "present" } else { "absent" };
            *counts.entry(format!("{class}, {:?} {present}, {before}", touch.access)).or_default() += 1;
        }
        let totals = &plan.totals;
        println!(
            "{path}: {} faults, {} strict ({:.1} %)",
            totals.faults,
            totals.strict,
            share(totals.strict, totals.faults)
        );
        let mut counts: Vec<_> = counts.into_iter().collect();
        counts.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
        for (what, count) in counts {
            println!("  {count:>8} {:>5.1} % {what}", share(count, totals.faults));
        }
    }
    Ok(())
}

fn share(part: u64, whole: u64) -> f64 {
    part as f64 * 100.0 / whole.max(1) as f64
}
