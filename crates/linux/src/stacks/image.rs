//! A file with code: where it wants to stand, how its functions are unwound, and what they are called.
//!
//! # Guarantee
//! A function's name is one that the file, or its separate file of symbols, gives to exactly that place; an address
//! between two functions has none. A file that was replaced since it was mapped is not read.

use std::fs;
use std::ops::{Deref, Range};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use framehop::{ExplicitModuleSectionInfo, Module};
use object::{Object, ObjectSection, ObjectSegment, ObjectSymbol, SegmentFlags, SymbolKind};

/// Where symbols lie that were taken out of a file, by the file's number.
const SYMBOL_FILES: &str = "/usr/lib/debug/.build-id";

/// A part of a file.
#[derive(Clone, Debug, Default)]
pub(crate) struct Bytes {
    file: Arc<[u8]>,
    range: Range<usize>,
}

impl Deref for Bytes {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        self.file.get(self.range.clone()).unwrap_or_default()
    }
}

/// A section: where it stands, as the file counts, and what it holds.
type Section = (Range<u64>, Bytes);

/// A file with code.
#[derive(Debug)]
pub(crate) struct Image {
    name: String,
    /// Of each loaded part that holds code, where it lies in the file and where it wants to stand.
    parts: Vec<(Range<u64>, u64)>,
    /// Where the first loaded part wants to stand. Offsets from it fit 32 bits, as an unwinder asks for.
    base: u64,
    eh_frame: Option<Section>,
    eh_frame_hdr: Option<Section>,
    symbols: Vec<Symbol>,
    /// Where a program begins that this file is, or that it loads.
    entry: u64,
}

/// So far from a program's beginning its first call returns.
const ENTRY_BYTES: u64 = 64;

/// What a program begins with, where no symbol says so.
const ENTRY: &str = "_start";

/// A function.
#[derive(Debug)]
struct Symbol {
    range: Range<u64>,
    name: String,
}

impl Image {
    /// Reads a file, if it is still the one of that number.
    pub(crate) fn read(path: &str, inode: u64) -> Option<Self> {
        let is_same = fs::metadata(path).is_ok_and(|found| found.is_file() && found.ino() == inode);
        is_same.then(|| Self::parse(path)).flatten()
    }

    fn parse(path: &str) -> Option<Self> {
        let bytes: Arc<[u8]> = fs::read(path).ok()?.into();
        let file = object::File::parse(&*bytes).ok()?;
        let part = |segment: object::Segment<'_, '_>| {
            let (start, len) = segment.file_range();
            (start..start.saturating_add(len), segment.address())
        };
        let section = |name: &str| {
            let section = file.section_by_name(name)?;
            let (start, len) = section.file_range()?;
            let range = start as usize..start.saturating_add(len) as usize;
            let place = section.address()..section.address().saturating_add(section.size());
            Some((place, Bytes { file: Arc::clone(&bytes), range }))
        };
        let mut symbols = symbols(&file);
        if let Some(separate) = symbol_file(&file).and_then(|path| fs::read(path).ok()) {
            symbols.extend(object::File::parse(&*separate).iter().flat_map(self::symbols));
        }
        symbols.sort_by_key(|symbol| (symbol.range.start, symbol.nr_underscores()));
        symbols.dedup_by_key(|symbol| symbol.range.start);
        Some(Self {
            name: path.to_owned(),
            // A page of the file may belong to two parts, and only one of them is code.
            parts: file.segments().filter(is_code).map(part).collect(),
            base: file.segments().map(|segment| segment.address() & !0xfff).min().unwrap_or(0),
            entry: file.entry(),
            eh_frame: section(".eh_frame"),
            eh_frame_hdr: section(".eh_frame_hdr"),
            symbols,
        })
    }

    /// Returns what is to be subtracted from a process's addresses for those of the file, where it is mapped so.
    pub(crate) fn bias(&self, start: u64, file_offset: u64) -> Option<u64> {
        // A mapping begins at a page's boundary, which may lie before the part that it is for.
        let reaches = |part: &&(Range<u64>, u64)| part.0.start & !0xfff <= file_offset && file_offset < part.0.end;
        let (range, address) = self.parts.iter().find(reaches)?;
        Some(start.wrapping_sub(file_offset).wrapping_sub(address.wrapping_sub(range.start)))
    }

    /// Returns what an unwinder needs of it, where it is mapped so.
    pub(crate) fn module(&self, mapped: Range<u64>, bias: u64) -> Module<Bytes> {
        let sections = ExplicitModuleSectionInfo {
            base_svma: self.base,
            eh_frame_svma: self.eh_frame.as_ref().map(|(place, _)| place.clone()),
            eh_frame: self.eh_frame.as_ref().map(|(_, bytes)| bytes.clone()),
            eh_frame_hdr_svma: self.eh_frame_hdr.as_ref().map(|(place, _)| place.clone()),
            eh_frame_hdr: self.eh_frame_hdr.as_ref().map(|(_, bytes)| bytes.clone()),
            ..ExplicitModuleSectionInfo::default()
        };
        Module::new(self.name.clone(), mapped, bias.wrapping_add(self.base), sections)
    }

