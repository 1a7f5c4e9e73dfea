//! Whether memory is there to be filled.

use crate::{Error, sys};

/// Returns whether `len` bytes can be filled, since they cannot be tiled for the reason `why`,
/// without driving the system out of memory: at most half of what /proc/meminfo calls available,
/// or anything where that cannot be read.
///
/// A sparse allocation that is filled needs memory for every page, which a plain one does not; so a
/// fallback that always filled would let a program that only reserves be killed. A program that has
/// used up its areas is likely to be one, so there the limit is a 64th.
pub fn fits_in_memory(len: usize, why: &Error) -> bool {
    let share = if matches!(why, Error::Areas { .. }) { 64 } else { 2 };
    available().is_none_or(|available| len <= available / share)
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
        for why in [Error::DescriptorStolen, Error::Areas { limit: 1 }] {
            assert!(fits_in_memory(4096, &why));
            assert!(!fits_in_memory(usize::MAX / 2, &why));
        }
    }
}
