//! Recorded texts as a terminal and a shell may see them.
//!
//! # Guarantee
//! What is returned holds no character that steers a terminal or reorders what is shown, whatever the recorded program
//! put into its arguments, file names and thread names.

use std::fmt::Write;

/// Returns the words as one line that bash and zsh read back as the same words.
pub fn shell_line(words: &[String]) -> String {
    let quote = |(place, word): (usize, &String)| {
        // A first word with `=` would be an assignment.
        if is_plain(word) && !(place == 0 && word.contains('=')) { word.clone() } else { quoted(word) }
    };
    words.iter().enumerate().map(quote).collect::<Vec<_>>().join(" ")
}

/// Returns the text with what steers a terminal written as an escape: `\n`, `\x1b`, `\u202e`.
pub fn printable(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    text.chars().for_each(|letter| if is_steering(letter) { escape(letter, &mut out) } else { out.push(letter) });
    out
}

fn is_plain(word: &str) -> bool {
    let is_plain = |letter: char| letter.is_ascii_alphanumeric() || "_@%+=:,./-".contains(letter);
    !word.is_empty() && word.chars().all(is_plain)
}

fn quoted(word: &str) -> String {
    if !word.chars().any(is_steering) {
        return format!("'{}'", word.replace('\'', r"'\''"));
    }
    let mut out = String::from("$'");
    for letter in word.chars() {
        match letter {
            '\'' | '\\' => out.extend(['\\', letter]),
            letter if is_steering(letter) => escape(letter, &mut out),
            letter => out.push(letter),
        }
    }
    out.push('\'');
    out
}

/// Says whether a character is a control, a line or paragraph separator, or one that changes the direction or the
/// joining of its neighbours.
fn is_steering(letter: char) -> bool {
    let is_format = matches!(letter, '\u{ad}' | '\u{61c}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}'
        | '\u{2060}'..='\u{206f}' | '\u{feff}' | '\u{fff9}'..='\u{fffb}' | '\u{e0000}'..='\u{e007f}');
    letter.is_control() || is_format
}

/// Appends a character as `$'...'` knows it. Bytes up to 0x7f have two digits, others four or eight: what follows can't
/// be taken for a digit more.
fn escape(letter: char, out: &mut String) {
    let code = u32::from(letter);
    let written = match letter {
        '\n' => write!(out, "\\n"),
        '\t' => write!(out, "\\t"),
        '\r' => write!(out, "\\r"),
        _ if code < 0x80 => write!(out, "\\x{code:02x}"),
        _ if code < 0x1_0000 => write!(out, "\\u{code:04x}"),
        _ => write!(out, "\\U{code:08x}"),
    };
    written.expect("a String takes any text");
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    fn words(texts: &[&str]) -> Vec<String> {
        texts.iter().map(|text| (*text).to_owned()).collect()
    }

    #[test]
    fn plain_words_stay_as_they_are() {
        assert_eq!(shell_line(&words(&["gcc", "-O2", "-DX=1", "a/b.c"])), "gcc -O2 -DX=1 a/b.c");
        assert_eq!(shell_line(&words(&["A=b"])), "'A=b'");
        assert_eq!(shell_line(&words(&["x", ""])), "x ''");
    }

    #[test]
    fn nothing_steers_the_terminal() {
        let line = shell_line(&words(&["\x1b]0;title\x07", "\u{9b}31m", "\u{202e}cod", "a\nb"]));
        assert_eq!(line, r"$'\x1b]0;title\x07' $'\u009b31m' $'\u202ecod' $'a\nb'");
        assert_eq!(printable("a\x1b[1m\u{2028}ä"), r"a\x1b[1m\u2028ä");
    }

    #[test]
    fn bash_reads_the_same_words_back() {
        let odd = [
            "a b",
            "it's",
            "$HOME `id` \"x\" \\n",
            "~",
            "*",
            "\x1b[0m'\\7",
            "\u{202e}1f",
            "",
            "\t\r\n",
            "ä€😀",
            "!x",
            "#",
        ];
        let line = shell_line(&words(&odd));
        let script = format!("for word in {line}; do printf '%s\\0' \"$word\"; done");
        let mut bash = Command::new("bash");
        let Ok(output) = bash.env("LC_ALL", "C.UTF-8").args(["-c", &script]).output() else {
            return println!("skipped: no bash");
        };
        let read: Vec<_> =
            String::from_utf8(output.stdout).expect("UTF-8").split_terminator('\0').map(String::from).collect();
        assert_eq!(read, odd, "{line}");
    }
}
