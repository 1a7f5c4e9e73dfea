//! The areas of a process, as `/proc/PID/smaps` lists them.
//!
//! # Guarantee
//! The areas handed out are sorted and disjoint, also when the process changed its map between two parts of the list:
//! where two lines overlap the later one counts.
//!
//! # Source
//! `proc_pid_maps(5)` and `proc_pid_smaps(5)`: a line with range, rights, offset, device, inode and name, then lines of
//! figures, the last of them `VmFlags:` with a word of two letters for each flag.

use std::ops::Range;

use faultless_trace::Area;

/// Behind this no address is a program's: the vsyscall page lies there.
const USER_END: u64 = 1 << 56;

/// One area as listed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Listed {
    pub(crate) range: Range<u64>,
    pub(crate) prot: u32,
    /// Bits of [`Area`]'s constants.
    pub(crate) flags: u32,
    pub(crate) file_offset: u64,
    pub(crate) major: u32,
    pub(crate) minor: u32,
    pub(crate) inode: u64,
    /// The name, without the mark of a deleted file.
    pub(crate) path: String,
}

/// What the flags' words mean.
const FLAGS: [(&str, u32); 14] = [
    ("sh", Area::SHARED),
    ("gd", Area::GROWS_DOWN),
    ("lo", Area::LOCKED),
    ("lf", Area::LOCKED_ON_FAULT),
    ("dc", Area::DONT_FORK),
    ("wf", Area::WIPE_ON_FORK),
    ("ht", Area::HUGE),
    ("hg", Area::HUGE),
    ("ac", Area::ACCOUNTED),
    ("nr", Area::NO_RESERVE),
    ("pf", Area::SPECIAL),
    ("io", Area::SPECIAL),
    ("mg", Area::MERGEABLE),
    ("dp", Area::WIPE_ON_FORK),
];

/// Parses the list.
pub(crate) fn parse(text: &str) -> Vec<Listed> {
    let mut areas: Vec<Listed> = Vec::new();
    for line in text.lines() {
        if let Some(words) = line.strip_prefix("VmFlags:") {
            if let Some(area) = areas.last_mut() {
                area.flags |= flags_of(words);
            }
        } else if let Some(area) = parse_head(line) {
            make_room(&mut areas, &area);
            areas.push(area);
        }
    }
    areas.retain(|area| area.range.start < USER_END);
    areas
}

/// Cuts what was listed before at the begin of an area that is listed now.
fn make_room(areas: &mut Vec<Listed>, area: &Listed) {
    while areas.last().is_some_and(|last| last.range.start >= area.range.start) {
        areas.pop();
    }
    if let Some(last) = areas.last_mut() {
        last.range.end = last.range.end.min(area.range.start);
    }
}

fn flags_of(words: &str) -> u32 {
    let known = |word: &str| FLAGS.iter().filter(|(name, _)| *name == word).fold(0, |all, (_, bit)| all | bit);
    words.split_whitespace().map(known).fold(0, |all, bits| all | bits)
}

/// Parses `7f00-7f10 r-xp 00001000 08:01 1234   /usr/lib/x.so`; nothing for a line of figures.
fn parse_head(line: &str) -> Option<Listed> {
    let (range, rest) = line.split_once(' ')?;
    let (start, end) = range.split_once('-')?;
    let range = hex(start)?..hex(end)?;
    let (rights, rest) = rest.split_once(' ')?;
    let (offset, rest) = rest.split_once(' ')?;
    let (device, rest) = rest.split_once(' ')?;
    let (inode, name) = rest.split_once(' ').unwrap_or((rest, ""));
    let (major, minor) = device.split_once(':')?;
    let name = name.trim_start();
    let is_own_of_kernel = matches!(name, "[vdso]" | "[vvar]" | "[vvar_vclock]" | "[uprobes]");
    Some(Listed {
        range,
        prot: prot_of(rights),
        flags: if is_own_of_kernel { Area::SPECIAL } else { 0 },
        file_offset: hex(offset)?,
        major: hex(major)? as u32,
        minor: hex(minor)? as u32,
        inode: inode.parse().ok()?,
        path: name.strip_suffix(" (deleted)").unwrap_or(name).to_owned(),
    })
}

fn prot_of(rights: &str) -> u32 {
    let bits = [('r', libc::PROT_READ), ('w', libc::PROT_WRITE), ('x', libc::PROT_EXEC)];
    bits.iter().filter(|(letter, _)| rights.contains(*letter)).fold(0, |all, (_, bit)| all | *bit as u32)
}

fn hex(digits: &str) -> Option<u64> {
    u64::from_str_radix(digits, 16).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "\
5555-5557 r-xp 00001000 08:01 1234                       /usr/bin/a b (deleted)
Size:                  8 kB
VmFlags: rd ex mr mw me
7000-9000 rw-p 00000000 00:00 0                          [heap]
VmFlags: rd wr ac gd lo
8000-a000 rw-s 00000000 00:01 77                         /dev/zero (deleted)
VmFlags: rd wr sh nr
b000-c000 r--p 00000000 00:00 0                          [vvar]
VmFlags: rd pf io
ffffffffff600000-ffffffffff601000 --xp 00000000 00:00 0  [vsyscall]
VmFlags: ex
";

    #[test]
    fn lines_become_areas_and_later_lines_cut_earlier_ones() {
        let areas = parse(TEXT);
        let ranges: Vec<_> = areas.iter().map(|area| area.range.clone()).collect();
        assert_eq!(ranges, [0x5555..0x5557, 0x7000..0x8000, 0x8000..0xa000, 0xb000..0xc000]);
        let file = &areas[0];
        assert_eq!((file.prot, file.file_offset, file.inode, file.major), (5, 0x1000, 1234, 8));
        assert_eq!(file.path, "/usr/bin/a b");
        assert_eq!(areas[1].flags, Area::ACCOUNTED | Area::GROWS_DOWN | Area::LOCKED);
        assert_eq!(areas[2].flags, Area::SHARED | Area::NO_RESERVE);
        assert_eq!(areas[3].flags, Area::SPECIAL);
    }

    #[test]
    fn an_area_that_swallowed_the_one_before_replaces_it() {
        let areas = parse("2000-3000 r--p 0 00:00 0\n1000-4000 rw-p 0 00:00 0\n");
        assert_eq!(areas.len(), 1);
        assert_eq!((areas[0].range.clone(), areas[0].prot), (0x1000..0x4000, 3));
    }
}