    /// Returns the function at an address as the file counts.
    pub(crate) fn function(&self, address: u64) -> Option<&str> {
        let place = self.symbols.partition_point(|symbol| symbol.range.start <= address).checked_sub(1);
        let symbol = place.map(|place| &self.symbols[place]).filter(|symbol| symbol.range.contains(&address));
        symbol.map(|symbol| symbol.name.as_str()).or_else(|| self.begins_at(address).then_some(ENTRY))
    }

    /// Returns whether a program begins around an address: nobody called what is there.
    pub(crate) fn begins_at(&self, address: u64) -> bool {
        self.entry != 0 && (self.entry..self.entry.saturating_add(ENTRY_BYTES)).contains(&address)
    }
}

impl Symbol {
    /// Of several names for one place those with fewer underscores are its programmers'.
    fn nr_underscores(&self) -> usize {
        self.name.bytes().take_while(|&byte| byte == b'_').count()
    }
}

/// Returns the functions that a file names. One without a size reaches to the next.
fn symbols(file: &object::File<'_>) -> Vec<Symbol> {
    let all = file.symbols().chain(file.dynamic_symbols());
    let is_function = |symbol: &object::Symbol<'_, '_>| symbol.is_definition() && symbol.kind() == SymbolKind::Text;
    let mut found: Vec<(u64, u64, String)> = all
        .filter(is_function)
        .filter_map(|symbol| Some((symbol.address(), symbol.size(), demangled(symbol.name().ok()?))))
        .filter(|(_, _, name)| !name.is_empty())
        .collect();
    found.sort();
    let nexts: Vec<u64> = found.iter().map(|&(start, ..)| start).collect();
    let end_of = |start: u64, size: u64| match size {
        0 => nexts[nexts.partition_point(|&next| next <= start)..].first().copied().unwrap_or(start + 1),
        size => start.saturating_add(size),
    };
    let symbol = |(start, size, name)| Symbol { range: start..end_of(start, size), name };
    found.into_iter().map(symbol).collect()
}

fn is_code(segment: &object::Segment<'_, '_>) -> bool {
    matches!(segment.flags(), SegmentFlags::Elf { p_flags } if p_flags & object::elf::PF_X != 0)
}

fn symbol_file(file: &object::File<'_>) -> Option<PathBuf> {
    let number: String = file.build_id().ok()??.iter().map(|byte| format!("{byte:02x}")).collect();
    let (folder, name) = number.split_at_checked(2)?;
    Some(Path::new(SYMBOL_FILES).join(folder).join(format!("{name}.debug")))
}

/// Returns a function's name as its programmer knows it.
fn demangled(name: &str) -> String {
    // A version follows a name of the dynamic linker's.
    let name = name.split("@@").next().unwrap_or(name);
    if let Ok(rust) = rustc_demangle::try_demangle(name) {
        return format!("{rust:#}");
    }
    let is_cpp = name.starts_with("_Z");
    let cpp = is_cpp.then(|| cpp_demangle::Symbol::new(name).ok()?.demangle().ok()).flatten();
    cpp.unwrap_or_else(|| name.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn own() -> Image {
        let path = std::env::current_exe().expect("this program has a file");
        let inode = fs::metadata(&path).expect("it is there").ino();
        Image::read(path.to_str().expect("its name is text"), inode).expect("it is a program")
    }

    #[test]
    fn this_function_is_found_by_its_address_in_the_file() {
        let image = own();
        let maps = fs::read_to_string("/proc/self/maps").expect("Linux tells");
        let here = this_function_is_found_by_its_address_in_the_file as *const () as u64;
        let mapped = maps.lines().find_map(|line| {
            let mut words = line.split_whitespace();
            let (start, end) = words.next()?.split_once('-')?;
            let number = |text: &str| u64::from_str_radix(text, 16).ok();
            let (start, end, offset) = (number(start)?, number(end)?, number(words.nth(1)?)?);
            (start <= here && here < end).then_some((start, offset))
        });
        let (start, offset) = mapped.expect("this code is mapped");
        let bias = image.bias(start, offset).expect("the file has code there");
        let name = image.function(here - bias).expect("it has a name");
        assert!(name.contains("this_function_is_found"), "{name}");
        assert_eq!(image.function(1), None);
    }

    #[test]
    fn a_file_of_another_number_is_not_read() {
        let path = std::env::current_exe().expect("this program has a file");
        assert!(Image::read(path.to_str().expect("its name is text"), 1).is_none());
    }

    #[test]
    fn names_are_those_of_the_source() {
        assert_eq!(demangled("_ZN4core3fmt5write17h0123456789abcdefE"), "core::fmt::write");
        assert_eq!(demangled("_ZNSt6vectorIiE4growEv"), "std::vector<int>::grow()");
        assert_eq!(demangled("mmap@@GLIBC_2.2.5"), "mmap");
        assert_eq!(demangled("main"), "main");
    }
}
