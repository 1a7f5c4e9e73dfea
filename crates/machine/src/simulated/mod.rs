//! Machines to run on: this one, or a simulated one.
//!
//! # Guarantee
//! A name means one machine: `native`; a machine that comes with the program; a file of the user's. A file that is
//! wrong is an error that names file, key and value.
//!
//! # Where `here` comes from
//! From the file that `faultless machines calibrate` wrote last, if there is one: [`here_path`]; else from the program.

mod parallel;
mod rerun;

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

pub use faultless_sim::{LineAllocator, MACHINES, Number, Spec, SpecError};
pub use parallel::in_parallel;
pub use rerun::with_rerun;

/// The name of the machine that this is.
pub const NATIVE: &str = "native";
/// The name of the machine that was calibrated.
pub const HERE: &str = "here";

/// A machine to run on.
#[derive(Clone, Debug, PartialEq)]
pub enum MachineChoice {
    /// This one.
    Native,
    /// A simulated one.
    Simulated(Box<Spec>),
}

/// Why there is no such machine.
#[derive(Debug)]
pub enum MachineError {
    /// Neither a machine nor a file has this name.
    Unknown(String),
    /// The file can't be read.
    Unreadable(PathBuf, io::Error),
    /// The file is no machine.
    Wrong(PathBuf, SpecError),
    /// More CPUs than the machine has.
    TooManyCpus {
        /// The machine.
        machine: String,
        /// What was asked for.
        asked: usize,
        /// What it has.
        has: usize,
    },
}

impl fmt::Display for MachineError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unknown(name) => write!(f, "there is no machine '{name}'"),
            Self::Unreadable(path, error) => write!(f, "machine file {}: {error}", path.display()),
            Self::Wrong(path, error) => write!(f, "machine file {}: {error}", path.display()),
            Self::TooManyCpus { machine, asked, has } => {
                write!(f, "{asked} CPUs were asked for: machine {machine} has 1 to {has}")
            }
        }
    }
}

impl std::error::Error for MachineError {}

/// Returns the names of all machines but the user's files.
pub fn names() -> impl Iterator<Item = &'static str> + Clone {
    std::iter::once(NATIVE).chain(MACHINES.iter().map(|(name, _)| *name))
}

/// Returns the machine of a name, or of a file.
pub fn find(name: &str) -> Result<MachineChoice, MachineError> {
    if name == NATIVE {
        return Ok(MachineChoice::Native);
    }
    let calibrated = here_path().filter(|path| name == HERE && path.exists());
    let file = calibrated.or_else(|| is_path(name).then(|| PathBuf::from(name)));
    let spec = match file {
        Some(path) => read(&path)?,
        None => Spec::preset(name).ok_or_else(|| MachineError::Unknown(name.to_owned()))?,
    };
    Ok(MachineChoice::Simulated(Box::new(spec)))
}

/// Says whether a name means a file: it looks like a path, and no machine is called so.
fn is_path(name: &str) -> bool {
    let is_known = MACHINES.iter().any(|(known, _)| *known == name);
    !is_known && (name.contains('/') || name.ends_with(".toml") || Path::new(name).is_file())
}

/// Reads a machine file.
pub fn read(path: &Path) -> Result<Spec, MachineError> {
    let text = faultless_results::text(path, 1 << 20, "no machine file")
        .map_err(|error| MachineError::Unreadable(path.to_owned(), error))?;
    Spec::parse(&text).map_err(|error| MachineError::Wrong(path.to_owned(), error))
}

/// Returns where the calibrated machine lies: in the folder that `FAULTLESS_MACHINES` names, else in
/// `faultless/machines` in the user's data folder.
pub fn here_path() -> Option<PathBuf> {
    let variable = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let data = || variable("XDG_DATA_HOME").or_else(|| Some(variable("HOME")?.join(".local/share")));
    let folder = variable("FAULTLESS_MACHINES").or_else(|| Some(data()?.join("faultless/machines")));
    folder.map(|folder| folder.join("here.toml"))
}

impl MachineChoice {
    /// Returns the simulated machine, if it is one.
    pub fn simulated(&self) -> Option<&Spec> {
        match self {
            Self::Native => None,
            Self::Simulated(spec) => Some(spec),
        }
    }

    /// Returns the numbers of CPUs to run on unless told: all of this machine's; on a simulated one the powers of two,
    /// and all.
    pub fn default_cpus(&self) -> Vec<usize> {
        let Some(spec) = self.simulated() else { return vec![crate::host::cpus()] };
        let most = spec.nr_cpus();
        let powers = std::iter::successors(Some(1), |cpus| Some(cpus * 2));
        powers.take_while(|&cpus| cpus < most).chain([most]).collect()
    }

    /// Checks that a simulated machine has so many CPUs.
    pub fn check_cpus(&self, cpus: &[usize]) -> Result<(), MachineError> {
        let Some(spec) = self.simulated() else { return Ok(()) };
        let has = spec.nr_cpus();
        match cpus.iter().find(|&&asked| asked == 0 || asked > has) {
            Some(&asked) => Err(MachineError::TooManyCpus { machine: spec.name().to_owned(), asked, has }),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_machines_and_paths_are_files() {
        assert_eq!(find("native").expect("this machine"), MachineChoice::Native);
        let xeon = find("xeon-40").expect("a preset");
        assert_eq!(xeon.default_cpus(), [1, 2, 4, 8, 16, 32, 40]);
        assert!(xeon.check_cpus(&[1, 40]).is_ok());
        let error = xeon.check_cpus(&[1, 41]).expect_err("one too many");
        assert_eq!(error.to_string(), "41 CPUs were asked for: machine xeon-40 has 1 to 40");
        assert!(matches!(find("xeon-41"), Err(MachineError::Unknown(_))));
        assert!(matches!(find("./no-such.toml"), Err(MachineError::Unreadable(..))));
    }

    #[test]
    fn a_file_of_the_users_is_a_machine_and_a_wrong_one_is_named() {
        let folder = std::env::temp_dir().join(format!("faultless-machines-{}", std::process::id()));
        std::fs::create_dir_all(&folder).expect("a folder");
        let (good, bad) = (folder.join("good.toml"), folder.join("bad.toml"));
        std::fs::write(&good, MACHINES[0].1).expect("a file");
        std::fs::write(&bad, MACHINES[0].1.replace("rmw_ns", "rwm_ns")).expect("a file");
        let machine = find(good.to_str().expect("plain")).expect("a machine");
        assert_eq!(machine.simulated().map(Spec::nr_cpus), Some(16));
        let error = find(bad.to_str().expect("plain")).expect_err("a wrong key").to_string();
        assert!(error.contains("bad.toml") && error.contains("rwm_ns"), "{error}");
        std::fs::remove_dir_all(&folder).expect("removed");
    }
}
