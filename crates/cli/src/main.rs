//! The command `faultless`.
fn main() {}
