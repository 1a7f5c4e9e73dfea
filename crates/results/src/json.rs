//! A result set as JSON: one document.

use std::io::{self, Write};

use crate::set::ResultSet;

/// Writes the document.
pub fn write(set: &ResultSet, out: &mut (impl Write + ?Sized)) -> io::Result<()> {
    serde_json::to_writer_pretty(&mut *out, set)?;
    writeln!(out)
}
