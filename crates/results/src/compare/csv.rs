//! A comparison as CSV: a row for each figure of each set but the base.

use std::io::{self, Write};

use super::{Comparison, Notable};
use crate::csv::row;

const HEADINGS: &str = "workload,mode,design,semaphore,cpus,metric,unit,better,head,base_mean,base_deviation,base_n,\
                        head_mean,head_deviation,head_n,change,p,finding";

/// Writes headings and rows.
pub fn write(comparison: &Comparison, out: &mut (impl Write + ?Sized)) -> io::Result<()> {
    writeln!(out, "{HEADINGS}")?;
    comparison.changes().try_for_each(|one| row(fields(&one).iter().map(String::as_str), out))
}

fn fields(one: &Notable<'_>) -> Vec<String> {
    let (key, figures) = (one.key, [&one.row.base, &one.change.figures]);
    let part = |part: &Option<String>| part.clone().unwrap_or_default();
    let names = [key.workload.clone(), key.mode.to_string(), part(&key.design), part(&key.semaphore), part(&key.cpus)];
    let metric = [one.row.metric.clone(), one.row.unit.clone(), one.row.direction.name().into(), one.head.into()];
    let numbers = figures.iter().flat_map(|figures| {
        let summary = &figures.summary;
        let deviation = summary.deviation.map_or(String::new(), |deviation| deviation.to_string());
        [summary.mean.to_string(), deviation, summary.n.to_string()]
    });
    let found = [one.change.share.to_string(), one.change.p.to_string(), one.change.finding.name().into()];
    names.into_iter().chain(metric).chain(numbers).chain(found).collect()
}
