//! `emulator [--memory SIZE] PROGRAM [ARGUMENTS...]`: runs a static RV64 Linux program.

use faultless_embed_emulator::{Options, run};
use std::io::{BufWriter, Write};
use std::process::ExitCode;

const USAGE: &str = "usage: emulator [--memory MEGABYTES] [--count] PROGRAM [ARGUMENTS...]

Runs a static RV64GC Linux program. The exit code is the program's, or 128 and the number of the signal that ended it; 2 if
it was not run. --count says at the end how many instructions it ran.

Example: riscv64-linux-gnu-gcc -static -O2 -o hello hello.c && emulator hello";

fn main() -> ExitCode {
    let mut options = Options::default();
    let mut counts = false;
    let mut words = std::env::args().skip(1).peekable();
    while let Some(word) = words.next_if(|word| word.starts_with("--")) {
        match word.as_str() {
            "--count" => counts = true,
            "--help" => {
                println!("{USAGE}");
                return ExitCode::SUCCESS;
            }
            "--memory" => match words
                .next()
                .and_then(|text| text.parse::<usize>().ok())
                .filter(|&mib| (1..=1 << 20).contains(&mib))
            {
                Some(mib) => options.memory_bytes = mib << 20,
                None => return refuse("--memory takes a number of megabytes from 1 on"),
            },
            other => return refuse(&format!("there is no option {other}\n{USAGE}")),
        }
    }
    let arguments: Vec<String> = words.collect();
    let Some(path) = arguments.first() else { return refuse(USAGE) };
    let file = match std::fs::read(path) {
        Ok(file) => file,
        Err(error) => return refuse(&format!("{path}: {error}")),
    };
    let mut output = BufWriter::new(std::io::stdout().lock());
    let mut error = std::io::stderr().lock();
    let ended = run(&file, &arguments, options, &mut output, &mut error);
    let is_written = output.flush().is_ok();
    drop(error);
    match ended {
        Ok(ended) => {
            if counts {
                eprintln!("{} instructions", ended.nr_instructions);
            }
            if is_written { ExitCode::from(ended.status as u8) } else { refuse("standard output could not be written") }
        }
        Err(error) => refuse(&format!("{path}: {error}")),
    }
}

fn refuse(why: &str) -> ExitCode {
    eprintln!("emulator: {why}");
    ExitCode::from(2)
}
