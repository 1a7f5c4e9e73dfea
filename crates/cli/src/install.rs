//! `faultless completions` and `faultless man`: what a shell and `man` need, made from the command's own definition.
//!
//! # Guarantee
//! Both cover every subcommand and flag there is, because nobody writes them by hand.

use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Args, Command};
use clap_complete::Shell;

use crate::message::Failure;

/// The arguments of `completions`.
#[derive(Args)]
#[command(after_help = "Examples:
  faultless completions bash > ~/.local/share/bash-completion/completions/faultless
  faultless completions zsh > ~/.zfunc/_faultless
  faultless completions fish > ~/.config/fish/completions/faultless.fish")]
pub struct CompletionsArgs {
    /// The shell. Example: bash
    #[arg(value_enum)]
    shell: Shell,
}

/// The arguments of `man`.
#[derive(Args)]
#[command(after_help = "Examples:
  faultless man | man -l -
  faultless man --dir ~/.local/share/man/man1")]
pub struct ManArgs {
    /// Writes a page for the command and one for each subcommand into this folder, instead of the command's page on
    /// standard output. Example: --dir ~/.local/share/man/man1
    #[arg(long, value_name = "FOLDER")]
    dir: Option<PathBuf>,
}

/// Prints the completions of a shell.
pub fn completions(args: &CompletionsArgs, mut command: Command) -> Result<ExitCode, Failure> {
    let mut text = Vec::new();
    clap_complete::generate(args.shell, &mut command, "faultless", &mut text);
    print(&text)
}

/// Prints the man page, or writes all of them.
pub fn man(args: &ManArgs, mut command: Command) -> Result<ExitCode, Failure> {
    command.build();
    let Some(folder) = &args.dir else { return print(&page(command)?) };
    let failed = |error: io::Error| Failure::new(format_args!("cannot write to {}: {error}", folder.display()));
    fs::create_dir_all(folder).map_err(failed)?;
    write_all(command, "faultless", folder).map_err(failed)?;
    Ok(ExitCode::SUCCESS)
}

/// Writes the page of a command and those of its subcommands.
fn write_all(command: Command, name: &str, folder: &Path) -> io::Result<()> {
    for subcommand in command.get_subcommands().filter(|subcommand| subcommand.get_name() != "help") {
        let name = format!("{name}-{}", subcommand.get_name());
        write_all(subcommand.clone(), &name, folder)?;
    }
    fs::write(folder.join(format!("{name}.1")), page(command)?)
}

fn page(command: Command) -> io::Result<Vec<u8>> {
    let mut text = Vec::new();
    clap_mangen::Man::new(command).render(&mut text)?;
    Ok(text)
}

fn print(text: &[u8]) -> Result<ExitCode, Failure> {
    let mut out = io::stdout().lock();
    out.write_all(text).and_then(|()| out.flush())?;
    Ok(ExitCode::SUCCESS)
}
