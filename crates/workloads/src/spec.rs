//! A workload as users write it: a name, and flags of its own.
//!
//! # Guarantee
//! What is understood means what the original program's flags mean; everything else is an error that says what there
//! is.

use crate::registry::{self, Flags, Workload};
use crate::settings::{Access, Refpage, Touch, Variant};
use crate::settings::{AccessKind, Contention, Ebizzy, Every, Mapping, Pattern, Protects, Settings, Whose};
use crate::{fork, mmap_touch, refpage};
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::fmt;

/// A workload with its flags.
#[derive(Clone, Debug)]
pub struct Spec {
    /// As the user wrote it, with single spaces: its name in results.
    pub name: String,
    /// The workload.
    pub workload: &'static Workload,
    /// What it is told.
    pub settings: Settings,
}

/// Why a text names no workload.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SpecError {
    /// There is no such workload.
    Unknown(String),
    /// The workload has no such flag.
    Flag {
        /// The workload.
        workload: &'static str,
        /// The flag.
        flag: String,
        /// Those there are.
        flags: &'static str,
    },
    /// A flag's value is missing, or not one that the flag takes.
    Value {
        /// The flag.
        flag: String,
        /// What was given.
        value: String,
        /// What it takes.
        takes: &'static str,
    },
    /// Two flags contradict each other.
    Contradiction(&'static str),
}

impl fmt::Display for SpecError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unknown(name) => write!(f, "there is no workload '{name}'"),
            Self::Flag { workload, flag, flags: "" } => write!(f, "{workload} has no flag '{flag}': it has none"),
            Self::Flag { workload, flag, flags } => write!(f, "{workload} has no flag '{flag}'; it has {flags}"),
            Self::Value { flag, value, takes } => write!(f, "{flag} '{value}': it takes {takes}"),
            Self::Contradiction(what) => f.write_str(what),
        }
    }
}

impl core::error::Error for SpecError {}

/// What numbers of threads and chunks may be.
const COUNT: &str = "a number from 1 to 1000000";
const COUNT_MOST: u64 = 1_000_000;
/// What sizes may be.
const SIZE: &str = "a size from 4K on, a multiple of 4K, such as 16M";
const CHUNK: &str = "a size of at least 8 bytes, such as 512K";
/// What pagefaults' flags take.
const PATTERN: &str = "sequential, random, or stride=SIZE with a multiple of 8 bytes";
const ACCESS: &str = "read or write";
const MAPPING: &str = "private or shared";
/// What corten-pf's flag takes.
const PROTECT: &str = "inside or outside";
/// What fork's flag takes.
const EVERY: &str = "never, or a duration from 1us to 1000s, such as 1ms";
/// What refpage's flags take.
const VARIANT: &str = "anon, memset, refpage or pattern";
const TOUCH: &str = "one, half, all, 1% to 100%, or renderer";
/// The largest size.
const SIZE_MOST: u64 = 1 << 44;

impl Spec {
    /// Reads `NAME [FLAG...]`.
    pub fn parse(text: &str) -> Result<Self, SpecError> {
        let words: Vec<&str> = text.split_whitespace().collect();
        let name = words.first().copied().unwrap_or_default();
        let workload = registry::find(name).ok_or_else(|| SpecError::Unknown(name.to_string()))?;
        let mut spec = Self { name: words.join(" "), workload, settings: Settings::default() };
        let rest = words[1..].iter().copied();
        match workload.flags {
            Flags::None => spec.read_none(rest),
            Flags::Region => spec.read_region(rest),
            Flags::Contention => spec.read_contention(rest),
            Flags::Stores => spec.read_stores(rest),
            Flags::RegionAndWhose => spec.read_region_and_whose(rest),
            Flags::Ebizzy => spec.read_ebizzy(rest),
            Flags::Refpage => spec.read_refpage(rest),
            Flags::MmapTouch => spec.read_mmap_touch(rest),
            Flags::Whose => spec.read_whose(rest),
            Flags::PageFaults => spec.read_pagefaults(rest),
            Flags::Fork => spec.read_fork(rest),
        }?;
        Ok(spec)
    }

    fn no_such(&self, flag: &str) -> SpecError {
        SpecError::Flag { workload: self.workload.name, flag: flag.to_string(), flags: self.workload.flags.names() }
    }

