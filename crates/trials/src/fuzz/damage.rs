//! Bad inputs out of good ones.

use fastrand::Rng;

/// Numbers at whose edges code goes wrong.
const EDGES: [u64; 12] = [
    0,
    1,
    0x7f,
    0x80,
    0xfff,
    0x1000,
    0x7fff_ffff,
    0xffff_ffff,
    0x7fff_ffff_f000,
    0x7fff_ffff_ffff_ffff,
    0xffff_ffff_ffff_f000,
    u64::MAX,
];

/// What stands in place of a number in a text.
const NUMBERS: [&str; 13] = [
    "0",
    "-1",
    "1e308",
    "1e-320",
    "NaN",
    "null",
    "18446744073709551615",
    "9223372036854775808",
    "0.5",
    "[]",
    "{}",
    "true",
    "\"x\"",
];

/// Damages bytes in a few places.
pub(super) fn bytes(random: &mut Rng, bytes: &mut Vec<u8>) {
    for _ in 0..random.u32(1..6) {
        let at = random.usize(0..bytes.len() + 1);
        match random.u32(0..7) {
            0 | 1 if at < bytes.len() => bytes[at] ^= 1 << random.u32(0..8),
            2 if at < bytes.len() => bytes[at] = random.u8(..),
            3 => bytes.insert(at, random.u8(..)),
            4 => drop(bytes.drain(at..(at + random.usize(0..9)).min(bytes.len()))),
            5 => drop(bytes.splice(at..at, varint(EDGES[random.usize(0..EDGES.len())]))),
            _ => {
                let part = bytes[at..(at + random.usize(0..24)).min(bytes.len())].to_vec();
                let to = random.usize(0..bytes.len() + 1);
                bytes.splice(to..to, part);
            }
        }
    }
}

/// LEB128, as traces have it.
fn varint(mut number: u64) -> Vec<u8> {
    let mut out = Vec::new();
    while number >= 0x80 {
        out.push(number as u8 | 0x80);
        number >>= 7;
    }
    out.push(number as u8);
    out
}

/// Damages a text in a few places: numbers, lines, letters.
pub(super) fn text(random: &mut Rng, text: &str) -> String {
    let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
    for _ in 0..random.u32(1..5) {
        let at = random.usize(0..lines.len().max(1));
        match random.u32(0..8) {
            0 if at < lines.len() => drop(lines.remove(at)),
            1 if at < lines.len() => lines.insert(at, lines[at].clone()),
            2 if at < lines.len() => {
                let other = random.usize(0..lines.len());
                lines.swap(at, other);
            }
            3 if at < lines.len() => {
                let mut letters = std::mem::take(&mut lines[at]).into_bytes();
                bytes(random, &mut letters);
                lines[at] = String::from_utf8_lossy(&letters).into_owned();
            }
            _ if at < lines.len() => lines[at] = with_other_number(random, &lines[at]),
            _ => lines.push(NUMBERS[random.usize(0..NUMBERS.len())].to_owned()),
        }
    }
    lines.join("\n")
}

/// Replaces one of a line's numbers.
fn with_other_number(random: &mut Rng, line: &str) -> String {
    let is_digit = |letter: char| letter.is_ascii_digit();
    let starts: Vec<usize> = line
        .char_indices()
        .filter(|&(at, letter)| is_digit(letter) && !line[..at].ends_with(is_digit))
        .map(|(at, _)| at)
        .collect();
    let Some(&start) = random.choice(&starts) else { return line.to_owned() };
    let len =
        line[start..].find(|letter: char| !letter.is_ascii_digit() && letter != '.').unwrap_or(line.len() - start);
    format!("{}{}{}", &line[..start], NUMBERS[random.usize(0..NUMBERS.len())], &line[start + len..])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_seed_gives_the_same_damage() {
        let damaged = |seed| text(&mut Rng::with_seed(seed), "a = 1\nb = 22.5\nc = [3]\n");
        assert_eq!(damaged(7), damaged(7));
        assert!((0..20).any(|seed| damaged(seed) != damaged(7)));
    }
}
