//! Numbers for people and for machines.
//!
//! # Guarantee
//! Terminals and pages show a figure in the same way: what was measured with three digits and a prefix ([`Unit::show`]:
//! `1.46 M/s`, `12.3 us`, `48.8 MiB`), what was counted one by one in full ([`grouped`]: `52,589`), and so a size that
//! was asked for ([`exact_bytes`]: `2500 KiB`). Machines get base units.

/// The unit of a metric.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// Nanoseconds.
    Ns,
    /// Events in a second.
    PerSecond,
    /// A share of 1.
    Share,
    /// A number of things.
    Count,
    /// Bytes.
    Bytes,
}

impl Unit {
    /// Returns the name used in machine formats.
    pub fn name(self) -> &'static str {
        match self {
            Unit::Ns => "ns",
            Unit::PerSecond => "ops/s",
            Unit::Share => "share",
            Unit::Count => "count",
            Unit::Bytes => "bytes",
        }
    }

    /// Returns the unit of a name used in machine formats.
    pub fn named(name: &str) -> Option<Self> {
        let all = [Unit::Ns, Unit::PerSecond, Unit::Share, Unit::Count, Unit::Bytes];
        all.into_iter().find(|unit| unit.name() == name)
    }

    /// Returns a value in a unit that may be anybody's, for people.
    pub fn show_named(name: &str, value: f64) -> String {
        match Self::named(name) {
            Some(unit) => unit.show(value),
            None => format!("{} {name}", digits(value)),
        }
    }

    /// Returns a value for people, with three digits.
    pub fn show(self, value: f64) -> String {
        match self {
            Unit::Ns => scaled(value, 1000.0, &[" ns", " us", " ms", " s"]),
            Unit::PerSecond => scaled(value, 1000.0, &["/s", " k/s", " M/s", " G/s"]),
            Unit::Share => format!("{} %", digits(value * 100.0)),
            Unit::Count => scaled(value, 1000.0, &["", " k", " M", " G"]),
            Unit::Bytes => scaled(value, 1024.0, &[" B", " KiB", " MiB", " GiB", " TiB"]),
        }
    }
}

/// Returns a number in full, with its thousands apart.
pub fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let first = digits.len() % 3;
    let mut groups: Vec<&str> = Vec::new();
    if first > 0 {
        groups.push(&digits[..first]);
    }
    groups.extend((first..digits.len()).step_by(3).map(|start| &digits[start..start + 3]));
    groups.join(",")
}

/// Returns a size as it was asked for: in MiB, KiB or bytes, whichever has no fraction.
pub fn exact_bytes(bytes: u64) -> String {
    match bytes {
        _ if bytes.is_multiple_of(1 << 20) => format!("{} MiB", bytes >> 20),
        _ if bytes.is_multiple_of(1 << 10) => format!("{} KiB", bytes >> 10),
        _ => format!("{bytes} B"),
    }
}

fn scaled(value: f64, step: f64, units: &[&str]) -> String {
    let mut value = value;
    let mut unit = 0;
    // Half a unit in the third digit would show as a thousand of them.
    while value.abs() >= step * 0.9995 && unit + 1 < units.len() {
        value /= step;
        unit += 1;
    }
    format!("{}{}", digits(value), units[unit])
}

/// Returns a number with three significant digits.
fn digits(value: f64) -> String {
    match value.abs() {
        0.0 => "0".into(),
        size if size < 0.995 => format!("{value:.3}"),
        size if size < 9.995 => format!("{value:.2}"),
        size if size < 99.95 => format!("{value:.1}"),
        _ => format!("{value:.0}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_in_full_have_their_thousands_apart() {
        let shown: Vec<String> = [0, 12, 123, 1234, 123_456, 1_706_379, u64::MAX].into_iter().map(grouped).collect();
        assert_eq!(shown, ["0", "12", "123", "1,234", "123,456", "1,706,379", "18,446,744,073,709,551,615"]);
    }

    #[test]
    fn sizes_that_were_asked_for_are_not_rounded() {
        let shown = [0, 4 << 20, 2_560_000, 2_560_001].map(exact_bytes);
        assert_eq!(shown, ["0 MiB", "4 MiB", "2500 KiB", "2560001 B"]);
    }

    #[test]
    fn values_for_people_have_three_digits_and_a_unit() {
        let ns: Vec<String> = [0.0, 1.0, 12.34, 999.4, 999.6, 1234.0, 12_345_678.0].map(|v| Unit::Ns.show(v)).into();
        assert_eq!(ns, ["0 ns", "1.00 ns", "12.3 ns", "999 ns", "1.00 us", "1.23 us", "12.3 ms"]);
        assert_eq!(Unit::Share.show(0.1234), "12.3 %");
        assert_eq!(Unit::Share.show(0.00001), "0.001 %");
        assert_eq!(Unit::Bytes.show(7_340_032.0), "7.00 MiB");
        assert_eq!(Unit::PerSecond.show(1_234_567.0), "1.23 M/s");
        assert_eq!(Unit::Count.show(2265.0), "2.27 k");
        assert_eq!(Unit::show_named("ops/s", 2265.0), "2.27 k/s");
        assert_eq!(Unit::show_named("records", 2.0), "2.00 records");
    }
}
