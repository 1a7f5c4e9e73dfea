//! The environment variables.
//!
//! | variable | values | default |
//! |---|---|---|
//! | `FAULTLESS_PATTERN` | `0x` and an even number of hex digits, in the order of the bytes | `0xAA` |
//! | `FAULTLESS_THRESHOLD` | a size: `4096`, `128K`, `2M`, `1G` | `128K` |
//! | `FAULTLESS_LARGE` | `map` (reference pages), `fill`, `pass` | `map` |
//! | `FAULTLESS_SMALL` | `pass`, `fill` | `pass` |
//! | `FAULTLESS_CACHE` | a size: how much freed memory is kept for reuse at most; `0` unmaps at once | `64M` |
//! | `FAULTLESS_AHEAD` | a size: how much may be copied ahead of its first store, unproven; `0` never | `16M` |
//! | `FAULTLESS_WARN` | `1`: say once on stderr when pages had to be filled | `0` |
//! | `FAULTLESS_STATS` | a file to which a line of counters is appended at exit | none |
//!
//! # Guarantee
//! They are read once, at the first allocation for which libc knows the environment, or when the
//! program is loaded, into memory of this library: what the program does to its environment later
//! changes nothing. Before, and while they are read, allocations pass through. A value that makes no
//! sense is named on stderr, and the default stands.

use crate::{lines, next};
use faultless_refpage::{Error, Fallback, Options, RefPage, keeping_errno};
use std::cell::UnsafeCell;
use std::ffi::{CStr, c_char};
use std::sync::atomic::{AtomicU8, AtomicUsize, Ordering};

/// The kernel opens no longer path; the zero byte behind it counts.
const LONGEST_PATH: usize = libc::PATH_MAX as usize;
const MOST_PATTERN_BYTES: usize = 4096;
const DEFAULT_THRESHOLD: usize = 128 << 10;
/// As much as libc's allocator may keep, by its own rule for large blocks.
const DEFAULT_CACHE: usize = 64 << 20;
/// A program's first large buffers, such as a page's bitmaps.
const DEFAULT_AHEAD: usize = 16 << 20;
const DEFAULT_PATTERN: u8 = 0xAA;

const UNREAD: u8 = 0;
const READING: u8 = 1;
const READ: u8 = 2;

/// What is done with an allocation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Treatment {
    /// Reference pages.
    Map,
    /// The next allocator's memory, filled.
    Fill,
    /// The next allocator's memory as it is.
    Pass,
}

/// What the environment asks for.
#[derive(Debug)]
pub(crate) struct Settings {
    pub(crate) pages: RefPage,
    pub(crate) threshold: usize,
    pub(crate) cache: usize,
    pub(crate) ahead: usize,
    pub(crate) large: Treatment,
    pub(crate) small: Treatment,
    pub(crate) stats: Option<Path>,
    pub(crate) warns: bool,
}

/// A file's path, copied out of the environment.
#[derive(Debug)]
pub(crate) struct Path {
    /// Ends with a zero byte.
    bytes: [u8; LONGEST_PATH],
}

impl Path {
    /// Copies a path that the kernel could open: it is not empty, and not longer than any path.
    fn copied(text: &CStr) -> Option<Path> {
        let mut bytes = [0; LONGEST_PATH];
        let source = text.to_bytes_with_nul();
        bytes.get_mut(..source.len()).filter(|room| room.len() > 1)?.copy_from_slice(source);
        Some(Path { bytes })
    }

    /// Returns the path.
    pub(crate) fn as_c_str(&self) -> &CStr {
        CStr::from_bytes_until_nul(&self.bytes).unwrap_or(c"")
    }
}

struct Cell(UnsafeCell<Option<Settings>>);

// SAFETY: written by the one thread that moves STATE to READING, read by others once it is READ.
unsafe impl Sync for Cell {}

static SETTINGS: Cell = Cell(UnsafeCell::new(None));
static STATE: AtomicU8 = AtomicU8::new(UNREAD);

/// Below this, an allocation passes through without a look at the settings.
static PASS_BELOW: AtomicUsize = AtomicUsize::new(0);

unsafe extern "C" {
    static environ: *const *const c_char;
}

/// Returns whether an allocation passes through whatever the settings are.
#[inline]
pub(crate) fn passes(len: usize) -> bool {
    // ORDER: Acquire pairs with the Release in `read_once`: what passes finds the next allocator.
    len < PASS_BELOW.load(Ordering::Acquire)
}

