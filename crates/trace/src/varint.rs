//! Integers in as few bytes as they need, and a cursor that reads them back.
//!
//! # Guarantee
//! Reading never goes beyond the slice, never panics, and accepts exactly what the writing functions write: one
//! spelling for each value.
//!
//! An integer is written seven bits a byte, lowest first; every byte but the last has its top bit set. A difference is
//! folded first, so that small negative ones are short too: 0, -1, 1, -2, 2 ... become 0, 1, 2, 3, 4 ...

/// The bytes do not hold what was asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Malformed;

/// What was read.
pub(crate) type Decoded<T> = Result<T, Malformed>;

/// Appends `value`.
pub(crate) fn put(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

/// Appends the difference from `base` to `value`, folded.
pub(crate) fn put_difference(out: &mut Vec<u8>, base: u64, value: u64) {
    put(out, fold(value.wrapping_sub(base) as i64));
}

/// Appends `text`, its length first.
pub(crate) fn put_text(out: &mut Vec<u8>, text: &str) {
    put_bytes(out, text.as_bytes());
}

/// Appends `bytes`, their number first.
pub(crate) fn put_bytes(out: &mut Vec<u8>, bytes: &[u8]) {
    put(out, bytes.len() as u64);
    out.extend_from_slice(bytes);
}

fn fold(difference: i64) -> u64 {
    ((difference << 1) ^ (difference >> 63)) as u64
}

fn unfold(folded: u64) -> i64 {
    (folded >> 1) as i64 ^ -((folded & 1) as i64)
}

/// A place in a slice that is read from front to back.
#[derive(Clone, Debug)]
pub(crate) struct Cursor<'a> {
    rest: &'a [u8],
}

impl<'a> Cursor<'a> {
    /// A cursor over nothing.
    pub(crate) const EMPTY: Self = Self { rest: &[] };

    /// Returns a cursor at the front of `bytes`.
    pub(crate) fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes }
    }

    /// Returns how many bytes are left; no count of anything in them can be larger.
    pub(crate) fn remaining(&self) -> usize {
        self.rest.len()
    }

    /// Reads one byte.
    pub(crate) fn byte(&mut self) -> Result<u8, Malformed> {
        let (&first, rest) = self.rest.split_first().ok_or(Malformed)?;
        self.rest = rest;
        Ok(first)
    }

    /// Reads an integer.
    pub(crate) fn int(&mut self) -> Result<u64, Malformed> {
        let mut value = 0;
        for shift in (0..64).step_by(7) {
            let byte = self.byte()?;
            if shift == 63 && byte > 1 || shift > 0 && byte == 0 {
                return Err(Malformed);
            }
            value |= u64::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return Ok(value);
            }
        }
        Err(Malformed)
    }

    /// Reads an integer that must fit 32 bits.
    pub(crate) fn int32(&mut self) -> Result<u32, Malformed> {
        u32::try_from(self.int()?).map_err(|_| Malformed)
    }

    /// Reads a difference and adds it to `base`.
    pub(crate) fn difference(&mut self, base: u64) -> Result<u64, Malformed> {
        Ok(base.wrapping_add(unfold(self.int()?) as u64))
    }

    /// Reads bytes whose number stands before them.
    pub(crate) fn bytes(&mut self) -> Result<&'a [u8], Malformed> {
        let len = usize::try_from(self.int()?).map_err(|_| Malformed)?;
        let (bytes, rest) = self.rest.split_at_checked(len).ok_or(Malformed)?;
        self.rest = rest;
        Ok(bytes)
    }

    /// Reads a text.
    pub(crate) fn text(&mut self) -> Result<String, Malformed> {
        String::from_utf8(self.bytes()?.to_vec()).map_err(|_| Malformed)
    }

    /// Confirms that nothing is left.
    pub(crate) fn end(&self) -> Result<(), Malformed> {
        if self.rest.is_empty() { Ok(()) } else { Err(Malformed) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_width_comes_back() {
        let values = (0..64).flat_map(|bit| [1u64 << bit, (1u64 << bit) - 1]).chain([u64::MAX]);
        for value in values {
            let mut bytes = Vec::new();
            put(&mut bytes, value);
            put_difference(&mut bytes, value, value.wrapping_mul(3));
            let mut cursor = Cursor::new(&bytes);
            assert_eq!(cursor.int(), Ok(value));
            assert_eq!(cursor.difference(value), Ok(value.wrapping_mul(3)));
            assert_eq!(cursor.end(), Ok(()));
        }
    }

    #[test]
    fn small_differences_of_either_sign_take_one_byte() {
        for difference in -64i64..64 {
            let mut bytes = Vec::new();
            put_difference(&mut bytes, 1 << 40, ((1i64 << 40) + difference) as u64);
            assert_eq!(bytes.len(), 1, "difference {difference}");
        }
    }

    #[test]
    fn a_second_spelling_is_refused() {
        assert_eq!(Cursor::new(&[0x80, 0x00]).int(), Err(Malformed));
        assert_eq!(Cursor::new(&[0xff; 10]).int(), Err(Malformed));
        assert_eq!(Cursor::new(&[0x80]).int(), Err(Malformed));
        assert_eq!(Cursor::new(&[0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01]).int(), Ok(u64::MAX));
    }

    #[test]
    fn a_length_beyond_the_end_is_refused() {
        let mut bytes = Vec::new();
        put(&mut bytes, u64::MAX);
        assert_eq!(Cursor::new(&bytes).bytes(), Err(Malformed));
    }
}
