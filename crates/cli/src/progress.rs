//! How progress bars look: of symbols that the terminal has.

use indicatif::ProgressStyle;

use crate::fit;

/// Returns the style of a bar with these parts.
pub fn style(template: &str) -> ProgressStyle {
    let style = ProgressStyle::with_template(template).unwrap_or(ProgressStyle::default_bar());
    if fit::has_symbols() { style } else { style.progress_chars("#>-") }
}
