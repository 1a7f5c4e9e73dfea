//! What files hold: a function of the file and the offset, so that a page that was read back tells whether it is right.

use faultless_platform::PAGE_BYTES;
use faultless_vm::{FetchError, PageSource};

/// The source of all files.
#[derive(Debug)]
pub(super) struct FileContent;

impl PageSource for FileContent {
    fn fetch(&self, identity: u64, page_index: u64, page: &mut [u8; PAGE_BYTES]) -> Result<(), FetchError> {
        for (word, bytes) in page.chunks_exact_mut(8).enumerate() {
            bytes.copy_from_slice(&word_of(identity, page_index, word as u64).to_ne_bytes());
        }
        Ok(())
    }
}

/// Returns what a file holds in the word of that number of a page.
pub(super) fn word_of(identity: u64, page_index: u64, word: u64) -> u64 {
    const STEP: u64 = 0x9e37_79b9_7f4a_7c15;
    (identity << 40 ^ page_index).wrapping_mul(STEP).wrapping_add(word) | 1 << 63
}

/// Returns the token that the store of an event leaves; no file and no fresh memory holds it.
pub(super) fn token(event: u32) -> u64 {
    1 << 32 | u64::from(event)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_holds_what_its_words_say() {
        let mut page = [0; PAGE_BYTES];
        FileContent.fetch(3, 7, &mut page).expect("it never fails");
        let word = |place: usize| u64::from_ne_bytes(page[place * 8..][..8].try_into().expect("eight bytes"));
        assert!((0..512).all(|place| word(place) == word_of(3, 7, place as u64)));
        assert_ne!(word_of(3, 7, 0), word_of(3, 8, 0));
        assert_ne!(word_of(3, 7, 0), word_of(4, 7, 0));
        assert!((0..512).all(|place| word(place) > token(u32::MAX)));
    }
}
