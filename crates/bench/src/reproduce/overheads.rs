//! What one change costs of what another one costs, both from the same base: version 3's "44 % that of memset".
//!
//! # Guarantee
//! Ours is the ratio under each seed, its median, the least and the most; the published one comes from the published
//! figures. Nothing is said where the first change costs nothing.

use std::io::{self, Write};

use super::row::Row;
use super::tables::Figure;
use faultless_results::stats::median;

/// Writes the overheads of rows that have a whole program's time, over that of the first of them.
pub(super) fn write(rows: &[Row], out: &mut (impl Write + ?Sized)) -> io::Result<()> {
    let mut timed = rows.iter().filter(|row| row.case.figure == Figure::RendererSeconds);
    let Some(first) = timed.next() else { return Ok(()) };
    for row in timed {
        let Some((published, ours)) = published(first, row).zip(shares(first, row)) else { continue };
        let (least, most) = ours.iter().fold((f64::MAX, f64::MIN), |(l, m), &share| (l.min(share), m.max(share)));
        writeln!(
            out,
            "\noverhead of {} as a share of that of {}: {:.0} % published, {:.1} % [{least:.1}, {most:.1}] ours; {}",
            name(row),
            name(first),
            published,
            median(&ours).unwrap_or(f64::NAN),
            absolute(first, row),
        )?;
    }
    Ok(())
}

/// Returns the variant after the change.
fn name(row: &Row) -> &'static str {
    row.case.head_workload.unwrap_or(row.case.workload)
}

fn published(first: &Row, row: &Row) -> Option<f64> {
    let added = |row: &Row| row.case.published_rates.map(|[before, after]| after - before);
    Some(added(row)? / added(first)? * 100.0)
}

/// Returns the shares in percent, seed by seed.
fn shares(first: &Row, row: &Row) -> Option<Vec<f64>> {
    let shares: Vec<f64> = added(row).zip(added(first)).map(|(own, first)| own / first * 100.0).collect();
    (!shares.is_empty() && shares.iter().all(|share| share.is_finite())).then_some(shares)
}

fn added(row: &Row) -> impl Iterator<Item = f64> {
    row.base.iter().zip(&row.head).map(|(base, head)| head - base)
}

fn absolute(first: &Row, row: &Row) -> String {
    let ms = |row: &Row| median(&added(row).collect::<Vec<_>>()).map_or(f64::NAN, |added| added * 1e3);
    format!("{:+.3} and {:+.3} ms", ms(row), ms(first))
}

#[cfg(test)]
mod tests {
    use super::super::TABLES;
    use super::*;

    fn row(case: usize, base: f64, head: f64) -> Row {
        let table = TABLES.iter().find(|table| table.name == "refpage-v3").expect("a table");
        let (base, head) = (vec![base; 2], vec![head; 2]);
        let (case, own) = (&table.cases[case], Vec::new());
        Row { case, base, head, own, events: Vec::new(), has_converged: true, drawn: None }
    }

    #[test]
    fn the_published_share_comes_out() {
        let mut text = Vec::new();
        write(&[row(0, 1.0, 1.25), row(1, 1.0, 1.125), row(2, 5.0, 6.0)], &mut text).expect("room");
        let text = String::from_utf8(text).expect("text");
        assert!(text.contains("44 % published, 50.0 % [50.0, 50.0] ours; +125.000 and +250.000 ms"), "{text}");
        assert_eq!(text.lines().filter(|line| !line.is_empty()).count(), 1, "sizes have no overhead");
        assert_eq!(shares(&row(0, 1.0, 1.0), &row(1, 1.0, 2.0)), None);
    }
}
