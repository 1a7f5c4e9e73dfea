//! What the page of each command shows: its headline, its plots, its tables.

mod bench;
pub mod compare;
mod replay;
mod reproduce;
mod stat;

use faultless_results::compare::Source;
use faultless_results::designs::{DesignLine, line_of};
use faultless_results::set::UNCOMPARED;
use faultless_results::{MachineInfo, Measured, ResultSet, metric};
use serde_json::Value;

use faultless_results::verdict::{Doubt, Finding, Ranking, Samples, arm_name, faith, listed, rankings, upper};

use crate::arms::{nr_samples, shown_as};
use crate::markup::Markup;
use crate::table::{self, Cell};
use crate::{verdict, words};

/// Writes the page of one result set.
pub fn write_alone(out: &mut Markup, source: &Source) {
    out.within("header", &[], |out| {
        let called = if source.label.is_empty() { String::new() } else { format!(": {}", source.label) };
        out.line("p", &[("class", "kind")], &format!("faultless {}{called}", source.set.command));
        out.line("h1", &[], &headline(&source.set));
        write_facts(out, &source.set);
        write_origin(out, &source.set);
    });
    write_set(out, &source.set, words::PLACE);
}

/// Writes the page of several result sets.
pub fn write_several(out: &mut Markup, sources: &[Source]) {
    out.within("header", &[], |out| {
        out.line("p", &[("class", "kind")], "faultless report");
        out.line("h1", &[], &format!("{} results", sources.len()));
        out.within("ul", &[], |out| {
            for (place, source) in sources.iter().enumerate() {
                out.within("li", &[], |out| {
                    let link = format!("#result{}", place + 1);
                    out.line("a", &[("href", &link)], &source.label);
                    let model = if source.set.machine.simulated { " (SIMULATED)" } else { "" };
                    out.text(&format!("{model}: {}", headline(&source.set)));
                });
            }
        });
        out.own(words::PLACE);
    });
    for (place, source) in sources.iter().enumerate() {
        out.within("section", &[("id", &format!("result{}", place + 1))], |out| {
            out.line("h2", &[("class", "result")], &format!("{}: {}", source.label, headline(&source.set)));
            write_facts(out, &source.set);
            write_origin(out, &source.set);
            write_set(out, &source.set, "");
        });
    }
}

fn headline(set: &ResultSet) -> String {
    match &*set.command {
        "replay" => replay::headline(set),
        "stat" => stat::headline(set),
        "reproduce" => reproduce::headline(set),
        _ => bench::headline(set),
    }
}

/// Writes what the headline has no room for: how sure the verdict is, and whether a replay is the recorded program. Of
/// several workloads each says it where it stands.
fn write_facts(out: &mut Markup, set: &ResultSet) {
    let is_judged = matches!(&*set.command, "bench" | "replay");
    let ranked = if is_judged { rankings(set) } else { Vec::new() };
    let last = ranked.iter().max_by_key(|one| one.cpus);
    let is_one = ranked.iter().all(|one| last.is_some_and(|last| last.workload == one.workload));
    let said = last.filter(|one| is_one && one.finding != Finding::Alone);
    let said = said.map(|one| format!("{}.", upper(&one.sentence())));
    let faith = (set.command == "replay").then(|| sentence(&faith(set)));
    let facts: Vec<String> = said.into_iter().chain(faith).collect();
    if !facts.is_empty() {
        out.within("ul", &[("class", "facts")], |out| facts.iter().for_each(|fact| out.line("li", &[], fact)));
    }
}

/// Writes all of a set but its headline: first the answers, then what they rest on.
fn write_set(out: &mut Markup, set: &ResultSet, words: &str) {
    let mut ranked = rankings(set);
    if set.command == "stat" {
        // Events are counted in one run as a rule: no verdict is wanted of that.
        ranked.retain(|ranking| matches!(ranking.finding, Finding::Wins | Finding::Level(_)));
    }
    match ranked.as_slice() {
        [one] => verdict::write_places(out, one),
        many => verdict::write_rankings(out, many),
    }
    verdict::write_method(out, &ranked);
    write_caveats(out, &caveats(set, &ranked));
    write_circumstances(out, set);
    out.own(words);
    match &*set.command {
        "replay" => replay::write(out, set),
        "stat" => stat::write(out, set),
        "reproduce" => reproduce::write(out, set),
        _ => bench::write(out, set),
    }
    write_figures(out, set);
    if set.command == "replay" {
        replay::write_recorded(out, set);
    }
}

/// Says where a set's figures are from.
fn write_origin(out: &mut Markup, set: &ResultSet) {
    if set.command != "reproduce" {
        return write_badge(out, &set.machine);
    }
    out.within("p", &[], |out| {
        out.line("span", &[("class", "badge")], "SIMULATED");
        out.text(" Models of the machines computed our figures; the published ones were measured on real ones.");
    });
}

