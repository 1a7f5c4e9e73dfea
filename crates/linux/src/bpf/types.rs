//! The kernel's description of its own types (BTF).
//!
//! # Guarantee
//! Reading ends at the description's end, whatever it holds; a type that is not found is `None`.
//!
//! # Source
//! `Documentation/bpf/btf.rst` of Linux.

use std::collections::HashMap;
use std::fs;
use std::io;

const PLACE: &str = "/sys/kernel/btf/vmlinux";

const ARRAY: u32 = 3;
const STRUCTURE: u32 = 4;
const UNION: u32 = 5;
const TYPEDEF: u32 = 8;

/// The types that were asked for.
#[derive(Debug, Default)]
pub(super) struct Types {
    /// The numbers of the type definitions, by name.
    definitions: HashMap<String, u32>,
    /// Where the fields of `task_struct` lie, in bytes.
    task: HashMap<String, usize>,
}

impl Types {
    /// Reads the running kernel's description.
    pub(super) fn read() -> io::Result<Self> {
        let bytes = fs::read(PLACE)?;
        Self::parse(&bytes).ok_or_else(|| io::Error::other("the kernel's description of its types is unknown"))
    }

    /// Returns the number of a tracepoint's type.
    pub(super) fn tracepoint(&self, name: &str) -> io::Result<u32> {
        let found = self.definitions.get(&format!("btf_trace_{name}"));
        found.copied().ok_or_else(|| io::Error::other(format!("the kernel describes no tracepoint {name}")))
    }

    /// Returns where a field of `task_struct` lies.
    pub(super) fn field(&self, name: &str) -> io::Result<usize> {
        self.task.get(name).copied().ok_or_else(|| io::Error::other(format!("a task has no field {name}")))
    }

    fn parse(bytes: &[u8]) -> Option<Self> {
        const MAGIC: u32 = 0xeb9f;
        if word(bytes, 0)? & 0xffff != MAGIC {
            return None;
        }
        let head_bytes = word(bytes, 4)? as usize;
        let section = |place: usize| {
            let (start, len) = (word(bytes, place)? as usize, word(bytes, place + 4)? as usize);
            bytes.get(head_bytes.checked_add(start)?..)?.get(..len)
        };
        let (types, names) = (section(8)?, section(16)?);
        let mut found = Self::default();
        let (mut place, mut id) = (0, 1);
        while place < types.len() {
            let [name, info, _] = [0, 4, 8].map(|field| word(types, place + field));
            let (kind, nr_members) = (info? >> 24 & 0x1f, (info? & 0xffff) as usize);
            let name = text(names, name? as usize)?;
            let members = types.get(place + 12..)?;
            match kind {
                TYPEDEF if name.starts_with("btf_trace_") => {
                    found.definitions.insert(name.to_owned(), id);
                }
                STRUCTURE if name == "task_struct" => found.task = fields(members, nr_members, names)?,
                _ => {}
            }
            place += 12 + tail_bytes(kind, nr_members)?;
            id += 1;
        }
        Some(found)
    }
}

/// Returns how much follows a type's first three words.
fn tail_bytes(kind: u32, nr_members: usize) -> Option<usize> {
    const INTEGER: u32 = 1;
    const ENUM: u32 = 6;
    const PROTOTYPE: u32 = 13;
    const VARIABLE: u32 = 14;
    const SECTION: u32 = 15;
    const TAG: u32 = 17;
    const WIDE_ENUM: u32 = 19;
    match kind {
        INTEGER | VARIABLE | TAG => Some(4),
        ARRAY => Some(12),
        STRUCTURE | UNION | SECTION | WIDE_ENUM => Some(nr_members * 12),
        ENUM | PROTOTYPE => Some(nr_members * 8),
        // Pointers, qualifiers, forward declarations, definitions, functions, floating point, tags of types.
        2 | 7..=12 | 16 | 18 => Some(0),
        _ => None,
    }
}

/// Returns where the fields lie that begin at a byte.
fn fields(members: &[u8], nr_members: usize, names: &[u8]) -> Option<HashMap<String, usize>> {
    let field = |place: usize| {
        let (name, bits) = (word(members, place * 12)?, word(members, place * 12 + 8)? & 0x00ff_ffff);
        Some((text(names, name as usize)?.to_owned(), bits as usize / 8))
    };
    (0..nr_members).map(field).collect()
}

fn word(bytes: &[u8], place: usize) -> Option<u32> {
    bytes.get(place..)?.first_chunk().copied().map(u32::from_ne_bytes)
}

fn text(names: &[u8], place: usize) -> Option<&str> {
    let rest = names.get(place..)?;
    let end = rest.iter().position(|&byte| byte == 0)?;
    std::str::from_utf8(&rest[..end]).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A head, then an integer, a definition and a structure of two fields, then their names.
    fn description() -> Vec<u8> {
        let names = b"\0int\0btf_trace_fork\0task_struct\0pid\0tgid\0";
        let place = |name: &str| {
            names.windows(name.len()).position(|window| window == name.as_bytes()).expect("it is there") as u32
        };
        let (integer, definition, structure) = (1 << 24, TYPEDEF << 24, STRUCTURE << 24 | 2);
        let types = [
            &[place("int"), integer, 4, 32][..],
            &[place("btf_trace_fork"), definition, 1],
            &[place("task_struct"), structure, 200, place("pid"), 1, 8 * 100, place("tgid"), 1, 8 * 104],
        ]
        .concat();
        let types_bytes = 4 * types.len() as u32;
        let head = [0x0001_eb9f, 24, 0, types_bytes, types_bytes, names.len() as u32];
        let words = head.into_iter().chain(types).flat_map(u32::to_ne_bytes);
        words.chain(names.iter().copied()).collect()
    }

    #[test]
    fn tracepoints_have_numbers_and_fields_have_places() {
        let types = Types::parse(&description()).expect("it is well formed");
        assert_eq!(types.tracepoint("fork").ok(), Some(2));
        assert_eq!([types.field("pid").ok(), types.field("tgid").ok()], [Some(100), Some(104)]);
        assert!(types.tracepoint("exec").is_err() && types.field("comm").is_err());
    }

    #[test]
    fn a_description_that_is_cut_short_or_changed_is_read_no_further() {
        let whole = description();
        for len in 0..whole.len() {
            let _ = Types::parse(&whole[..len]);
        }
        for place in 0..whole.len() {
            let mut changed = whole.clone();
            changed[place] = 0xff;
            let _ = Types::parse(&changed);
        }
        assert!(Types::parse(&whole[1..]).is_none());
    }
}
