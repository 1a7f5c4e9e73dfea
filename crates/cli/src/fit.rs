//! Text for people fits what it is printed on.
//!
//! # Guarantee
//! * I1 tables are as wide as the terminal at most (`results::columns` does it); in pipes and files they are as wide as
//!   they are, so that scripts find what they found
//! * I2 sentences are broken between words on a terminal; in pipes and files each stays one line, so that it is found
//! * I3 without UTF-8 (LC_ALL, LC_CTYPE, LANG, the first that is set) text for people is ASCII alone
//! * I4 machine formats are what they are

use std::io::{self, IsTerminal, Write};

use faultless_results::columns::width;
use faultless_results::screen::{self, Screen, plain};

use crate::message::Color;

/// The narrowest terminal that is believed.
const NARROWEST: usize = 40;

/// What is printed into a file or a pipe.
pub const PAPER: Screen = Screen::WIDE;

/// Says what standard output is (I1, I3).
pub fn look(color: Color) {
    let has_color = color.on(&io::stdout());
    let terminal = columns().map(|columns| Screen { columns, has_color, has_symbols: has_symbols() });
    screen::set(terminal.unwrap_or(Screen { has_color, has_symbols: has_symbols(), ..PAPER }));
}

/// Returns the terminal's width, if standard output is one.
fn columns() -> Option<usize> {
    let (width, _) = terminal_size::terminal_size_of(io::stdout())?;
    io::stdout().is_terminal().then_some(usize::from(width.0).max(NARROWEST))
}

/// Returns whether the locale has symbols; one that nobody has set has.
pub fn has_symbols() -> bool {
    let set = ["LC_ALL", "LC_CTYPE", "LANG"].into_iter().filter_map(|name| std::env::var(name).ok());
    let locale = set.into_iter().find(|locale| !locale.is_empty());
    locale.is_none_or(|locale| is_utf8(&locale))
}

fn is_utf8(locale: &str) -> bool {
    let locale = locale.to_lowercase();
    locale.contains("utf-8") || locale.contains("utf8")
}

/// Writes text as the screen shows it (I2, I3).
pub fn write(text: &str, out: &mut dyn Write) -> io::Result<()> {
    let plain = if screen::get().has_symbols { None } else { Some(plain(text)) };
    let text = plain.as_deref().unwrap_or(text);
    match columns().filter(|&columns| screen::get().columns == columns) {
        Some(columns) => wrapped(text, columns, out),
        None => out.write_all(text.as_bytes()),
    }
}

/// Writes text with its sentences broken between words, at so many columns at most.
fn wrapped(text: &str, columns: usize, out: &mut dyn Write) -> io::Result<()> {
    text.split_inclusive('\n').try_for_each(|line| {
        if width(line.trim_end()) <= columns || is_of_table(line) {
            return out.write_all(line.as_bytes());
        }
        wrap(line.trim_end(), columns).iter().try_for_each(|line| writeln!(out, "{line}"))
    })
}

/// Returns whether a line has columns: two spaces between words, but for one word that names what follows.
fn is_of_table(line: &str) -> bool {
    let gaps = line.trim().split("  ").filter(|part| !part.is_empty()).count();
    gaps > 2
}

/// Breaks a line between words; what follows is indented as far as the text behind a name in front of it.
fn wrap(line: &str, columns: usize) -> Vec<String> {
    let named = line.find("  ").map(|gap| gap + line[gap..].len() - line[gap..].trim_start().len());
    let indent = named.filter(|&indent| indent < columns / 2).unwrap_or(0);
    let (head, text) = line.split_at(indent);
    let mut lines = vec![head.to_owned()];
    let mut used = indent;
    for word in text.split(' ') {
        let has_word = used > indent;
        if has_word && used + 1 + width(word) > columns {
            lines.push(" ".repeat(indent));
            used = indent;
        } else if has_word {
            lines.last_mut().expect("never empty").push(' ');
            used += 1;
        }
        lines.last_mut().expect("never empty").push_str(word);
        used += width(word);
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fitted(text: &str, columns: usize) -> String {
        let mut out = Vec::new();
        wrapped(text, columns, &mut out).expect("written");
        String::from_utf8(out).expect("text")
    }

    #[test]
    fn sentences_are_broken_between_words_and_nothing_is_lost() {
        let text = "Verdict: one is faster than another, and the replay is faithful: 0 mismatches.\nShort.\n";
        for columns in [40, 50, 77, 78, 79, 200] {
            let fitted = fitted(text, columns);
            assert!(fitted.lines().all(|line| width(line) <= columns), "{columns}: {fitted}");
            assert_eq!(fitted.replace('\n', " "), text.replace('\n', " "));
        }
    }

    #[test]
    fn text_behind_a_name_stays_behind_it() {
        let text = "runs      5 of each design, in turn, seed 1; mean and deviation\n";
        assert_eq!(fitted(text, 40), "runs      5 of each design, in turn,\n          seed 1; mean and deviation\n");
    }

    #[test]
    fn locales_say_whether_there_are_symbols() {
        assert_eq!(["C", "POSIX", "de_DE", "C.UTF-8", "en_US.utf8"].map(is_utf8), [false, false, false, true, true]);
    }

    #[test]
    fn tables_are_left_alone() {
        let text = format!("{}\n", ["design", "mmap-sem", "spf-v11", "vma-lock"].join("             "));
        assert_eq!(fitted(&text, 40), text);
    }

    #[test]
    fn a_word_that_is_too_long_has_a_line_of_its_own() {
        assert_eq!(fitted(&format!("a {} b\n", "x".repeat(60)), 40), format!("a\n{}\nb\n", "x".repeat(60)));
    }
}