    fn read_none<'a>(&self, mut words: impl Iterator<Item = &'a str>) -> Result<(), SpecError> {
        words.next().map_or(Ok(()), |flag| Err(self.no_such(flag)))
    }

    fn read_whose<'a>(&mut self, words: impl Iterator<Item = &'a str>) -> Result<(), SpecError> {
        for flag in words {
            self.settings.whose = match flag {
                "--own" => Whose::Own,
                "--shared" => Whose::Shared,
                _ => return Err(self.no_such(flag)),
            };
        }
        Ok(())
    }

    fn read_mmap_touch<'a>(&mut self, words: impl Iterator<Item = &'a str>) -> Result<(), SpecError> {
        self.settings.region_bytes = mmap_touch::REGION_BYTES;
        let mut others = Vec::new();
        for word in words {
            match word {
                "--mutex" => self.settings.mmap_touch.has_mutex = true,
                "--untouched" => self.settings.mmap_touch.is_untouched = true,
                other => others.push(other),
            }
        }
        self.read_region(others.into_iter())
    }

    fn read_fork<'a>(&mut self, mut words: impl Iterator<Item = &'a str>) -> Result<(), SpecError> {
        let (mut others, mut placed) = (Vec::new(), None);
        while let Some(word) = words.next() {
            let (flag, value) = match word.split_once('=') {
                Some((flag, value)) => (flag, Some(value)),
                None => (word, None),
            };
            match (word, flag) {
                ("--low", _) => placed = Some(Contention::Low),
                ("--high", _) => placed = Some(Contention::High),
                (_, "--every") => {
                    let value = value.or_else(|| words.next()).unwrap_or_default();
                    self.settings.fork_every = Some(every(value).ok_or_else(|| wrong(flag, value, EVERY))?);
                }
                _ => others.push(word),
            }
        }
        let is_shared = self.settings.fork_every.is_some();
        if placed.is_some() && !is_shared {
            return Err(SpecError::Contradiction("--low and --high are about the region of all: they go with --every"));
        }
        self.settings.contention = placed.unwrap_or_default();
        self.settings.region_bytes = if is_shared { fork::SHARED_REGION_BYTES } else { fork::REGION_BYTES };
        self.read_region(others.into_iter())
    }

    fn read_region<'a>(&mut self, mut words: impl Iterator<Item = &'a str>) -> Result<(), SpecError> {
        while let Some(flag) = words.next() {
            let value = match flag.split_once('=') {
                Some(("--region", value)) => value,
                None if flag == "--region" => words.next().unwrap_or_default(),
                _ => return Err(self.no_such(flag)),
            };
            let is_good = |&bytes: &u64| bytes >= crate::PAGE && bytes.is_multiple_of(crate::PAGE);
            let bytes = size(value).filter(is_good).ok_or_else(|| wrong("--region", value, SIZE))?;
            self.settings.region_bytes = bytes;
        }
        Ok(())
    }

    fn read_refpage<'a>(&mut self, mut words: impl Iterator<Item = &'a str>) -> Result<(), SpecError> {
        self.settings.region_bytes = refpage::REGION_BYTES;
        let mut has_region = false;
        while let Some(word) = words.next() {
            let (flag, value) = match word.split_once('=') {
                Some((flag, value)) => (flag, value),
                None if ["--load", "--update", "--reuse"].contains(&word) => (word, ""),
                None => (word, words.next().unwrap_or_default()),
            };
            let told = &mut self.settings.refpage;
            match flag {
                "--variant" => told.variant = Variant::named(value).ok_or_else(|| wrong(flag, value, VARIANT))?,
                "--touch" => told.touch = touch(value).ok_or_else(|| wrong(flag, value, TOUCH))?,
                "--load" => told.access = Access::Load,
                "--update" => told.access = Access::Update,
                "--reuse" => told.is_reused = true,
                "--region" => {
                    let is_good = |&bytes: &u64| bytes >= crate::PAGE && bytes.is_multiple_of(crate::PAGE);
                    let bytes = size(value).filter(is_good).ok_or_else(|| wrong(flag, value, SIZE))?;
                    self.settings.region_bytes = bytes;
                    has_region = true;
                }
                _ => return Err(self.no_such(word)),
            }
        }
        let Refpage { touch, access, is_reused, .. } = self.settings.refpage;
        if touch == Touch::Renderer && (access != Access::Store || is_reused || has_region) {
            return Err(SpecError::Contradiction(
                "--touch renderer is a whole recording: --load, --update, --reuse and --region don't go with it",
            ));
        }
        Ok(())
    }

    fn read_pagefaults<'a>(&mut self, mut words: impl Iterator<Item = &'a str>) -> Result<(), SpecError> {
        while let Some(word) = words.next() {
            // A stride has an equals sign of its own.
            let (flag, value) = match word.split_once('=') {
                Some((flag, value)) if flag.starts_with("--") => (flag, value),
                _ => (word, words.next().unwrap_or_default()),
            };
            let told = &mut self.settings.pagefaults;
            match flag {
                "--pattern" => told.pattern = pattern(value).ok_or_else(|| wrong(flag, value, PATTERN))?,
                "--access" => {
                    told.access = match value {
                        "read" => AccessKind::Read,
                        "write" => AccessKind::Write,
                        _ => return Err(wrong(flag, value, ACCESS)),
                    }
                }
                "--mapping" => {
                    told.mapping = match value {
                        "private" => Mapping::Private,
                        "shared" => Mapping::Shared,
                        _ => return Err(wrong(flag, value, MAPPING)),
                    }
                }
                "--region" => {
                    let is_good = |&bytes: &u64| bytes >= crate::PAGE && bytes.is_multiple_of(crate::PAGE);
                    self.settings.region_bytes = size(value).filter(is_good).ok_or_else(|| wrong(flag, value, SIZE))?;
                }
                _ => return Err(self.no_such(word)),
            }
        }
        Ok(())
    }

    fn read_contention<'a>(&mut self, words: impl Iterator<Item = &'a str>) -> Result<(), SpecError> {
        for flag in words {
            self.settings.contention = match flag {
                "--low" => Contention::Low,
                "--near" => Contention::Near,
                "--interleaved" => Contention::Interleaved,
                "--high" => Contention::High,
                _ => return Err(self.no_such(flag)),
            };
        }
        Ok(())
    }

    fn read_stores<'a>(&mut self, mut words: impl Iterator<Item = &'a str>) -> Result<(), SpecError> {
        let mut others = Vec::new();
        while let Some(word) = words.next() {
            let (flag, value) = match word.split_once('=') {
                Some((flag, value)) => (flag, Some(value)),
                None => (word, None),
            };
            if flag != "--protect" {
                others.push(word);
                continue;
            }
            let value = value.or_else(|| words.next()).unwrap_or_default();
            self.settings.protects = Some(match value {
                "inside" => Protects::Inside,
                "outside" => Protects::Outside,
                _ => return Err(wrong(flag, value, PROTECT)),
            });
        }
        let is_placed = !others.is_empty();
        self.read_contention(others.into_iter())?;
        if self.settings.protects.is_none() {
            return Ok(());
        }
        if is_placed && self.settings.contention != Contention::Near {
            return Err(SpecError::Contradiction("--protect is about one area of all: it goes with --near alone"));
        }
        self.settings.contention = Contention::Near;
        Ok(())
    }

    fn read_region_and_whose<'a>(&mut self, words: impl Iterator<Item = &'a str>) -> Result<(), SpecError> {
        let is_whose = |word: &&str| ["--own", "--shared"].contains(word);
        let (whose, others): (Vec<_>, Vec<_>) = words.partition(is_whose);
        self.read_whose(whose.into_iter())?;
        self.read_region(others.into_iter())
    }

    /// Reads flags as getopt does: several may stand behind one dash, and a value may follow its flag at once.
    fn read_ebizzy<'a>(&mut self, mut words: impl Iterator<Item = &'a str>) -> Result<(), SpecError> {
        while let Some(word) = words.next() {
            let mut letters =
                word.strip_prefix('-').filter(|rest| !rest.is_empty()).ok_or_else(|| self.no_such(word))?;
            while let Some(letter) = letters.chars().next() {
                letters = &letters[letter.len_utf8()..];
                if "tns".contains(letter) {
                    let value = if letters.is_empty() { words.next().unwrap_or_default() } else { letters };
                    self.set_value(letter, value)?;
                    break;
                }
                self.set_flag(letter)?;
            }
        }
        match self.settings.ebizzy {
            Ebizzy { always_maps: true, never_maps: true, .. } => {
                Err(SpecError::Contradiction("-m maps always and -M never: only one of them can be"))
            }
            _ => Ok(()),
        }
    }

    fn set_flag(&mut self, letter: char) -> Result<(), SpecError> {
        let flags = &mut self.settings.ebizzy;
        *match letter {
            'm' => &mut flags.always_maps,
            'M' => &mut flags.never_maps,
            'T' => &mut flags.only_touches,
            'R' => &mut flags.has_random_lengths,
            'p' => &mut flags.alternates_rights,
            _ => return Err(self.no_such(&alloc::format!("-{letter}"))),
        } = true;
        Ok(())
    }

    fn set_value(&mut self, letter: char, value: &str) -> Result<(), SpecError> {
        let flags = &mut self.settings.ebizzy;
        let count = value.parse().ok().filter(|count| (1..=COUNT_MOST).contains(count));
        match letter {
            't' => flags.nr_threads = Some(count.ok_or_else(|| wrong("-t", value, COUNT))? as usize),
            'n' => flags.nr_chunks = count.ok_or_else(|| wrong("-n", value, COUNT))?,
            _ => {
                let bytes = size(value).filter(|&bytes| bytes >= 8).ok_or_else(|| wrong("-s", value, CHUNK))?;
                // A chunk holds whole records.
                flags.chunk_bytes = bytes / 8 * 8;
            }
        }
        Ok(())
    }
}

