//! The columns of a picture: which part of a time a moment falls into.

/// Columns of time.
pub const COLUMNS: usize = 240;

/// Returns which column a time falls into.
pub(crate) fn column(time_ns: u64, duration_ns: u64, columns: usize) -> usize {
    let place = u128::from(time_ns) * columns as u128 / u128::from(duration_ns.max(1));
    (place as usize).min(columns - 1)
}
