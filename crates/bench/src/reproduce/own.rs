//! The mutex of the 2013 series beside its own kernel.
//!
//! # Guarantee
//! The series divides each column of its last tables by a figure of the base kernel. The own-kernel ratio is the same
//! workload behind the mutex over the one without, both on the patched kernel. The published one follows from two
//! published tables: (mutex, patched / plain, base) / (plain, patched / plain, base). Nothing is said of other tables,
//! or where both sides are of one kernel.

use std::io::{self, Write};

use serde_json::{Value, json};

use super::row::Row;
use super::tables::{Case, TABLES};
use faultless_results::columns;
use faultless_results::stats::median;

/// What makes the workload wait for its turn.
const MUTEX: &str = " --mutex";

impl Case {
    /// Returns the workload that the head is compared with on its own kernel, if that is not the base already.
    pub(super) fn own_workload(&self) -> Option<&'static str> {
        let head = self.head_workload.unwrap_or(self.workload);
        if self.base_semaphore == self.head_semaphore { None } else { head.strip_suffix(MUTEX) }
    }
}

impl Row {
    /// Returns our own-kernel change in percent.
    pub(super) fn own_change(&self) -> Option<f64> {
        let (head, own) = (median(&self.head)?, median(&self.own)?);
        (own > 0.0).then(|| (head / own - 1.0) * 100.0)
    }
}

/// Returns the published own-kernel change in percent.
pub(super) fn published(case: &Case) -> Option<f64> {
    let plain = case.own_workload()?;
    let factor = |percent: f64| 1.0 + percent / 100.0;
    let on_patched = |found: &&Case| (found.cpus, found.head_semaphore) == (case.cpus, case.head_semaphore);
    let all = || TABLES.iter().flat_map(|table| table.cases).filter(on_patched);
    let plain_change = all().find(|found| found.workload == plain && found.head_workload.is_none())?;
    let mutex_change = all().find(|found| found.workload == plain && found.head_workload.is_some())?;
    Some((factor(mutex_change.published_percent) / factor(plain_change.published_percent) - 1.0) * 100.0)
}

/// Returns both for the machine-readable report.
pub(super) fn json(row: &Row) -> Option<Value> {
    Some(json!({
        "workload": row.case.own_workload()?, "published_percent": published(row.case),
        "ours_percent": row.own_change(), "samples": row.own,
    }))
}

/// Writes the own-kernel changes of the rows that have one.
pub(super) fn write(rows: &[Row], out: &mut (impl Write + ?Sized)) -> io::Result<()> {
    let shown = |percent: Option<f64>| percent.map_or_else(|| "-".to_owned(), |percent| format!("{percent:+.1} %"));
    let cells = |row: &Row| {
        let workload = row.case.own_workload()?;
        let kernel = row.case.head_semaphore.to_owned();
        let change = format!("{workload} > {workload}{MUTEX}");
        Some(vec![change, row.case.cpus.to_string(), kernel, shown(published(row.case)), shown(row.own_change())])
    };
    let found: Vec<Vec<String>> = rows.iter().filter_map(cells).collect();
    if found.is_empty() {
        return Ok(());
    }
    let headings = ["beside its own kernel", "CPUs", "semaphore", "published", "ours"].map(String::from).to_vec();
    writeln!(out)?;
    columns::write(&[vec![headings], found].concat(), out)
}

#[cfg(test)]
mod tests {
    use super::super::matching;
    use super::*;

    #[test]
    fn the_mutex_beside_its_own_kernel_is_what_two_published_tables_say() {
        let own = |table: &str, cpus, semaphore| {
            let cases = matching(table)[0].cases.iter();
            let of = |case: &&Case| (case.cpus, case.head_semaphore) == (cpus, semaphore);
            published(cases.clone().find(of).expect("a line")).map(f64::round)
        };
        assert_eq!(own("rwsem-2013-4", 20, "rwsem-v8"), Some(-16.0), "the series' own finding");
        assert_eq!(own("rwsem-2013-3", 20, "rwsem-v8"), Some(-16.0));
        assert_eq!(own("rwsem-2013-4", 40, "rwsem-v8-no-optspin"), Some(606.0));
        assert_eq!(own("rwsem-2013-4", 20, "rwsem-steal"), None, "it is the base itself");
        assert_eq!((own("rwsem-2013-2", 20, "rwsem-v8"), own("rwsem-2013-1", 20, "rwsem-v8")), (None, None));
    }

    #[test]
    fn ours_is_the_head_over_its_own_kernel() {
        let case = matching("rwsem-2013-4")[0].cases.iter().find(|case| case.own_workload().is_some());
        let (base, head, own) = (vec![1.0; 2], vec![3.0; 2], vec![2.0; 2]);
        let case = case.expect("one");
        let row = Row { case, base, head, own, events: Vec::new(), has_converged: true, drawn: None };
        assert_eq!(row.own_change(), Some(50.0));
        assert_eq!(row.json()["own_kernel"]["ours_percent"], 50.0);
        let mut text = Vec::new();
        write(&[row], &mut text).expect("memory");
        assert!(String::from_utf8(text).expect("text").contains("+50.0 %"));
    }
}
