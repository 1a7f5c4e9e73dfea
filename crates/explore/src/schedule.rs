//! Switches as text: `1:0@15-2,2@33-0` begins with thread 1; thread 0 at its step 15 gives way to thread 2, and so on.
//!
//! Steps are counted by each thread for itself, so that a switch keeps its meaning when others are left out.

use std::fmt;

/// A thread gave way to another, or stopped and another went on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Switch {
    /// Who ran.
    pub from: usize,
    /// Its own step, counted from 1.
    pub step: u64,
    /// Who went on.
    pub to: usize,
}

/// A list of switches can't be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SwitchesError {
    /// The part that can't.
    pub part: String,
}

impl fmt::Display for SwitchesError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} is no switch: they read FIRST:THREAD@STEP-THREAD,..., for instance 1:0@15-2,2@33-0", self.part)
    }
}

impl std::error::Error for SwitchesError {}

/// Writes who begins, and the switches.
pub fn write_switches(first: usize, switches: &[Switch]) -> String {
    let all: Vec<String> = switches.iter().map(|switch| switch.to_string()).collect();
    format!("{first}:{}", all.join(","))
}

impl fmt::Display for Switch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}@{}-{}", self.from, self.step, self.to)
    }
}

/// Reads what [`write_switches`] wrote.
pub fn parse_switches(text: &str) -> Result<(usize, Vec<Switch>), SwitchesError> {
    let wrong = |part: &str| SwitchesError { part: part.to_owned() };
    let (first, rest) = text.split_once(':').ok_or_else(|| wrong(text))?;
    let first = first.parse().map_err(|_| wrong(first))?;
    let parts = rest.split(',').filter(|part| !part.is_empty());
    let switches: Result<Vec<Switch>, _> = parts.map(|part| parse_switch(part).ok_or_else(|| wrong(part))).collect();
    Ok((first, switches?))
}

fn parse_switch(part: &str) -> Option<Switch> {
    let (from, rest) = part.split_once('@')?;
    let (step, to) = rest.split_once('-')?;
    Some(Switch { from: from.parse().ok()?, step: step.parse().ok()?, to: to.parse().ok()? })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read_again() {
        let switches = vec![Switch { from: 0, step: 15, to: 2 }, Switch { from: 2, step: 33, to: 0 }];
        for switches in [switches, Vec::new()] {
            let text = write_switches(1, &switches);
            assert_eq!(parse_switches(&text), Ok((1, switches)));
        }
    }

    #[test]
    fn what_is_no_switch_is_named() {
        for (text, part) in [("", ""), ("x:", "x"), ("1:0@1", "0@1"), ("1:0@1-2,a@1-2", "a@1-2"), ("0:1@+-0,", "1@+-0")]
        {
            assert_eq!(parse_switches(text), Err(SwitchesError { part: part.into() }));
        }
    }
}
