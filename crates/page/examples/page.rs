//! Makes a page of result files: `cargo run -p faultless-page --example page -- OUT.html FILE...`; with `--compare`
//! before the files, the page that compares them.

use std::path::PathBuf;

use faultless_results::compare::{Source, compare};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments: Vec<String> = std::env::args().skip(1).collect();
    let compares = arguments.iter().any(|argument| argument == "--compare");
    arguments.retain(|argument| argument != "--compare");
    let [out, files @ ..] = arguments.as_slice() else { return Err("OUT.html and files, please".into()) };
    let mut sources: Vec<Source> = Vec::new();
    for file in files {
        sources.extend(faultless_page::open(&PathBuf::from(file))?);
    }
    let page =
        if compares { faultless_page::of_comparison(&compare(sources)?) } else { faultless_page::of_sets(&sources) };
    Ok(std::fs::write(out, page)?)
}
