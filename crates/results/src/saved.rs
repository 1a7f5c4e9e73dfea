//! Results kept under a name.
//!
//! # Guarantee
//! A result takes its place when it is whole; the one that had the name before stays, as `NAME~`. Results lie as files
//! in one folder: the one that `FAULTLESS_RESULTS` names, otherwise `faultless/results` in the user's data folder
//! (`XDG_DATA_HOME`, or `~/.local/share`).

use std::ffi::OsString;
use std::fmt;
use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use crate::{ReadError, ResultSet, json, read};

/// The longest name.
const LONGEST_NAME: usize = 100;

/// The folder of saved results.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Store {
    folder: PathBuf,
}

/// A result in the folder.
#[derive(Debug)]
pub struct Saved {
    /// Its name.
    pub name: String,
    /// Its file.
    pub path: PathBuf,
    /// When it was saved; nothing if the system does not tell.
    pub since: Option<SystemTime>,
    /// What it holds, or why that can't be read.
    pub set: Result<ResultSet, ReadError>,
}

/// Why results can't be kept.
#[derive(Debug)]
pub enum StoreError {
    /// Nothing says where.
    NoFolder,
    /// The folder, or a file in it, can't be used.
    Io(PathBuf, io::Error),
}

impl fmt::Display for StoreError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoFolder => {
                write!(f, "nothing says where results are kept: set FAULTLESS_RESULTS to a folder, or HOME")
            }
            Self::Io(path, error) => write!(f, "saved results: {}: {error}", path.display()),
        }
    }
}

impl std::error::Error for StoreError {}

/// Returns a name if results can be kept under it.
pub fn name(text: &str) -> Result<String, String> {
    let is_plain = |letter: char| letter.is_ascii_alphanumeric() || "._-+~".contains(letter);
    let has_start = text.starts_with(|letter: char| letter.is_ascii_alphanumeric());
    match () {
        () if !has_start || !text.chars().all(is_plain) || text.ends_with(".json") => Err(format!(
            "'{text}' can't name a result: letters, digits and . _ - + only, with a letter or digit first, and no .json"
        )),
        () if text.len() > LONGEST_NAME => Err(format!("a name has at most {LONGEST_NAME} letters")),
        () => Ok(text.to_owned()),
    }
}

impl Store {
    /// Returns the user's folder, which need not exist yet.
    pub fn open() -> Result<Self, StoreError> {
        folder(|variable| std::env::var_os(variable)).map(|folder| Self { folder }).ok_or(StoreError::NoFolder)
    }

    /// Returns a folder of results.
    pub fn at(folder: impl Into<PathBuf>) -> Self {
        Self { folder: folder.into() }
    }

    /// Returns the folder.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Returns where a name's result lies, or would.
    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.join(format!("{name}.json"))
    }

    /// Makes sure that results can be saved, before anybody spends time on one.
    pub fn prepare(&self) -> Result<(), StoreError> {
        let failed = |error| StoreError::Io(self.folder.clone(), error);
        fs::create_dir_all(&self.folder).map_err(failed)?;
        let probe = self.folder.join(format!(".{}.probe", std::process::id()));
        fs::write(&probe, []).and_then(|()| fs::remove_file(&probe)).map_err(failed)
    }

    /// Keeps a result under a name; what had the name before is `NAME~` now.
    pub fn save(&self, name: &str, set: &ResultSet) -> Result<PathBuf, StoreError> {
        self.prepare()?;
        let path = self.path(name);
        let partial = self.folder.join(format!(".{name}.{}.partial", std::process::id()));
        let written = write_whole(&partial, set)
            .and_then(|()| keep_previous(&path, &self.path(&format!("{name}~"))))
            .and_then(|()| fs::rename(&partial, &path));
        if let Err(error) = written {
            // The error that counts is the first one.
            let _ = fs::remove_file(&partial);
            return Err(StoreError::Io(path, error));
        }
        Ok(path)
    }

    /// Returns the names there are, in order.
    pub fn names(&self) -> Result<Vec<String>, StoreError> {
        let failed = |error| StoreError::Io(self.folder.clone(), error);
        let entries = match fs::read_dir(&self.folder) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            entries => entries.map_err(failed)?,
        };
        let files = entries.collect::<Result<Vec<_>, _>>().map_err(failed)?;
        let name_of = |file: &fs::DirEntry| file.file_name().to_str()?.strip_suffix(".json").map(str::to_owned);
        let mut names: Vec<String> = files.iter().filter_map(name_of).filter(|name| !name.starts_with('.')).collect();
        names.sort();
        Ok(names)
    }

    /// Returns all results, by name.
    pub fn list(&self) -> Result<Vec<Saved>, StoreError> {
        let saved = |name: String| {
            let path = self.path(&name);
            let since = fs::metadata(&path).and_then(|data| data.modified()).ok();
            Saved { set: read(&path), name, path, since }
        };
        Ok(self.names()?.into_iter().map(saved).collect())
    }
}

