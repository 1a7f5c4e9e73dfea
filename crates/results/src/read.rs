//! Reading result sets back.
//!
//! # Guarantee
//! What isn't a result set of [`SCHEMA`] is refused with what it is instead; a set that is read and written again is
//! the same.

use std::fmt;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::set::{ResultSet, SCHEMA};
use crate::unit::exact_bytes;

/// Of a file that begins as nothing that is read here so much is looked at.
const BYTES_OF_OTHERS: u64 = 4096;

/// Why a file is no result set.
#[derive(Debug)]
pub enum ReadError {
    /// It can't be read.
    Io(PathBuf, io::Error),
    /// It is not JSON.
    NotJson(PathBuf, serde_json::Error),
    /// It is JSON without a schema.
    NoSchema(PathBuf),
    /// It has another schema.
    OtherSchema(PathBuf, String),
    /// It has the schema, and not what belongs to it.
    Malformed(PathBuf, serde_json::Error),
}

impl fmt::Display for ReadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Io(path, error) => write!(f, "cannot read {}: {error}", path.display()),
            Self::NotJson(path, error) => write!(f, "{} is not a result file: not JSON: {error}", path.display()),
            Self::NoSchema(path) => {
                write!(f, "{} is JSON, but no result of faultless: it names no \"schema\"", path.display())
            }
            Self::OtherSchema(path, schema) => {
                write!(f, "{} has the schema \"{schema}\"; this reads \"{SCHEMA}\"", path.display())
            }
            Self::Malformed(path, error) => {
                write!(f, "{} says that it is \"{SCHEMA}\", but is not: {error}", path.display())
            }
        }
    }
}

impl std::error::Error for ReadError {}

/// Reads a result file.
pub fn read(path: &Path) -> Result<ResultSet, ReadError> {
    let text = bytes(path).map_err(|error| ReadError::Io(path.into(), error))?;
    parse(path, &text)
}

/// Reads a file that begins as JSON or a page does; of any other one as much as it takes to say what it is.
pub fn bytes(path: &Path) -> io::Result<Vec<u8>> {
    let mut reader = BufReader::new(File::open(path)?);
    let first = reader.fill_buf()?.iter().copied().find(|byte| !byte.is_ascii_whitespace());
    let most = if matches!(first, Some(b'{' | b'<')) { u64::MAX } else { BYTES_OF_OTHERS };
    let mut text = Vec::new();
    reader.take(most).read_to_end(&mut text)?;
    Ok(text)
}

/// Reads a text of at most `most` bytes; of a longer one, or of what never ends, no more than it takes to know.
///
/// # Errors
/// The file can't be read, or is no text, or is longer, and therefore not `what`.
pub fn text(path: &Path, most: u64, what: &str) -> io::Result<String> {
    let mut text = String::new();
    let nr_bytes = File::open(path)?.take(most.saturating_add(1)).read_to_string(&mut text)?;
    if nr_bytes as u64 > most {
        return Err(io::Error::other(format!("it is longer than {}, and so {what}", exact_bytes(most))));
    }
    Ok(text)
}

/// Understands the text of a result file.
pub fn parse(path: &Path, text: &[u8]) -> Result<ResultSet, ReadError> {
    let value: Value = serde_json::from_slice(text).map_err(|error| ReadError::NotJson(path.into(), error))?;
    match value.get("schema") {
        None => Err(ReadError::NoSchema(path.into())),
        Some(schema) if schema == SCHEMA => {
            serde_json::from_value(value).map_err(|error| ReadError::Malformed(path.into(), error))
        }
        Some(Value::String(schema)) => Err(ReadError::OtherSchema(path.into(), schema.clone())),
        Some(schema) => Err(ReadError::OtherSchema(path.into(), schema.to_string())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::set::{MachineInfo, Measured, Mode};
    use serde_json::json;

    fn read(text: &str) -> Result<ResultSet, String> {
        parse(Path::new("x.json"), text.as_bytes()).map_err(|error| error.to_string())
    }

    #[test]
    fn what_is_written_is_read_and_nothing_unknown_is_lost() {
        let mut set = ResultSet::new("bench", 7, MachineInfo { name: "native".into(), cpus: 2, ..Default::default() });
        set.more.insert("trace".into(), json!({ "pace": "none" }));
        set.results.push(Measured {
            workload: "malloc1".into(),
            mode: Mode::Processes,
            design: "linux".into(),
            semaphore: None,
            cpus: 2,
            workers: Some(16),
            metric: "ops_per_s".into(),
            unit: "ops/s".into(),
            samples: vec![1.5, 2.0, 1e18, 0.1],
            counters: [("faults".to_owned(), u64::MAX)].into(),
            more: [("disturbed".to_owned(), json!([false, true]))].into_iter().collect(),
        });
        set.results.push(Measured { metric: "op_p50_ns".into(), ..set.results[0].clone() });
        assert_eq!(set.nr_disturbed(), 1, "a run counts once, however many metrics it has");
        let text = serde_json::to_string(&set).expect("serializable");
        assert_eq!(read(&text), Ok(set));
    }

    #[test]
    fn the_keys_are_the_schema_s() {
        let set = ResultSet::new("stat", 1, MachineInfo { name: "native".into(), ..Default::default() });
        let value = serde_json::to_value(&set).expect("serializable");
        let keys: Vec<&String> = value.as_object().expect("an object").keys().collect();
        assert_eq!(keys, ["schema", "command", "commit", "seed", "machine", "results", "checks"]);
        assert_eq!(value["schema"], "faultless/1");
        assert_eq!(value["machine"]["simulated"], false);
    }

    #[test]
    fn what_is_no_result_set_is_told_apart() {
        let cases = [
            ("", "not JSON"),
            ("{", "not JSON"),
            ("[]", "no \"schema\""),
            ("{}", "no \"schema\""),
            ("{\"schema\":\"faultless/2\"}", "the schema \"faultless/2\"; this reads \"faultless/1\""),
            ("{\"schema\":1}", "the schema \"1\""),
            ("{\"schema\":\"faultless/1\"}", "missing field `command`"),
        ];
        for (text, wanted) in cases {
            let error = read(text).expect_err(text);
            assert!(error.contains(wanted) && error.contains("x.json"), "{text}: {error}");
        }
    }
}