/// Says whether figures were measured.
fn write_badge(out: &mut Markup, machine: &MachineInfo) {
    out.within("p", &[], |out| {
        let badge = if machine.simulated { "SIMULATED" } else { "measured" };
        out.line("span", &[("class", "badge")], badge);
        let told = match machine.simulated {
            true => {
                format!(" A model of {} computed these figures; none was measured on such a machine.", machine.name)
            }
            false => " On the machine itself, by its own clock.".to_owned(),
        };
        out.text(&told);
    });
}

/// Returns what makes a result less than it seems.
fn caveats(set: &ResultSet, rankings: &[Ranking]) -> Vec<String> {
    let mut said = Vec::new();
    let is_judged = |one: &Ranking| one.finding != Finding::Alone;
    if let Some(told) = rankings.iter().find(|one| is_judged(one)).and_then(|one| intervals_tell(one.samples)) {
        said.push(told.to_owned());
    }
    let few = |one: &Ranking| one.doubts.iter().any(|doubt| matches!(doubt, Doubt::TooFew(_)));
    if rankings.iter().any(few) {
        said.push("Five runs of each design are the fewest that can tell a winner: measure with -r 5 or more.".into());
    }
    said.extend(moving(set));
    said.extend(scattered(rankings));
    let disturbed = set.nr_disturbed();
    if disturbed > 0 {
        said.push(format!("{disturbed} runs were disturbed: their threads waited for CPUs that others used."));
    }
    match set.partial() {
        Some(partial) => said.push(format!("Not all is there: {partial}.")),
        None if set.is_interrupted() => said.push("Interrupted: this is what was measured until then.".into()),
        None => {}
    }
    let own = set.more.get("caveats").and_then(Value::as_array);
    said.extend(own.into_iter().flatten().filter_map(Value::as_str).map(sentence));
    let uncompared = set.more.get(UNCOMPARED).and_then(Value::as_array);
    let uncompared = uncompared.into_iter().flatten().filter_map(Value::as_str);
    said.extend(uncompared.map(|name| format!("{name} did not do the same work (no checks), so it is not compared.")));
    said
}

/// Says which rates had not converged, by workload, design and CPUs.
fn moving(set: &ResultSet) -> Option<String> {
    let mut places: Vec<String> = Vec::new();
    for result in set.results.iter().filter(|result| !result.has_converged()) {
        let place = format!("{} of {} on {}", arm_name(set, result), result.workload, verdict::cpus(result.cpus));
        if !places.contains(&place) {
            places.push(place);
        }
    }
    let rest = places.len().saturating_sub(MOVING);
    let more = if rest > 0 { format!(", and {rest} more (hollow marks)") } else { String::new() };
    places.truncate(MOVING);
    (!places.is_empty()).then(|| {
        let named = places.join("; ");
        format!("Rates had not converged when their time was over, so judge nothing by them: {named}{more}.")
    })
}

/// Says whose runs are so far apart that their median says little.
fn scattered(rankings: &[Ranking]) -> Vec<String> {
    let all = rankings
        .iter()
        .filter_map(|one| Some(format!("{} on {}: {}.", one.workload, verdict::cpus(one.cpus), one.scattered()?)));
    let mut all: Vec<String> = all.collect();
    let rest = all.len().saturating_sub(MOVING);
    all.truncate(MOVING);
    all.extend((rest > 0).then(|| format!("Runs differ as much in {rest} more places.")));
    all
}

/// The most rates that had not converged that are named one by one.
const MOVING: usize = 8;

/// Says what intervals of a simulated machine's figures are about.
fn intervals_tell(samples: Samples) -> Option<&'static str> {
    match samples {
        Samples::Runs => None,
        Samples::Seeds => Some(
            "Intervals tell what other seeds would give. How far the model is from the real machine they do not tell.",
        ),
        Samples::Draws => Some(
            "Intervals tell what other guesses about the machine would give, within their ranges. What the model leaves out \
             they do not tell.",
        ),
    }
}

/// Returns a text as a sentence.
fn sentence(text: &str) -> String {
    let mut letters = text.chars();
    let first = letters.next().map(char::to_uppercase).into_iter().flatten();
    format!("{}.", first.chain(letters).collect::<String>().trim_end_matches('.'))
}

fn write_caveats(out: &mut Markup, caveats: &[String]) {
    if caveats.is_empty() {
        return;
    }
    out.within("div", &[("class", "caveats")], |out| {
        out.line("b", &[], "Keep in mind");
        out.within("ul", &[], |out| caveats.iter().for_each(|caveat| out.line("li", &[], caveat)));
    });
}

