//! The memory tables: 256 MiB, touched in every way, by every variant.

use crate::child::{self, Access, Cost, Variant, Work};
use crate::{Plan, progress, table};

const LEN: usize = 256 << 20;
/// Where a target is judged, the ratio of so many pairs decides.
pub(crate) const JUDGED_RUNS: usize = 30;
const RUNS: usize = 5;

/// The runs of all variants of one cell.
pub(crate) struct Cell {
    pub work: Work,
    pub runs: Vec<(Variant, Vec<Cost>)>,
}

impl Cell {
    /// Returns one number of each run of a variant.
    pub fn samples(&self, variant: Variant, number: impl Fn(&Cost) -> f64) -> Vec<f64> {
        let runs = self.runs.iter().find(|(other, _)| *other == variant);
        runs.map_or(Vec::new(), |(_, costs)| costs.iter().map(number).collect())
    }
}

/// Measures all cells of the plan.
pub(crate) fn measure_all(plan: &Plan) -> Vec<Cell> {
    let works = works(plan);
    let count = works.len();
    let measured = works.into_iter().enumerate().map(|(index, work)| {
        progress("cell", index + 1, count);
        measure(plan, work)
    });
    measured.collect()
}

fn works(plan: &Plan) -> Vec<Work> {
    let (strides, threads, huge): (&[usize], &[usize], &[bool]) = match plan.is_quick {
        true => (&[1, 16], &[1], &[false]),
        false => (&[1, 2, 16, 256], &[1, 2], &[false, true]),
    };
    let mut works = Vec::new();
    for &has_huge_pages in huge {
        for &threads in threads {
            for access in Access::ALL {
                works.extend(strides.iter().map(|&stride| Work {
                    access,
                    stride,
                    threads,
                    pattern_len: 1,
                    has_huge_pages,
                    len: LEN,
                }));
            }
        }
    }
    let first = works[0];
    for pattern_len in [12, 4096] {
        for (access, stride) in [(Access::WriteFirst, 16), (Access::Read, 1), (Access::WriteFirst, 1)] {
            works.push(Work { access, stride, pattern_len, ..first });
        }
    }
    works
}

/// Whether a target of the issue is about this cell.
pub(crate) fn is_judged(work: &Work) -> bool {
    let kinds = [(Access::WriteFirst, 16), (Access::Read, 1), (Access::WriteFirst, 1)];
    work.threads == 1 && !work.has_huge_pages && kinds.contains(&(work.access, work.stride))
}

fn measure(plan: &Plan, work: Work) -> Cell {
    let usual = if is_judged(&work) && !plan.is_quick { JUDGED_RUNS } else { RUNS };
    let mut runs: Vec<(Variant, Vec<Cost>)> = Variant::ALL.map(|variant| (variant, Vec::new())).into();
    for round in 0..plan.runs.unwrap_or(usual) {
        for (variant, costs) in &mut runs {
            // The slow variant is not judged.
            if *variant != Variant::Userfaultfd || round < RUNS {
                costs.extend(child::run(*variant, &work));
            }
        }
    }
    Cell { work, runs }
}

/// Prints a table for each number of threads, setting of huge pages and pattern.
pub(crate) fn print(plan: &Plan, cells: &[Cell]) {
    let key = |cell: &Cell| (cell.work.has_huge_pages, cell.work.threads, cell.work.pattern_len);
    for group in cells.chunk_by(|a, b| key(a) == key(b)) {
        let work = group[0].work;
        let title = format!(
            "{} MiB, {} thread(s), pattern of {} byte(s), huge pages {}: median ±standard deviation",
            LEN >> 20,
            work.threads,
            work.pattern_len,
            if work.has_huge_pages { "as the system has them" } else { "off" },
        );
        let head =
            ["access", "pages", "variant", "n", "time ms", "CPU ms", "RSS MiB", "PSS MiB", "memfd MiB", "faults"];
        let rows: Vec<Vec<String>> = group.iter().flat_map(rows).collect();
        table::print(plan.format, &title, &head, &rows);
    }
}

fn rows(cell: &Cell) -> impl Iterator<Item = Vec<String>> {
    cell.runs.iter().map(|(variant, costs)| {
        let spread = |number: fn(&Cost) -> f64| match costs.is_empty() {
            true => "<not supported>".to_owned(),
            false => table::spread(&costs.iter().map(number).collect::<Vec<_>>()),
        };
        vec![
            cell.work.access.name().to_owned(),
            format!("1/{}", cell.work.stride),
            variant.name().to_owned(),
            costs.len().to_string(),
            spread(|cost| cost.time_ms),
            spread(|cost| cost.cpu_ms),
            spread(|cost| cost.rss_kib / 1024.0),
            spread(|cost| cost.pss_kib / 1024.0),
            spread(|cost| cost.tile_kib / 1024.0),
            spread(|cost| cost.faults),
        ]
    })
}
