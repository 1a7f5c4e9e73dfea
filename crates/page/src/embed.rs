//! Result sets inside a page, and how they are read back.
//!
//! # Guarantee
//! What [`open`] reads from a page is what the page was made of, sample by sample. A file that is no page is read as a
//! result set.

use std::path::Path;

use faultless_results::compare::Source;
use faultless_results::{ReadError, SCHEMA, bytes, parse};
use serde_json::{Value, json};

use crate::markup::Markup;

/// What stands before the data.
const BEGIN: &str = "<script type=\"application/json\" id=\"faultless-data\">";
const END: &str = "</script>";

/// How a page begins.
pub const DOCTYPE: &str = "<!doctype html>";

/// Writes result sets into a page.
pub fn write(out: &mut Markup, sources: &[Source]) {
    let sources: Vec<Value> =
        sources.iter().map(|source| json!({ "label": source.label, "set": source.set })).collect();
    let text = json!({ "schema": SCHEMA, "sources": sources }).to_string();
    out.own(BEGIN);
    // Inside a script element nothing is markup but its end, and what begins a comment.
    out.own(&text.replace('<', "\\u003c"));
    out.own(END);
}

/// Reads the result sets of a page, or the one of a result file.
pub fn open(path: &Path) -> Result<Vec<Source>, ReadError> {
    let text = bytes(path).map_err(|error| ReadError::Io(path.into(), error))?;
    if !text.starts_with(DOCTYPE.as_bytes()) {
        let set = parse(path, &text)?;
        return Ok(vec![Source { label: path.display().to_string(), set }]);
    }
    let text = String::from_utf8_lossy(&text);
    let data = text.split_once(BEGIN).and_then(|(_, rest)| rest.split_once(END));
    let (data, _) = data.ok_or_else(|| ReadError::NoSchema(path.into()))?;
    let value: Value = serde_json::from_str(data).map_err(|error| ReadError::NotJson(path.into(), error))?;
    let sources = value.get("sources").and_then(Value::as_array);
    let sources = sources.filter(|sources| !sources.is_empty()).ok_or_else(|| ReadError::NoSchema(path.into()))?;
    sources.iter().map(|source| read(path, source)).collect()
}

fn read(path: &Path, source: &Value) -> Result<Source, ReadError> {
    let set = source.get("set").ok_or_else(|| ReadError::NoSchema(path.into()))?;
    let label = source.get("label").and_then(Value::as_str).unwrap_or_default().to_owned();
    Ok(Source { label, set: parse(path, set.to_string().as_bytes())? })
}