/// Reads in which order memory is accessed.
fn pattern(text: &str) -> Option<Pattern> {
    match text {
        "sequential" => Some(Pattern::Sequential),
        "random" => Some(Pattern::Random),
        _ => {
            let is_good = |&bytes: &u64| bytes > 0 && bytes.is_multiple_of(8);
            size(text.strip_prefix("stride=")?).filter(is_good).map(Pattern::Stride)
        }
    }
}

/// Reads which pages are touched.
fn touch(text: &str) -> Option<Touch> {
    match text {
        "one" => Some(Touch::One),
        "half" => Some(Touch::Percent(50)),
        "all" => Some(Touch::Percent(100)),
        "renderer" => Some(Touch::Renderer),
        _ => text.strip_suffix('%')?.parse().ok().filter(|percent| (1..=100).contains(percent)).map(Touch::Percent),
    }
}

/// Reads how often a thread forks.
fn every(text: &str) -> Option<Every> {
    if text == "never" {
        return Some(Every::Never);
    }
    let digits = text.find(|letter: char| !letter.is_ascii_digit()).unwrap_or(text.len());
    let unit_ns = match &text[digits..] {
        "us" => 1_000,
        "ms" => 1_000_000,
        "s" => 1_000_000_000,
        _ => return None,
    };
    let ns = text[..digits].parse::<u64>().ok()?.checked_mul(unit_ns)?;
    (1_000..=1_000_000_000_000).contains(&ns).then_some(Every::Ns(ns))
}

