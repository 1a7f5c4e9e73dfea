//! Do the models of a crate notice it when one of its orderings is missing?
//!
//! # Guarantee
//! [`Judge::verdicts`] breaks every promise that the models named by [`WEAK_ORDERS`] meet in the crate's sources, each
//! under the model that stands there, and says which went unnoticed, which have no row, and which rows have no promise.
//!
//! A broken promise may end a process in the middle of an unwinding, so each runs in a process of its own: the test
//! program again, told by the environment.

use super::orders::{Promise, met, without};
use crate::mutants::orders::{Noticed, WEAK_ORDERS, WeakOrder};
use std::collections::BTreeSet;
use std::format;
use std::path::PathBuf;
use std::process::Command;
use std::string::{String, ToString};
use std::vec::Vec;

const PROMISE: &str = "FAULTLESS_PROMISE";
const MODEL: &str = "FAULTLESS_MODEL";

/// The models of a crate.
#[derive(Clone, Copy, Debug)]
pub struct Judge {
    /// The crate's folder name.
    pub package: &'static str,
    /// The models by name.
    pub models: &'static [(&'static str, fn())],
    /// The path of the ignored test that calls [`Judge::run_one`].
    pub single: &'static str,
}

impl Judge {
    fn root(&self) -> PathBuf {
        PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."))
    }

    fn rows(&self) -> impl Iterator<Item = &'static WeakOrder> {
        let package = self.package;
        WEAK_ORDERS.iter().filter(move |row| row.place.split('/').next() == Some(package))
    }

    fn model(&self, name: &str) -> fn() {
        let found = self.models.iter().find(|model| model.0 == name);
        found.unwrap_or_else(|| panic!("there is no model {name:?}")).1
    }

    /// Returns the promises of the crate's own sources that some models meet, with their names.
    pub fn promises(&self, models: &BTreeSet<&str>) -> Vec<(Promise, String)> {
        let sources = format!("crates/{}/src/", self.package);
        let all: BTreeSet<Promise> = models.iter().flat_map(|name| met(self.model(name))).collect();
        let own =
            all.into_iter().filter(|promise| promise.file.starts_with(&sources) && !promise.file.ends_with("tests.rs"));
        own.map(|promise| {
            let file = promise.file[sources.len()..].to_string();
            let name = format!("{}/{file}: {}", self.package, promise.name(&self.root()));
            (promise, name)
        })
        .collect()
    }

    /// Returns what is wrong, a line for each.
    pub fn verdicts(&self) -> Vec<String> {
        let models: BTreeSet<&str> = self.rows().filter_map(WeakOrder::model).collect();
        let promises = self.promises(&models);
        let row_of = |name: &String| self.rows().find(|row| row.place == name);
        let has_promise = |row: &WeakOrder| promises.iter().any(|(_, name)| name == row.place);
        let orphans = self.rows().filter(|row| !has_promise(row)).map(|row| format!("no such ordering: {}", row.place));
        let broken = promises.iter().filter_map(|(promise, name)| match row_of(name).map(|row| row.noticed) {
            None => Some(format!("no row for {name}")),
            Some(Noticed::Beyond(_)) => None,
            Some(Noticed::By(model)) => self.notice(promise, model).err().map(|why| format!("{name}: {model}: {why}")),
        });
        broken.chain(orphans).collect()
    }

    /// Returns a row for each promise that any model meets: the quickest model that notices, or none.
    pub fn search(&self) -> Vec<String> {
        let nr_ms = |model: fn()| {
            let begin = std::time::Instant::now();
            model();
            begin.elapsed().as_millis()
        };
        let mut models: Vec<(u128, &str)> = self.models.iter().map(|model| (nr_ms(model.1), model.0)).collect();
        models.sort_unstable();
        let all = self.promises(&models.iter().map(|model| model.1).collect());
        let notices = |promise, (ms, name): (u128, &'static str)| Some((ms, name, self.notice(promise, name).ok()?));
        all.iter()
            .map(|(promise, place)| match models.iter().find_map(|&model| notices(promise, model)) {
                Some((ms, name, what)) => format!("row({place:?}, {name:?}), // {ms} ms: {what}"),
                None => format!("// nobody notices: {place}"),
            })
            .collect()
    }

    /// Breaks a promise under a model; the error says why that does not count as noticed.
    pub fn notice(&self, promise: &Promise, model: &str) -> Result<String, String> {
        let program = std::env::current_exe().map_err(|error| error.to_string())?;
        let output = Command::new(program)
            .args(["--exact", self.single, "--ignored", "--nocapture"])
            .env(PROMISE, promise.to_string())
            .env(MODEL, model)
            .env("RUST_BACKTRACE", "0")
            .output()
            .map_err(|error| error.to_string())?;
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        if output.status.success() {
            return Err("not noticed".into());
        }
        let mut words = said.lines().skip_while(|line| !line.contains("panicked at")).skip(1);
        let first = words.next().unwrap_or_default().to_string();
        let is_about_the_code = !first.is_empty() && !first.contains("maximum number of") && !first.contains(UNMET);
        if is_about_the_code { Ok(first) } else { Err(format!("ended by itself: {first}")) }
    }

    /// Runs the model that the environment names with the promise broken that it names.
    pub fn run_one(&self) {
        let said = |name| std::env::var(name).unwrap_or_else(|_| panic!("{UNMET}: {name} is not set"));
        let promise = Promise::parse(&said(PROMISE)).unwrap_or_else(|| panic!("{UNMET}: not a promise"));
        assert!(without(promise, self.model(&said(MODEL))), "{UNMET}");
    }
}

const UNMET: &str = "the model does not meet the promise";
