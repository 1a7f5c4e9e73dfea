//! The page of `reproduce`: what was published, beside what a simulation of the machine says.

use faultless_results::designs::Style;
use faultless_results::verdict::factor;
use faultless_results::{ResultSet, metric};
use serde_json::Value;

use crate::arms::middle;
use crate::markup::Markup;
use crate::plot::{About, Axis, legend};
use crate::rows::{self, Marks, Row, Rows};
use crate::scale::Kind;
use crate::table::{self, Cell};
use crate::verdict::cpus;

/// A line of a published table.
struct PublishedLine<'a> {
    value: &'a Value,
}

impl PublishedLine<'_> {
    fn text(&self, key: &str) -> &str {
        self.value.get(key).and_then(Value::as_str).unwrap_or("-")
    }

    fn figure(&self, key: &str) -> Option<f64> {
        self.value.get(key)?.as_f64()
    }

    fn agrees(&self) -> Option<bool> {
        self.value.get("sign_agrees")?.as_bool()
    }

    fn samples(&self, key: &str) -> Vec<f64> {
        let list = self.value.get(key).and_then(Value::as_array);
        list.into_iter().flatten().filter_map(Value::as_f64).collect()
    }

    /// Returns the factor of each seed.
    fn factors(&self) -> Vec<f64> {
        let pairs = self.samples("base_samples").into_iter().zip(self.samples("head_samples"));
        pairs.map(|(base, head)| head / base).filter(|factor| factor.is_finite()).collect()
    }

    fn published(&self) -> f64 {
        1.0 + self.figure("published_percent").unwrap_or(0.0) / 100.0
    }

    fn name(&self) -> String {
        let place = cpus(self.value.get("cpus").and_then(Value::as_u64).unwrap_or(0) as usize);
        let figure = metric::title(self.text("figure"));
        format!("{} on {place}, {}: {figure}", self.workloads(), self.sides())
    }

    /// Returns what stands on both sides: designs, the semaphores beneath one design, or both.
    fn sides(&self) -> String {
        let [base, head] = ["base", "head"].map(|key| self.text(key));
        let [below_base, below_head] = ["base_semaphore", "head_semaphore"].map(|key| self.text(key));
        match (base == head, below_base == below_head) {
            (true, true) if below_base == "-" => base.to_owned(),
            (true, true) => format!("{base} over {below_base}"),
            (true, false) => format!("{base} over {below_base} to {below_head}"),
            (false, true) => format!("{base} to {head}"),
            (false, false) => format!("{base} over {below_base} to {head} over {below_head}"),
        }
    }

    /// Returns the workload; of two that differ in some words, both words.
    fn workloads(&self) -> String {
        let (base, head) = (self.text("workload"), self.text("head_workload"));
        let words: [Vec<&str>; 2] = [base, head].map(|name| name.split(' ').collect());
        let both =
            |(one, other): (&&str, &&str)| if one == other { (*one).to_owned() } else { format!("{one} to {other}") };
        match head {
            "-" => base.to_owned(),
            _ if words[0].len() == words[1].len() => {
                words[0].iter().zip(&words[1]).map(both).collect::<Vec<_>>().join(" ")
            }
            _ => format!("{base} to {head}"),
        }
    }
}

fn lines(rows: &Value) -> Vec<PublishedLine<'_>> {
    rows.as_array().into_iter().flatten().map(|value| PublishedLine { value }).collect()
}

/// Says how many lines agree with what was published.
pub fn headline(set: &ResultSet) -> String {
    let all: Vec<PublishedLine<'_>> = set.checks.values().flat_map(lines).collect();
    let judged = all.iter().filter_map(PublishedLine::agrees).count();
    let agree = all.iter().filter(|line| line.agrees() == Some(true)).count();
    let near = all
        .iter()
        .filter_map(|line| line.figure("ratio_of_changes"))
        .filter(|ratio| (0.8..=1.25).contains(ratio))
        .count();
    let open = all.len() - judged;
    let open = if open > 0 { format!("; {open} undecided") } else { String::new() };
    format!(
        "{agree} of {judged} published changes go the same way in the simulation; {near} of {} factors are within 25 % \
         of the published ones{open}",
        all.len()
    )
}

/// Writes a plot and a table for each published table.
pub fn write(out: &mut Markup, set: &ResultSet) {
    for (name, rows) in &set.checks {
        let lines = lines(rows);
        out.line("h2", &[], name);
        write_plot(out, name, &lines);
        write_table(out, name, &lines);
    }
}

fn write_plot(out: &mut Markup, name: &str, lines: &[PublishedLine<'_>]) {
    let row = |line: &PublishedLine<'_>| {
        let factors = line.factors();
        let middle = middle(&factors).map(|middle| (middle.low, middle.median, middle.high));
        let ours = middle.map_or("-".to_owned(), |(_, median, _)| format!("x{}", factor(median)));
        let is_hollow = line.value.get("converged") == Some(&Value::Bool(false));
        let published = Marks {
            name: "published".into(),
            style: Style::nth(3),
            samples: vec![line.published()],
            middle: None,
            is_hollow: false,
        };
        let simulated = Marks { name: "ours".into(), style: Style::nth(0), samples: factors, middle, is_hollow };
        Row {
            label: line.name(),
            figure: format!("published x{}, ours {ours}", factor(line.published())),
            marks: vec![published, simulated],
        }
    };
    let machines: std::collections::BTreeSet<&str> = lines.iter().map(|line| line.text("machine")).collect();
    let machines = machines.into_iter().collect::<Vec<_>>().join(", ");
    let rows: Vec<Row> = lines.iter().map(row).collect();
    let about = About {
        title: format!("{name}: published against ours"),
        told: rows.iter().map(|row| format!("{}: {}.", row.label, row.figure)).collect::<Vec<_>>().join(" "),
        caption: "By what factor the change multiplies the figure; the dotted line is no change. Ours: each mark is a \
                  seed, the upright line their median, the bar from the least to the most (a 95 % interval from six \
                  seeds on). Hollow: the rates had not converged. Published figures were measured on the real machine."
            .into(),
        machine: &machines,
        is_simulated: true,
    };
    let axis = Axis { title: "factor, after / before (times), logarithmic", unit: "" };
    let shared = Rows { axis, kind: Kind::Log, reference: Some((1.0, "no change")), has_zero: false };
    rows::write(out, &about, &shared, &rows, |out| {
        legend(out, [("published", Style::nth(3)), ("ours, simulated", Style::nth(0))].into_iter())
    });
}

fn write_table(out: &mut Markup, name: &str, lines: &[PublishedLine<'_>]) {
    let percent = |figure: Option<f64>| {
        figure.map_or_else(|| Cell::text("-"), |figure| Cell::figure(figure, format!("{figure:+.1} %")))
    };
    let row = |line: &PublishedLine<'_>| {
        let ratio = line.figure("ratio_of_changes");
        vec![
            Cell::text(line.name()),
            Cell::text(line.text("machine")),
            percent(line.figure("published_percent")),
            percent(line.figure("ours_percent")),
            ratio.map_or_else(|| Cell::text("-"), |ratio| Cell::figure(ratio, format!("{ratio:.2}"))),
            Cell::text(match line.agrees() {
                Some(true) => "yes",
                Some(false) => "NO",
                None => "undecided",
            }),
            Cell::text(line.text("published_as")),
        ]
    };
    let headings = [
        "line",
        "machine (simulated)",
        "published change",
        "ours",
        "our factor over theirs",
        "same way",
        "published as",
    ];
    table::write(out, &format!("{name}: each line"), &headings, &lines.iter().map(row).collect::<Vec<_>>());
}
