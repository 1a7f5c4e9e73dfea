//! Durations as people write them: `300ms`, `2s`.

use faultless_results::Unit;

use crate::message::Failure;

/// Parses a duration in nanoseconds; a unit is needed.
pub fn parse(text: &str) -> Result<u64, String> {
    let wrong = || format!("'{text}' is not a duration; write for example 300ms, 2s, 50us, 1m or 1h");
    let digits = text.find(|letter: char| !letter.is_ascii_digit() && letter != '.').ok_or_else(wrong)?;
    let unit_ns = match &text[digits..] {
        "ns" => 1.0,
        "us" => 1e3,
        "ms" => 1e6,
        "s" => 1e9,
        "m" | "min" => 60e9,
        "h" => 3600e9,
        _ => return Err(wrong()),
    };
    let number: f64 = text[..digits].parse().map_err(|_| wrong())?;
    let ns = number * unit_ns;
    if ns >= 1.0 && ns < u64::MAX as f64 { Ok(ns as u64) } else { Err(wrong()) }
}

/// A duration, and how it was written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Written {
    /// What was written.
    pub text: String,
    /// What it means.
    pub ns: u64,
}

impl Written {
    /// Refuses a time to hold something, called `name`, that is longer than a run of `run_ns`.
    pub fn check_within(&self, name: &str, run_ns: u64) -> Result<(), Failure> {
        if self.ns <= run_ns {
            return Ok(());
        }
        let (held, run) = (&self.text, Unit::Ns.show(run_ns as f64));
        let why = format!("{name} {held} is longer than a run, which is {run}: hold less, or give it a --duration");
        Err(Failure::usage(why))
    }
}

/// Parses a duration that will be shown as it was written.
pub fn parse_written(text: &str) -> Result<Written, String> {
    parse(text).map(|ns| Written { text: text.to_owned(), ns })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_understood_or_refused() {
        assert_eq!(parse("300ms"), Ok(300_000_000));
        assert_eq!(parse("2s"), Ok(2_000_000_000));
        assert_eq!(parse("1.5s"), Ok(1_500_000_000));
        assert_eq!(parse("1h"), Ok(3_600_000_000_000));
        assert_eq!(parse("50us"), Ok(50_000));
        for wrong in ["", "5", "s", "0s", "-1s", "1d", "1.2.3s", "99999999999999m"] {
            assert!(parse(wrong).is_err(), "{wrong}");
        }
    }
}
