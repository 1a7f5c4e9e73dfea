//! What must not be, as it is shown.

use std::io::{self, Write};

use faultless_trials::Found;

/// Writes what must not be, each with the line that shows it again, or that nothing was found.
pub(super) fn write_found(found: &[Found], out: &mut dyn Write) -> io::Result<()> {
    if found.is_empty() {
        return writeln!(out, "Nothing was found.");
    }
    writeln!(out, "Found {}:", found.len())?;
    found.iter().try_for_each(|found| {
        writeln!(out, "  {} of {}: {}\n    {}", found.judge, found.subject, found.what, found.line)
    })
}