fn write_whole(path: &Path, set: &ResultSet) -> io::Result<()> {
    let mut out = io::BufWriter::new(fs::File::create(path)?);
    json::write(set, &mut out)?;
    out.flush()
}

fn keep_previous(path: &Path, previous: &Path) -> io::Result<()> {
    match fs::rename(path, previous) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        result => result,
    }
}

/// Returns the folder that the environment names.
fn folder(variable: impl Fn(&str) -> Option<OsString>) -> Option<PathBuf> {
    let set = |name: &str| variable(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    // A relative XDG_DATA_HOME is to be ignored, says its specification.
    let data = set("XDG_DATA_HOME").filter(|path| path.is_absolute());
    set("FAULTLESS_RESULTS")
        .or_else(|| Some(data.or_else(|| Some(set("HOME")?.join(".local/share")))?.join("faultless/results")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::MachineInfo;

    #[test]
    fn names_stay_inside_the_folder() {
        for good in ["base", "v1.2-rc+3", "0", "base~"] {
            assert_eq!(name(good).as_deref(), Ok(good));
        }
        for bad in ["", ".", "..", "a/b", "../x", ".hidden", "-x", "~", "a b", "ä", "x.json", &"x".repeat(101)] {
            assert!(name(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn the_environment_says_where() {
        let with = |pairs: &'static [(&str, &str)]| {
            folder(|wanted| pairs.iter().find(|(name, _)| *name == wanted).map(|(_, value)| value.into()))
        };
        let both = with(&[("HOME", "/h"), ("XDG_DATA_HOME", "/d"), ("FAULTLESS_RESULTS", "r")]);
        assert_eq!(both, Some("r".into()));
        assert_eq!(with(&[("HOME", "/h"), ("XDG_DATA_HOME", "/d")]), Some("/d/faultless/results".into()));
        let home = Some(PathBuf::from("/h/.local/share/faultless/results"));
        assert_eq!(with(&[("HOME", "/h"), ("XDG_DATA_HOME", "relative")]), home);
        assert_eq!(with(&[("HOME", "/h"), ("XDG_DATA_HOME", ""), ("FAULTLESS_RESULTS", "")]), home);
        assert_eq!(with(&[]), None);
    }

    #[test]
    fn the_previous_result_of_a_name_stays() {
        let folder = std::env::temp_dir().join(format!("faultless-saved-{}", std::process::id()));
        let _ = fs::remove_dir_all(&folder);
        let store = Store::at(folder.join("deep/er"));
        assert_eq!(store.names().expect("no folder is an empty one"), Vec::<String>::new());
        let set = |seed| ResultSet::new("bench", seed, MachineInfo::default());
        (1..=3).for_each(|seed| drop(store.save("base", &set(seed)).expect("saved")));
        fs::write(store.path("odd"), "{}").expect("written");
        let found = store.list().expect("readable");
        let shown: Vec<_> = found.iter().map(|saved| (&*saved.name, saved.set.as_ref().ok().map(|s| s.seed))).collect();
        assert_eq!(shown, [("base", Some(3)), ("base~", Some(2)), ("odd", None)]);
        assert_eq!(fs::read_dir(store.folder()).expect("readable").count(), 3, "nothing partial is left");
        fs::remove_dir_all(&folder).expect("removable");
    }
}