/// Returns the settings, unless it is too early.
#[inline]
pub(crate) fn settings() -> Option<&'static Settings> {
    // ORDER: Acquire pairs with the Release in `read_once`.
    match STATE.load(Ordering::Acquire) {
        // SAFETY: READ: nobody writes it any more.
        READ => unsafe { (*SETTINGS.0.get()).as_ref() },
        // An allocation that succeeds leaves errno alone (P4), whatever reading met.
        _ => keeping_errno(read_once),
    }
}

#[cold]
fn read_once() -> Option<&'static Settings> {
    // SAFETY: libc's variable; null until libc has been initialised.
    if unsafe { environ }.is_null() || next::next().is_none() {
        return None;
    }
    // ORDER: Acquire, Relaxed on failure: a thread that does not read the environment waits for
    // nobody and passes through.
    STATE.compare_exchange(UNREAD, READING, Ordering::Acquire, Ordering::Relaxed).ok()?;
    let settings = read();
    let pass_below = settings.as_ref().map_or(usize::MAX, Settings::pass_below);
    // SAFETY: the exchange makes this the only thread here.
    unsafe { *SETTINGS.0.get() = settings };
    // ORDER: Release pairs with the Acquire in `settings`.
    STATE.store(READ, Ordering::Release);
    // ORDER: Release pairs with the Acquire in `passes`; settings are read once `next` is known.
    PASS_BELOW.store(pass_below, Ordering::Release);
    // SAFETY: READ.
    unsafe { (*SETTINGS.0.get()).as_ref() }
}

impl Settings {
    /// Returns the treatment of an allocation.
    pub(crate) fn treatment(&self, len: usize) -> Treatment {
        if len >= self.threshold { self.large } else { self.small }
    }

    fn pass_below(&self) -> usize {
        match (self.small, self.large) {
            _ if self.stats.is_some() => 0,
            (Treatment::Pass, Treatment::Pass) => usize::MAX,
            (Treatment::Pass, _) => self.threshold,
            _ => 0,
        }
    }
}

fn read() -> Option<Settings> {
    let mut buffer = [0; MOST_PATTERN_BYTES];
    let pattern =
        value(c"FAULTLESS_PATTERN", "0x and an even number of hex digits", |text| parse_pattern(text, &mut buffer));
    let len = pattern.unwrap_or_else(|| {
        buffer[0] = DEFAULT_PATTERN;
        1
    });
    let warns = value(c"FAULTLESS_WARN", "0 or 1", parse_switch).unwrap_or(false);
    let options = Options::new().fallback(Fallback::Fail);
    let options = if warns { options.on_fallback(warn) } else { options };
    let pages = options.create(&buffer[..len]).inspect_err(say_impossible).ok()?;
    Some(Settings {
        pages,
        threshold: value(c"FAULTLESS_THRESHOLD", "a size such as 128K", |text| {
            parse_size(text).filter(|size| *size > 0)
        })
        .unwrap_or(DEFAULT_THRESHOLD),
        cache: value(c"FAULTLESS_CACHE", "a size such as 32M, or 0", parse_size).unwrap_or(DEFAULT_CACHE),
        ahead: value(c"FAULTLESS_AHEAD", "a size such as 8M, or 0", parse_size).unwrap_or(DEFAULT_AHEAD),
        large: value(c"FAULTLESS_LARGE", "map, fill or pass", parse_treatment).unwrap_or(Treatment::Map),
        small: value(c"FAULTLESS_SMALL", "pass or fill", |text| {
            parse_treatment(text).filter(|small| *small != Treatment::Map)
        })
        .unwrap_or(Treatment::Pass),
        stats: stats_path(),
        warns,
    })
}

/// Returns where counters go; an empty value is none.
fn stats_path() -> Option<Path> {
    let text = variable(c"FAULTLESS_STATS").filter(|text| !text.is_empty())?;
    let path = Path::copied(text);
    if path.is_none() {
        lines::say(format_args!("FAULTLESS_STATS is longer than any path; counters go nowhere"));
    }
    path
}

/// Says why memory is filled instead of patterned; the library calls this once.
fn warn(why: &Error) {
    lines::say(format_args!("filling instead of mapping: {why}"));
}

fn say_impossible(error: &Error) {
    lines::say(format_args!("allocations pass through: {error}"));
}

