//! The command line that makes a simulation fail again.
//!
//! # Guarantee
//! It is the line that was typed, with the failing run's seed, and no other run.

use faultless_sim::Failure;

/// Flags that say which runs are made and where results go; each takes a value.
const OF_RUNS: &[&str] = &["--seed", "-r", "--runs", "--jobs", "--out", "--save"];

/// Adds to what is said of a simulation's failure the line that makes it fail again.
pub fn with_rerun(failure: Failure, seed: u64) -> Failure {
    let words: Vec<String> = std::env::args_os().map(|word| word.to_string_lossy().into_owned()).collect();
    Failure { message: format!("{failure}\n  replay: {}", rerun(&words, seed)) }
}

/// Returns the line with which the run of `seed` is made again.
fn rerun(words: &[String], seed: u64) -> String {
    let mut kept: Vec<String> = Vec::new();
    let mut words = words.iter();
    while let Some(word) = words.next() {
        // Behind `--` stand flags of a workload.
        if word == "--" {
            kept.push(format!("--seed {seed} -r 1 --"));
            kept.extend(words.map(|word| quoted(word)));
            return kept.join(" ");
        }
        match of_runs(word) {
            Some(Value::Behind) => drop(words.next()),
            Some(Value::Within) => {}
            None => kept.push(quoted(word)),
        }
    }
    kept.push(format!("--seed {seed} -r 1"));
    kept.join(" ")
}

/// Where a flag's value stands.
enum Value {
    Behind,
    Within,
}

/// Says whether a word is a flag of [`OF_RUNS`].
fn of_runs(word: &str) -> Option<Value> {
    OF_RUNS.iter().find_map(|flag| match word.strip_prefix(flag)? {
        "" => Some(Value::Behind),
        rest if rest.starts_with('=') || !flag.starts_with("--") => Some(Value::Within),
        _ => None,
    })
}

/// Writes a word so that a shell reads it as one.
fn quoted(word: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_=+,./:@%".contains(c);
    match !word.is_empty() && word.chars().all(is_plain) {
        true => word.to_owned(),
        false => format!("'{}'", word.replace('\'', r"'\''")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rerun_of(line: &[&str]) -> String {
        rerun(&line.iter().map(|&word| word.to_owned()).collect::<Vec<_>>(), 7)
    }

    #[test]
    fn the_line_is_the_one_that_was_typed_with_the_seed_that_failed() {
        let typed =
            ["faultless", "bench", "ebizzy -mTt 16", "--machine", "xeon-40", "-r", "5", "--seed=3", "--cpus", "8"];
        assert_eq!(rerun_of(&typed), "faultless bench 'ebizzy -mTt 16' --machine xeon-40 --cpus 8 --seed 7 -r 1");
        assert_eq!(
            rerun_of(&["faultless", "replay", "it's", "-r3", "--runs", "2"]),
            r"faultless replay 'it'\''s' --seed 7 -r 1"
        );
        assert_eq!(
            rerun_of(&["f", "bench", "a", "--jobs", "2", "--", "--seed", "1"]),
            "f bench a --seed 7 -r 1 -- --seed 1"
        );
    }
}
