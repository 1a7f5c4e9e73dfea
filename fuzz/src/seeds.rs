//! Writes the oracle's corpus, and some drawn sequences, as inputs of the fuzz target.
//!
//! `cargo run --release --bin seeds -- corpus/sequences` in this folder.

use std::path::{Path, PathBuf};
use std::{env, fs, io};

use faultless_oracle::Profile;
use faultless_oracle::generate::{encode, sequence};
use faultless_oracle::kernel::{Sequence, User};

/// Drawn sequences for each kind and user.
const NR_DRAWN: u64 = 50;

fn main() -> io::Result<()> {
    let folder = PathBuf::from(env::args_os().nth(1).unwrap_or_else(|| "corpus/sequences".into()));
    fs::create_dir_all(&folder)?;
    let found = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("../crates/oracle/corpus/found.txt"))?;
    let lines = found.lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
    let mut sequences: Vec<Sequence> = lines.filter_map(|line| line.parse().ok()).collect();
    for profile in [Profile::Usual, Profile::Hostile] {
        for user in [User::Nobody, User::Root] {
            sequences.extend((0..NR_DRAWN).map(|number| sequence(1, profile, user, number, 24)));
        }
    }
    for (number, sequence) in sequences.iter().enumerate() {
        fs::write(folder.join(format!("{number:04}")), encode(sequence))?;
    }
    println!("{} inputs in {}", sequences.len(), folder.display());
    Ok(())
}
