//! What people look at: how wide it is, and whether it shows colours and symbols.
//!
//! # Guarantee
//! Until a command has said what its screen is, nothing is bent, coloured or replaced: a library's texts are the same
//! wherever they are made. Colour only repeats what a sign or a word beside it says.

use std::sync::{PoisonError, RwLock};

/// A screen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Screen {
    /// Tables are at most so many columns wide, unless one cell is wider.
    pub columns: usize,
    /// Whether escape sequences colour it.
    pub has_color: bool,
    /// Whether it has more symbols than ASCII's.
    pub has_symbols: bool,
}

/// What a text says of its subject.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tone {
    /// It got better, or it wins.
    Better,
    /// It got worse, or it fails.
    Worse,
    /// Nobody can tell.
    Undecided,
}

impl Screen {
    /// The screen of texts that nobody has said anything about: without end, plain of colour, with symbols.
    pub const WIDE: Self = Self { columns: usize::MAX, has_color: false, has_symbols: true };
}

static SCREEN: RwLock<Screen> = RwLock::new(Screen::WIDE);

/// Says what the screen is, and returns what it was; not to be called between two lines of a text.
pub fn set(screen: Screen) -> Screen {
    let mut held = SCREEN.write().unwrap_or_else(PoisonError::into_inner);
    std::mem::replace(&mut held, screen)
}

/// Returns the screen.
pub fn get() -> Screen {
    *SCREEN.read().unwrap_or_else(PoisonError::into_inner)
}

/// Returns a text in the colour of its tone, if the screen has colours.
pub fn toned(tone: Tone, text: &str) -> String {
    let code = match tone {
        Tone::Better => 32,
        Tone::Worse => 31,
        Tone::Undecided => 33,
    };
    if get().has_color { format!("\x1b[{code}m{text}\x1b[0m") } else { text.to_owned() }
}

/// Returns a text without the colours of [`toned`].
pub fn uncolored(text: &str) -> String {
    let mut parts = text.split("\x1b[");
    let first = parts.next().unwrap_or_default().to_owned();
    parts.fold(first, |whole, part| whole + part.split_once('m').map_or(part, |(_, rest)| rest))
}

/// Returns a share of 1 as a bar of so many cells, which has at least a mark if there is anything.
pub fn bar(share: f64, cells: usize) -> String {
    let eighths = (share.clamp(0.0, 1.0) * (cells * 8) as f64).round() as usize;
    if !get().has_symbols {
        return "#".repeat(eighths.div_ceil(8).min(cells));
    }
    const PARTS: [&str; 8] = ["", "▏", "▎", "▍", "▌", "▋", "▊", "▉"];
    let eighths = if share > 0.0 { eighths.max(1) } else { eighths };
    format!("{}{}", "█".repeat(eighths / 8), PARTS[eighths % 8])
}

/// Returns values as a line of small bars, one a value, from the least to the most of them.
pub fn sparkline(values: &[f64]) -> String {
    const SYMBOLS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
    const LETTERS: [char; 8] = ['_', '.', ',', '-', '=', '+', '*', '#'];
    let levels = if get().has_symbols { SYMBOLS } else { LETTERS };
    let (least, most) = values.iter().fold((f64::MAX, f64::MIN), |(least, most), v| (least.min(*v), most.max(*v)));
    let level = |value: f64| if most > least { ((value - least) / (most - least) * 7.0).round() as usize } else { 3 };
    values.iter().map(|&value| levels[level(value).min(7)]).collect()
}

/// Returns a text in ASCII: what it has of other symbols is spelled out.
pub fn plain(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for letter in text.chars() {
        match letter {
            _ if letter.is_ascii() => out.push(letter),
            '±' => out.push_str("+-"),
            '−' | '–' | '—' | '─' => out.push('-'),
            '│' => out.push('|'),
            '∞' => out.push_str("inf"),
            '×' => out.push('x'),
            'µ' | 'μ' => out.push('u'),
            '¹' => out.push_str("(1)"),
            '→' => out.push_str("->"),
            '≥' => out.push_str(">="),
            '≤' => out.push_str("<="),
            '…' => out.push_str("..."),
            '█' => out.push('#'),
            _ => out.push('?'),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn colours_are_taken_out_and_nothing_else() {
        assert_eq!(uncolored("a \x1b[32mbetter m\x1b[0m end"), "a better m end");
        assert_eq!(uncolored("plain m"), "plain m");
    }

    #[test]
    fn bars_and_lines_show_sizes() {
        assert_eq!([0.0, 0.001, 0.5, 1.0].map(|share| bar(share, 4)), ["", "▏", "██", "████"]);
        assert_eq!(sparkline(&[1.0, 8.0, 4.5]), "▁█▅");
        assert_eq!(sparkline(&[2.0, 2.0]), "▄▄");
    }

    #[test]
    fn every_text_becomes_ascii() {
        assert_eq!(plain("1.0 ms ± 2 %, ∞ → ¹ 字"), "1.0 ms +- 2 %, inf -> (1) ?");
    }
}