fn wrong(flag: &str, value: &str, takes: &'static str) -> SpecError {
    SpecError::Value { flag: flag.to_string(), value: value.to_string(), takes }
}

/// Reads a number of bytes, with an optional K, M or G for powers of 1024.
fn size(text: &str) -> Option<u64> {
    let (digits, shift) = match text.as_bytes().last()?.to_ascii_uppercase() {
        b'K' => (&text[..text.len() - 1], 10),
        b'M' => (&text[..text.len() - 1], 20),
        b'G' => (&text[..text.len() - 1], 30),
        _ => (text, 0),
    };
    digits.parse::<u64>().ok()?.checked_mul(1 << shift).filter(|&bytes| bytes <= SIZE_MOST)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::PageFaults;
    use std::string::ToString;

    fn ebizzy(text: &str) -> Ebizzy {
        Spec::parse(text).expect("understood").settings.ebizzy
    }

    #[test]
    fn ebizzys_flags_are_read_as_getopt_does() {
        let flags = Ebizzy { always_maps: true, only_touches: true, nr_threads: Some(16), ..Ebizzy::default() };
        for text in ["ebizzy -mTt 16", "ebizzy -m -T -t16", "ebizzy  -t 16 -Tm"] {
            assert_eq!(ebizzy(text), flags, "{text}");
        }
        let flags = ebizzy("ebizzy -MRp -n 3 -s 64K");
        assert!(flags.never_maps && flags.has_random_lengths && flags.alternates_rights && !flags.always_maps);
        assert_eq!((flags.nr_chunks, flags.chunk_bytes, flags.nr_threads), (3, 64 << 10, None));
        assert_eq!(Spec::parse(" ebizzy   -m ").expect("understood").name, "ebizzy -m");
    }

    #[test]
    fn what_is_not_understood_is_said() {
        for (text, word) in [
            ("malloc9", "malloc9"),
            ("", "no workload"),
            ("malloc2 -x", "has none"),
            ("ebizzy -x", "-x"),
            ("ebizzy -t", "-t"),
            ("ebizzy -t 0", "-t"),
            ("ebizzy -s 7", "-s"),
            ("ebizzy -mM", "only one"),
            ("ebizzy 16", "16"),
            ("page_fault1 --region 5K", "5K"),
            ("page_fault1 --region", "--region"),
            ("page_fault1 --region 99999999G", "99999999G"),
            ("corten-pf --middle", "--high"),
            ("corten-pf --protect", "inside or outside"),
            ("corten-pf --high --protect inside", "--near"),
            ("corten-mmap --protect inside", "--interleaved"),
            ("page_fault2 --mine", "--shared"),
            ("refpage --variant calloc", "anon"),
            ("refpage --touch 0%", "half"),
            ("refpage --touch 101%", "100%"),
            ("refpage --touch renderer --reuse", "whole recording"),
            ("refpage --region 1M --touch renderer", "whole recording"),
            ("refpage --update --touch renderer", "whole recording"),
            ("refpage --store", "--touch"),
            ("pagefaults --pattern zigzag", "stride=SIZE"),
            ("pagefaults --pattern stride=12", "multiple of 8"),
            ("pagefaults --pattern stride=0", "multiple of 8"),
            ("pagefaults --access execute", "read or write"),
            ("pagefaults --mapping", "private or shared"),
            ("pagefaults --stride 8", "--pattern"),
            ("fork --every", "never"),
            ("fork --every 1", "1ms"),
            ("fork --every 0ms", "1us"),
            ("fork --every 9999999999999s", "1000s"),
            ("fork --beside", "--region"),
            ("fork --high", "--every"),
        ] {
            let said = Spec::parse(text).expect_err(text).to_string();
            assert!(said.contains(word), "{text}: {said}");
        }
    }

    #[test]
    fn refpages_flags_are_read() {
        let told = |text| Spec::parse(text).expect("understood").settings;
        assert_eq!(told("refpage").refpage, Refpage::default());
        assert_eq!(told("refpage").region_bytes, 4 << 20);
        let text = "refpage --variant=pattern --touch half --load --reuse --region 1M";
        let expected =
            Refpage { variant: Variant::Pattern, touch: Touch::Percent(50), access: Access::Load, is_reused: true };
        assert_eq!((told(text).refpage, told(text).region_bytes), (expected, 1 << 20));
        assert_eq!(told("refpage --touch 7%").refpage.touch, Touch::Percent(7));
        assert_eq!(told("refpage --update").refpage.access, Access::Update);
        assert_eq!(told("refpage --touch=renderer").refpage.touch, Touch::Renderer);
    }

    #[test]
    fn patterns_of_page_faults_are_read() {
        let told = |text| Spec::parse(text).expect("understood").settings;
        assert_eq!(told("pagefaults").pagefaults, PageFaults::default());
        let text = "pagefaults --pattern stride=64K --access=read --mapping shared --region 1M";
        let (pattern, access, mapping) = (Pattern::Stride(64 << 10), AccessKind::Read, Mapping::Shared);
        assert_eq!(told(text).pagefaults, PageFaults { pattern, access, mapping });
        assert_eq!(told(text).region_bytes, 1 << 20);
        assert_eq!(told("pagefaults --pattern=stride=8").pagefaults.pattern, Pattern::Stride(8));
        assert_eq!(told("pagefaults --pattern random").pagefaults.pattern, Pattern::Random);
    }

    #[test]
    fn forks_flags_are_read() {
        let told = |text| Spec::parse(text).map(|spec| (spec.settings.fork_every, spec.settings.region_bytes));
        assert_eq!(told("fork"), Ok((None, 64 << 12)));
        assert_eq!(told("fork --region 8M"), Ok((None, 8 << 20)));
        assert_eq!(told("fork --every 1ms"), Ok((Some(Every::Ns(1_000_000)), 1 << 30)));
        assert_eq!(Spec::parse("fork --high --every 5us").map(|spec| spec.settings.contention), Ok(Contention::High));
        assert_eq!(told("fork --region=8M --every=never"), Ok((Some(Every::Never), 8 << 20)));
    }

    #[test]
    fn regions_and_contention_are_read() {
        assert_eq!(Spec::parse("mmap1 --region=16M").expect("understood").settings.region_bytes, 16 << 20);
        assert_eq!(Spec::parse("malloc1 --region 4K").expect("understood").settings.region_bytes, 4096);
        let told = |text| Spec::parse(text).expect("understood").settings;
        assert_eq!(told("corten-pf --high").contention, Contention::High);
        assert_eq!(told("corten-mmap --interleaved").contention, Contention::Interleaved);
        assert_eq!(told("corten-pf --near").protects, None);
        for text in ["corten-pf --protect inside", "corten-pf --near --protect=inside"] {
            assert_eq!(
                (told(text).contention, told(text).protects),
                (Contention::Near, Some(Protects::Inside)),
                "{text}"
            );
        }
        let settings = told("page_fault3 --shared --region 1M");
        assert_eq!((settings.whose, settings.region_bytes), (Whose::Shared, 1 << 20));
    }
}
