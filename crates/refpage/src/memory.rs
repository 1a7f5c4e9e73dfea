//! Whether memory is there to be filled.

use crate::sys;

/// One mapping that is filled takes at most this part of the memory that is available.
const SHARE: usize = 8;

/// Returns whether `len` bytes can be filled without driving the system out of memory: at most an
/// eighth of what /proc/meminfo calls available, or anything where that cannot be read.
///
/// A sparse allocation that is filled needs memory for every page, which a plain one does not; so a
/// fallback that always filled would let a program that only reserves be killed.
pub fn fits_in_memory(len: usize) -> bool {
    available().is_none_or(|available| len <= available / SHARE)
}

fn available() -> Option<usize> {
    let mut buffer = [0; 512];
    let text = std::str::from_utf8(sys::read_small(c"/proc/meminfo", &mut buffer)?).ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    let kib: usize = line.split_whitespace().next()?.parse().ok()?;
    kib.checked_mul(1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_fits_and_the_address_space_does_not() {
        assert!(fits_in_memory(4096));
        assert!(!fits_in_memory(usize::MAX / 2));
    }
}
