//! Sizes as people write them: `4K`, `128M`.
//!
//! # Guarantee
//! What [`parse`] accepts means what it says; everything else gets an error that shows the right form.

/// Parses a size in bytes, with an optional K, M or G for powers of 1024.
pub fn parse(text: &str) -> Result<usize, String> {
    let (digits, shift) = match text.as_bytes().last().map(u8::to_ascii_uppercase) {
        Some(b'K') => (&text[..text.len() - 1], 10),
        Some(b'M') => (&text[..text.len() - 1], 20),
        Some(b'G') => (&text[..text.len() - 1], 30),
        _ => (text, 0),
    };
    let wrong = || format!("'{text}' is not a size; write for example 4096, 512K or 8M");
    let number: usize = digits.parse().map_err(|_| wrong())?;
    number.checked_mul(1 << shift).ok_or_else(wrong)
}

/// Parses the size of a virtual memory.
pub fn parse_memory(text: &str) -> Result<usize, String> {
    let bytes = parse(text)?;
    if bytes < LEAST_MEMORY {
        Err(format!("{text} is too little: a virtual memory has at least 2M"))
    } else {
        Ok(bytes)
    }
}

/// What the frames' descriptions and the smallest zone need.
const LEAST_MEMORY: usize = 2 << 20;

/// Parses the size of a ring: a power of two from 4 KiB to 1 GiB.
pub fn parse_ring(text: &str) -> Result<usize, String> {
    let bytes = parse(text)?;
    if bytes.is_power_of_two() && (4096..=1 << 30).contains(&bytes) {
        Ok(bytes)
    } else {
        Err(format!("{text} is not a power of two from 4K to 1G; the usual value is 8M"))
    }
}

/// Returns a size as [`parse`] takes it.
pub fn written(bytes: u64) -> String {
    match bytes.trailing_zeros() {
        30.. => format!("{}G", bytes >> 30),
        20.. => format!("{}M", bytes >> 20),
        10.. => format!("{}K", bytes >> 10),
        _ => bytes.to_string(),
    }
}

/// Returns a size for people, with three digits.
pub fn human(bytes: u64) -> String {
    const UNITS: [&str; 5] = ["B", "KiB", "MiB", "GiB", "TiB"];
    let mut value = bytes as f64;
    let mut unit = 0;
    while value >= 1024.0 && unit + 1 < UNITS.len() {
        value /= 1024.0;
        unit += 1;
    }
    match (unit, value) {
        (0, _) => format!("{bytes} B"),
        (_, value) if value < 10.0 => format!("{value:.2} {}", UNITS[unit]),
        (_, value) if value < 100.0 => format!("{value:.1} {}", UNITS[unit]),
        _ => format!("{value:.0} {}", UNITS[unit]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_understood_or_refused() {
        assert_eq!(parse("4096"), Ok(4096));
        assert_eq!(parse("4k"), Ok(4096));
        assert_eq!(parse("2G"), Ok(2 << 30));
        for wrong in ["", "K", "4T", "-1", "1.5M", "99999999999G", "ä"] {
            assert!(parse(wrong).is_err(), "{wrong}");
        }
        assert_eq!(parse_ring("8M"), Ok(8 << 20));
        assert!(parse_ring("3M").is_err() && parse_ring("2K").is_err() && parse_ring("2G").is_err());
    }

    #[test]
    fn sizes_for_people_have_three_digits() {
        let shown: Vec<_> = [0, 1023, 1024, 1 << 20, 12_345_678, 5 << 40].into_iter().map(human).collect();
        assert_eq!(shown, ["0 B", "1023 B", "1.00 KiB", "1.00 MiB", "11.8 MiB", "5.00 TiB"]);
    }
}