/// Returns a variable's value, parsed; one that makes no sense is named, and counts as unset.
fn value<T>(name: &CStr, wants: &str, mut parse: impl FnMut(&str) -> Option<T>) -> Option<T> {
    let text = variable(name)?;
    let parsed = text.to_str().ok().and_then(&mut parse);
    if parsed.is_none() {
        lines::say(format_args!("{name:?}={text:?} is not {wants}; the default stands"));
    }
    parsed
}

fn variable(name: &CStr) -> Option<&'static CStr> {
    // SAFETY: the name is a C string. The environment may be changed later, but not while the
    // first allocations are made; the caller keeps nothing of the string.
    let text = unsafe { libc::getenv(name.as_ptr()) };
    // SAFETY: getenv returns null or a C string.
    (!text.is_null()).then(|| unsafe { CStr::from_ptr(text) })
}

/// Parses `0x` and pairs of hex digits into `bytes` and returns how many there are.
fn parse_pattern(text: &str, bytes: &mut [u8]) -> Option<usize> {
    let digits = text.strip_prefix("0x").or_else(|| text.strip_prefix("0X"))?.as_bytes();
    let len = digits.len() / 2;
    if digits.is_empty() || digits.len() % 2 != 0 || len > bytes.len() {
        return None;
    }
    for (byte, pair) in bytes.iter_mut().zip(digits.chunks(2)) {
        *byte = hex_digit(pair[0])? << 4 | hex_digit(pair[1])?;
    }
    Some(len)
}

fn hex_digit(digit: u8) -> Option<u8> {
    (digit as char).to_digit(16).map(|digit| digit as u8)
}

/// Parses a number of bytes, or of K, M or G (powers of 1,024).
fn parse_size(text: &str) -> Option<usize> {
    let shift = match text.as_bytes().last()? {
        b'k' | b'K' => 10,
        b'm' | b'M' => 20,
        b'g' | b'G' => 30,
        _ => 0,
    };
    let digits = if shift == 0 { text } else { &text[..text.len() - 1] };
    if !digits.bytes().all(|digit| digit.is_ascii_digit()) {
        return None;
    }
    digits.parse::<usize>().ok()?.checked_mul(1 << shift)
}

fn parse_treatment(text: &str) -> Option<Treatment> {
    match text {
        "map" => Some(Treatment::Map),
        "fill" => Some(Treatment::Fill),
        "pass" => Some(Treatment::Pass),
        _ => None,
    }
}

fn parse_switch(text: &str) -> Option<bool> {
    match text {
        "0" => Some(false),
        "1" => Some(true),
        _ => None,
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// Returns the default settings with another pattern.
    pub(crate) fn settings_for(content: &[u8]) -> Settings {
        Settings {
            pages: RefPage::new(content).unwrap(),
            threshold: DEFAULT_THRESHOLD,
            cache: DEFAULT_CACHE,
            ahead: DEFAULT_AHEAD,
            large: Treatment::Map,
            small: Treatment::Pass,
            stats: None,
            warns: false,
        }
    }

    #[test]
    fn a_path_is_copied_whole_or_not_at_all() {
        let longest = std::ffi::CString::new(vec![b'a'; LONGEST_PATH - 1]).unwrap();
        assert_eq!(Path::copied(&longest).unwrap().as_c_str(), &*longest);
        let too_long = std::ffi::CString::new(vec![b'a'; LONGEST_PATH]).unwrap();
        assert!(Path::copied(&too_long).is_none() && Path::copied(c"").is_none());
    }

    #[test]
    fn sizes_are_bytes_or_powers_of_1024() {
        for (text, want) in [("0", 0), ("4096", 4096), ("128K", 128 << 10), ("2m", 2 << 20), ("1G", 1 << 30)] {
            assert_eq!(parse_size(text), Some(want));
        }
        for text in ["", "K", "-1", "+5", "1.5M", "12KB", "99999999999999999999", "99999999999G", "ä"] {
            assert_eq!(parse_size(text), None, "{text}");
        }
    }

    #[test]
    fn patterns_are_pairs_of_hex_digits() {
        let mut bytes = [0; 4];
        assert_eq!(parse_pattern("0xAA", &mut bytes), Some(1));
        assert_eq!(parse_pattern("0xdeadBEEF", &mut bytes), Some(4));
        assert_eq!(bytes, [0xDE, 0xAD, 0xBE, 0xEF]);
        for text in ["", "0x", "AA", "0xA", "0xGG", "0x1122334455", "0x+1", "0xä"] {
            assert_eq!(parse_pattern(text, &mut bytes), None, "{text}");
        }
    }
}
