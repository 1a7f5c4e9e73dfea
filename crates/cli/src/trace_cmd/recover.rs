//! `faultless trace recover`: a trace of what a killed recorder left.

use std::path::PathBuf;

use clap::Args;
use faultless_linux::recover;

use crate::message::Failure;
use crate::record::{progress_bar, show, summarize};

/// The arguments of `trace recover`.
#[derive(Args)]
#[command(after_help = "Example:
  faultless trace recover -o server.trace server.trace.4711.raw

While a program is recorded into FILE, its raw records lie in the folder FILE.PID.raw, PID being the recorder's; if FILE is a \
pipe or a device, in faultless.PID.raw in the folder for temporary files. The folder is left if the recorder is killed, or \
can't write the trace.

The trace holds everything up to the recorder's last look at the kernel's buffers, 20 times a second or more often. It is marked \
as interrupted, lacks `last-moments`, and can be replayed. The raw records stay; remove the folder when they are no longer needed.")]
pub struct RecoverArgs {
    /// The folder of raw records.
    #[arg(value_name = "FOLDER")]
    folder: PathBuf,

    /// Where the trace goes; an existing file is replaced when the new one is complete.
    #[arg(short, long, value_name = "FILE", default_value = "faultless.trace")]
    output: PathBuf,
}

/// Makes the trace.
pub fn run(args: &RecoverArgs) -> Result<(), Failure> {
    let bar = progress_bar();
    let result = recover(&args.folder, &args.output, &|thousandths| show(&bar, thousandths));
    bar.finish_and_clear();
    let recording = result.map_err(Failure::new)?;
    summarize(&args.output, &recording);
    eprintln!("  partial   the recorder was killed: what came after its last look is not in the trace");
    Ok(())
}
