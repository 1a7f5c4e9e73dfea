//! How the command says that something went wrong.
//!
//! # Guarantee
//! A failure prints one line on stderr, beginning with `error:`; a reader that went away (a closed pipe) is none.

use std::fmt::Display;
use std::io::{self, IsTerminal};
use std::process::ExitCode;

use clap::ValueEnum;

/// When to use colour.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Color {
    /// On a terminal, unless NO_COLOR is set.
    Auto,
    /// Always.
    Always,
    /// Never.
    Never,
}

impl Color {
    /// Returns whether stderr is to be coloured.
    pub fn on_stderr(self) -> bool {
        self.on(&io::stderr())
    }

    /// Returns whether what is written there is to be coloured.
    pub fn on(self, stream: &impl IsTerminal) -> bool {
        match self {
            Color::Always => true,
            Color::Never => false,
            Color::Auto => std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty()) && stream.is_terminal(),
        }
    }
}

/// Why the command ends early.
#[derive(Debug)]
pub enum Failure {
    /// Something failed: what, and the exit code.
    Failed(String, u8),
    /// Nobody reads the results any more.
    ReaderGone,
}

impl Failure {
    /// A failure with exit code 1.
    pub fn new(what: impl Display) -> Self {
        Self::Failed(what.to_string(), 1)
    }

    /// A command that was not understood: exit code 2.
    pub fn usage(what: impl Display) -> Self {
        Self::Failed(what.to_string(), 2)
    }

    /// Says it and returns the exit code.
    pub fn report(self, color: Color) -> ExitCode {
        match self {
            Self::Failed(what, code) => {
                say(color, Tone::Error, &what);
                ExitCode::from(code)
            }
            Self::ReaderGone => ExitCode::SUCCESS,
        }
    }
}

impl From<io::Error> for Failure {
    /// A failure to write results.
    fn from(error: io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::BrokenPipe => Self::ReaderGone,
            _ => Self::new(format_args!("cannot write the results: {error}")),
        }
    }
}

/// How serious a message is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tone {
    /// The command failed.
    Error,
    /// The results are less than they could be.
    Warning,
    /// All is well, and this is good to know.
    Note,
}

/// Prints a message on stderr.
pub fn say(color: Color, tone: Tone, what: &str) {
    let (word, code) = match tone {
        Tone::Error => ("error", 31),
        Tone::Warning => ("warning", 33),
        Tone::Note => ("note", 36),
    };
    if color.on_stderr() {
        eprintln!("\x1b[1;{code}m{word}:\x1b[0m {what}");
    } else {
        eprintln!("{word}: {what}");
    }
}
