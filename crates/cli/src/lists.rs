//! `faultless workloads` and `faultless designs`: what there is to choose from.

use std::io::Write;
use std::iter;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use faultless_machine::designs::{HOST_DESIGN, design_lines};
use faultless_machine::designs::{SEMAPHORES, semaphore_of};
use faultless_results::columns;
use faultless_workloads::WORKLOADS;

use crate::message::Failure;
use crate::output::print_as;
use crate::table::{self, Format};
use crate::{kmap, rwsem};

/// The arguments of the lists.
#[derive(Args)]
pub struct ListArgs {
    /// How to print the list. Example: --format json
    #[arg(long, value_enum, default_value_t = Format::Human)]
    format: Format,

    /// Where the list goes, instead of standard output. Example: --out list.json
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
}

/// A list: headings, and rows of as many fields.
struct List<const N: usize> {
    headings: [&'static str; N],
    rows: Vec<[String; N]>,
}

/// Lists the workloads.
pub fn workloads(args: &ListArgs) -> Result<ExitCode, Failure> {
    let rows = WORKLOADS.iter().map(|workload| {
        [workload.name, workload.about, workload.operation, workload.flags.names(), workload.source].map(str::to_owned)
    });
    List { headings: ["workload", "does", "operation", "flags", "source"], rows: rows.collect() }.print(args)?;
    if args.format == Format::Human && args.out.is_none() {
        println!("\n`faultless bench` measures two more things, each named alone:");
        for (name, about) in [(rwsem::NAME, rwsem::ABOUT), (kmap::NAME, kmap::ABOUT)] {
            println!("{name:<5}  {about}");
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Lists the designs.
pub fn designs(args: &ListArgs) -> Result<ExitCode, Failure> {
    let semaphores = |name: &str| match name {
        HOST_DESIGN => "its own".to_owned(),
        name => own_first(semaphore_of(name)),
    };
    let rows = design_lines().map(|design| {
        [design.name.to_owned(), design.fault.to_owned(), design.source.to_owned(), semaphores(design.name)]
    });
    let rows = rows.collect();
    List { headings: ["design", "a fault", "from", "semaphores"], rows }.print(args)?;
    if args.format == Format::Human && args.out.is_none() {
        println!("\nThe first semaphore is the design's unless --semaphore says otherwise.");
    }
    Ok(ExitCode::SUCCESS)
}

/// Returns the names of all semaphores, this one first.
fn own_first(own: &'static str) -> String {
    let others = SEMAPHORES.iter().copied().filter(|name| *name != own);
    iter::once(own).chain(others).collect::<Vec<_>>().join(" ")
}

impl<const N: usize> List<N> {
    fn print(&self, args: &ListArgs) -> Result<ExitCode, Failure> {
        print_as(args.format, args.out.as_deref(), |out| self.write(args.format, out))?;
        Ok(ExitCode::SUCCESS)
    }

    fn write(&self, format: Format, out: &mut dyn Write) -> std::io::Result<()> {
        match format {
            Format::Human => self.write_human(out),
            Format::Json => {
                let entry = |row: &[String; N]| {
                    let pairs = self.headings.iter().zip(row);
                    pairs.map(|(&key, value)| (key.to_owned(), value.clone().into())).collect()
                };
                let list: Vec<serde_json::Map<String, serde_json::Value>> = self.rows.iter().map(entry).collect();
                serde_json::to_writer_pretty(&mut *out, &list)?;
                writeln!(out)
            }
            Format::Csv => {
                table::csv_row(out, self.headings)?;
                self.rows.iter().try_for_each(|row| table::csv_row(out, row.iter().map(String::as_str)))
            }
            Format::Markdown => {
                table::markdown_head(out, &self.headings)?;
                self.rows.iter().try_for_each(|row| table::markdown_row(out, row.iter().map(String::as_str)))
            }
        }
    }

    /// Text stands to the left here, in all columns.
    fn write_human(&self, out: &mut dyn Write) -> std::io::Result<()> {
        let all = || std::iter::once(self.headings.map(str::to_owned)).chain(self.rows.iter().cloned());
        let widths: [usize; N] =
            std::array::from_fn(|column| all().map(|row| columns::width(&row[column])).max().unwrap_or(0));
        for row in all() {
            let cells: Vec<String> = row.iter().zip(widths).map(|(cell, to)| columns::left(cell, to)).collect();
            writeln!(out, "{}", cells.join("  ").trim_end())?;
        }
        Ok(())
    }
}