/// Writes where, when and how often was measured: in a line, and folded in full.
fn write_circumstances(out: &mut Markup, set: &ResultSet) {
    let runs = if set.machine.simulated { "simulated runs of each figure" } else { "runs of each figure" };
    let seed = if set.machine.simulated { "first seed" } else { "seed" };
    out.within("details", &[], |out| {
        let many = nr_samples(set.results.iter());
        let said = if many == "1" { runs.replacen("runs", "run", 1) } else { runs.to_owned() };
        let many = if set.results.is_empty() { String::new() } else { format!("; {many} {said}") };
        let MachineInfo { name, cpus, .. } = &set.machine;
        out.line("summary", &[], &format!("How: {name}, {}{many}, {seed} {}", verdict::cpus(*cpus), set.seed));
        out.within("dl", &[], |out| {
            let mut pairs = vec![("machine", set.machine.to_string())];
            if !set.results.is_empty() {
                pairs.push((runs, nr_samples(set.results.iter())));
            }
            pairs.push((seed, set.seed.to_string()));
            pairs.push(("command", format!("faultless {}, built from commit {}", set.command, set.commit)));
            for (title, text) in pairs {
                out.line("dt", &[], title);
                out.line("dd", &[], &text);
            }
        });
    });
    write_designs(out, set);
    write_parameters(out, &set.machine);
}

/// Says what the designs of a set are.
fn write_designs(out: &mut Markup, set: &ResultSet) {
    let mut lines: Vec<&DesignLine> = Vec::new();
    for line in set.results.iter().filter_map(|result| line_of(&result.design)) {
        if !lines.contains(&line) {
            lines.push(line);
        }
    }
    if lines.is_empty() {
        return;
    }
    let row = |line: &&DesignLine| vec![Cell::text(line.name), Cell::text(line.fault), Cell::text(line.source)];
    out.within("details", &[], |out| {
        let names: Vec<&str> = lines.iter().map(|line| line.name).collect();
        out.line("summary", &[], &format!("What {} {}", listed(&names), if names.len() == 1 { "is" } else { "are" }));
        let headings = ["design", "how a page fault is protected", "where it is from"];
        table::write(out, DESIGNS, &headings, &lines.iter().map(row).collect::<Vec<_>>());
    });
}

/// What the table of designs is about.
const DESIGNS: &str = "What a page fault takes under each design. Calls that change the map (mmap, munmap, mprotect) take the \
                       address-space lock under all of them, so threads wait for it under all of them.";

/// Writes what a simulated machine's figures rest on.
fn write_parameters(out: &mut Markup, machine: &MachineInfo) {
    let Some(Value::Object(parameters)) = machine.more.get("parameters") else { return };
    let text = |value: &Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    let row = |(name, value): (&String, &Value)| {
        let of = |key: &str| value.get(key).filter(|value| !value.is_null());
        let range = of("range").and_then(Value::as_array).map(|ends| {
            let ends: Vec<String> = ends.iter().map(text).collect();
            ends.join(" to ")
        });
        vec![
            Cell::text(&**name),
            Cell::text(text(of("value").unwrap_or(value))),
            Cell::text(range.unwrap_or_else(|| "-".into())),
            Cell::text(of("source").map_or_else(|| "-".into(), text)),
        ]
    };
    out.within("details", &[], |out| {
        let guessed = parameters.values().filter(|value| is_guessed(value)).count();
        let summary = format!(
            "What the machine's model rests on: {} numbers, {guessed} of them guessed, the others measured or published",
            parameters.len()
        );
        out.line("summary", &[], &summary);
        let rows: Vec<Vec<Cell>> = parameters.iter().map(row).collect();
        table::write(out, "Numbers of the model", &["number", "value", "may be", "where from"], &rows);
    });
}

fn is_guessed(parameter: &Value) -> bool {
    parameter.get("source").and_then(Value::as_str).is_some_and(|source| source.starts_with("guessed"))
}

/// Writes every figure of the set.
fn write_figures(out: &mut Markup, set: &ResultSet) {
    if set.results.is_empty() {
        return;
    }
    let row = |result: &Measured| {
        let middle = set.middle(result).unwrap_or(0.0);
        vec![
            Cell::text(&*result.workload),
            Cell::text(arm_name(set, result)),
            Cell::number(result.cpus),
            Cell::text(words(&result.metric)),
            Cell::figure(middle, shown_as(&result.unit, middle, &result.samples)),
            Cell::number(result.samples.len()),
        ]
    };
    let headings = ["workload", "design", "CPUs", "figure", "median [ends]", "runs"];
    let caption = "Median of the runs, and of percentiles that of all runs' times together; the ends are those of the median's \
                   95 % interval, or the least and the most of fewer than six runs";
    out.within("details", &[], |out| {
        out.line("summary", &[], &format!("All {} figures", set.results.len()));
        table::write(out, caption, &headings, &set.results.iter().map(row).collect::<Vec<_>>());
    });
}

/// Returns a metric in words, with the name that it has in JSON.
pub fn words(name: &str) -> String {
    let words = metric::title(name);
    if words == name { name.to_owned() } else { format!("{words} ({name})") }
}
