//! What experiments found out, as one page that any browser opens without a network.
//!
//! # Guarantee
//! * I1 a page is one file: its pictures, styles and code are inside, and its policy forbids the browser to load
//!   anything
//! * I2 the first thing it says is who wins, by how much and how sure that is, or that nobody can tell; the rules are
//!   those of `faultless_results::verdict`, and every factor on a page is computed as it says
//! * I3 every plot says whether its figures are measured or simulated, has units on both axes, and a text for who does
//!   not see it
//! * I4 the result sets are inside, and [`open`] reads them back as they were; of a file that one came from, its name
//!   alone
//!
//! # Rooms
//! [`of_sets`] makes a page of result sets, [`of_comparison`] of a comparison; `kinds` knows what each command's set
//! shows. Plots: `curve`, `rows`, `bars`, `latency`, and of a recorded program `timeline`, `space` and `calls` under
//! `zoom`, on the ground of `plot` and `scale`; `verdict`s as [`table`]s; `words` explains what the page says;
//! [`markup`] keeps names from becoming markup.
//!
//! ```
//! use faultless_results::{MachineInfo, ResultSet, compare::Source};
//!
//! let set = ResultSet::new("bench", 1, MachineInfo { name: "native".into(), cpus: 2, ..Default::default() });
//! let page = faultless_page::of_sets(&[Source { label: "mine".into(), set }]);
//! assert!(page.starts_with("<!doctype html>"));
//! ```

#![forbid(unsafe_code)]

mod arms;
mod bars;
mod calls;
mod curve;
mod embed;
mod kinds;
mod latency;
pub mod markup;
mod plot;
mod rows;
mod scale;
mod space;
pub mod table;
mod timeline;
mod verdict;
mod words;
mod zoom;

use std::path::Path;

use faultless_results::compare::{Comparison, Source};

use crate::markup::Markup;

pub use embed::open;

/// What keeps a page from loading anything (I1).
const POLICY: &str = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'";

/// Returns the page of result sets, one after the other.
pub fn of_sets(sources: &[Source]) -> String {
    let named = named(sources);
    let sources = named.as_slice();
    let title = match sources {
        [one] => format!("faultless {}: {}", one.set.command, one.set.machine.name),
        many => format!("faultless: {} results", many.len()),
    };
    page(&title, sources, |out| match sources {
        [one] => kinds::write_alone(out, one),
        many => kinds::write_several(out, many),
    })
}

/// Returns the page of a comparison.
pub fn of_comparison(comparison: &Comparison) -> String {
    let comparison = &Comparison { sources: named(&comparison.sources), ..comparison.clone() };
    let labels: Vec<&str> = comparison.sources.iter().map(|source| &*source.label).collect();
    let title = format!("faultless compare: {}", labels.join(", "));
    page(&title, &comparison.sources, |out| kinds::compare::write(out, comparison))
}

/// Returns result sets that are called by their files' names alone, where those tell them apart; by the ends of their
/// paths otherwise. Nobody but the writer knows the folders.
fn named(sources: &[Source]) -> Vec<Source> {
    let part = |source: &Source, nr_folders: usize| {
        let is_file = source.label.ends_with(".json") || source.label.ends_with(".html");
        let path = Path::new(&source.label);
        let path = if is_file { path.with_extension("") } else { path.to_owned() };
        let names: Vec<_> = path.iter().map(|name| name.to_string_lossy().into_owned()).collect();
        names[names.len().saturating_sub(nr_folders + 1)..].join("/")
    };
    let names = |nr_folders: usize| sources.iter().map(|source| part(source, nr_folders)).collect::<Vec<String>>();
    let is_clear = |names: &Vec<String>| names.iter().enumerate().all(|(place, name)| !names[..place].contains(name));
    let clear = (0..3).map(names).find(is_clear);
    let labels = clear.unwrap_or_else(|| (1..=sources.len()).map(|place| format!("result {place}")).collect());
    let labelled = sources.iter().zip(labels).map(|(source, label)| Source { label, set: source.set.clone() });
    labelled.collect()
}

fn page(title: &str, sources: &[Source], content: impl FnOnce(&mut Markup)) -> String {
    let mut out = Markup::default();
    out.own(embed::DOCTYPE);
    out.own("\n");
    out.within("html", &[("lang", "en")], |out| {
        out.within("head", &[], |out| {
            out.own("<meta charset=\"utf-8\">");
            out.own("<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">");
            out.own("<link rel=\"icon\" href=\"data:,\">");
            out.own(&format!("<meta http-equiv=\"Content-Security-Policy\" content=\"{POLICY}; img-src data:\">"));
            out.line("title", &[], title);
            out.within("style", &[], |out| out.own(include_str!("style.css")));
        });
        out.within("body", &[], |out| {
            out.own(HATCH);
            let mut main = Markup::default();
            main.within("main", &[], content);
            out.own(&words::explain(&main.into_text()));
            embed::write(out, sources);
            out.within("script", &[], |out| out.own(include_str!("script.js")));
        });
    });
    out.own("\n");
    out.into_text()
}

/// The patterns of bars.
const HATCH: &str = "<svg width=\"0\" height=\"0\" aria-hidden=\"true\" style=\"position:absolute\"><defs>\
    <pattern id=\"hatch\" width=\"6\" height=\"6\" patternUnits=\"userSpaceOnUse\" \
    patternTransform=\"rotate(45)\"><path d=\"M0 0V6\"/></pattern>\
    <pattern id=\"dots\" width=\"4\" height=\"4\" patternUnits=\"userSpaceOnUse\"><circle cx=\"2\" cy=\"2\" r=\"1.3\"/></pattern>\
    <pattern id=\"bars\" width=\"4\" height=\"4\" patternUnits=\"userSpaceOnUse\"><path d=\"M0 2H4\"/></pattern></defs></svg>";
