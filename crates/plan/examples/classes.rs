//! Lists the faults that have a class.
//!
//! usage: `cargo run --release -p faultless-plan --example classes -- FILE CLASS`
use faultless_plan::{Action, Losses, Options, Pace, plan};
use faultless_trace::Trace;
fn main() {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let trace = Trace::open(std::path::Path::new(&words[0])).expect("readable");
    let plan = plan(&trace, Options { pace: Pace::None, losses: Losses::Allowed }).expect("plannable");
    let mut hits = Vec::new();
    for program in &plan.programs {
        for step in &program.steps {
            if let Action::Access(touch) = step.action
                && touch.class.is_some_and(|class| class.name() == words[1])
            {
                hits.push((step.event, touch));
            }
        }
    }
    hits.sort_by_key(|hit| hit.0);
    for (event, touch) in hits {
        println!("{event} thread {} {touch:x?}", trace.events[event as usize].thread);
    }
}
