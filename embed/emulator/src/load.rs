//! An ELF program in a space: its segments, its stack with arguments and auxiliary vector, its heap.
//!
//! # Guarantee
//! Any file is accepted or refused with a reason; a segment that does not fit the space is refused by the space.

use crate::memory::{Cpu, Fault, Memory};
use elf::ElfBytes;
use elf::abi::{EM_RISCV, ET_DYN, ET_EXEC, PF_R, PF_W, PF_X, PT_LOAD};
use elf::endian::LittleEndian;
use elf::file::Class;
use faultless_vm::{
    AddressRange, Backing, CallError, MapOptions, MapRequest, PAGE, Placement, Populate, Protection, SpaceRef,
    VirtAddr, page_ceil, page_floor,
};

/// Where a program is put that can be anywhere.
const ANYWHERE: u64 = 0x2a_aaaa_a000;
const STACK_END: u64 = 0x3f_ffff_f000;
const STACK_BYTES: u64 = 8 << 20;
/// A program's arguments take no more than this.
const ARGUMENT_BYTES_MOST: usize = 1 << 20;

/// Why a program can't be run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LoadError {
    /// It is no program for this processor.
    NotRunnable(&'static str),
    /// The file contradicts itself.
    Damaged(String),
    /// The space refuses a segment.
    Refused(CallError),
    /// A segment could not be written.
    Unwritable(Fault),
}

impl std::fmt::Display for LoadError {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::NotRunnable(why) => write!(out, "not a static RV64 Linux program: {why}"),
            Self::Damaged(what) => write!(out, "the ELF file is damaged: {what}"),
            Self::Refused(error) => write!(out, "a segment does not fit: {error}"),
            Self::Unwritable(fault) => {
                write!(out, "a segment can't be written at {:#x}: {:?}", fault.address, fault.reason)
            }
        }
    }
}

impl std::error::Error for LoadError {}

/// Where a program begins.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Start {
    pub(crate) pc: u64,
    pub(crate) stack: u64,
}

fn damaged(error: elf::ParseError) -> LoadError {
    LoadError::Damaged(error.to_string())
}

/// Puts a program into an empty space.
pub(crate) fn load(memory: &mut Memory<'_>, file: &[u8], arguments: &[String]) -> Result<Start, LoadError> {
    let elf = ElfBytes::<LittleEndian>::minimal_parse(file).map_err(damaged)?;
    let header = elf.ehdr;
    if header.class != Class::ELF64 || header.e_machine != EM_RISCV {
        return Err(LoadError::NotRunnable("it is for another processor"));
    }
    let base = match header.e_type {
        ET_EXEC => 0,
        ET_DYN => ANYWHERE,
        _ => return Err(LoadError::NotRunnable("it is no executable")),
    };
    let segments = elf.segments().ok_or(LoadError::NotRunnable("it has no segments"))?;
    if segments.iter().any(|segment| segment.p_type == elf::abi::PT_INTERP) {
        return Err(LoadError::NotRunnable("it wants a dynamic linker: link it with -static"));
    }
    let (mut end, mut headers) = (0, 0);
    for segment in segments.iter().filter(|segment| segment.p_type == PT_LOAD) {
        let overflows = || LoadError::Damaged(format!("a segment at {:#x} is too long", segment.p_vaddr));
        let start = base.checked_add_of(segment.p_vaddr).ok_or_else(overflows)?;
        let segment_end = start.checked_add_of(segment.p_memsz).ok_or_else(overflows)?;
        let content = elf.segment_data(&segment).map_err(damaged)?;
        if content.len() as u64 > segment.p_memsz {
            return Err(overflows());
        }
        let (first, len) = (page_floor(start), page_ceil(segment_end).ok_or_else(overflows)? - page_floor(start));
        if len == 0 {
            continue;
        }
        let writable = Protection::READ | Protection::WRITE;
        memory.call(|space| map(space, first, len, writable)).map_err(LoadError::Refused)?;
        memory.write(start, content).map_err(LoadError::Unwritable)?;
        let mut rights = Protection::empty();
        rights.set(Protection::READ, segment.p_flags & PF_R != 0);
        rights.set(Protection::WRITE, segment.p_flags & PF_W != 0);
        rights.set(Protection::EXEC, segment.p_flags & PF_X != 0);
        memory
            .call(|space| space.mprotect(AddressRange::new(VirtAddr::new(first), len), rights))
            .map_err(LoadError::Refused)?;
        if (segment.p_offset..segment.p_offset + segment.p_filesz).contains(&header.e_phoff) {
            headers = start + (header.e_phoff - segment.p_offset);
        }
        end = end.max(segment_end);
    }
    let heap = page_ceil(end).filter(|_| end != 0).ok_or(LoadError::NotRunnable("it has nothing to load"))?;
    memory.call(|space| space.set_heap_start(VirtAddr::new(heap)));
    let stack = STACK_END - STACK_BYTES;
    memory
        .call(|space| map(space, stack, STACK_BYTES, Protection::READ | Protection::WRITE))
        .map_err(LoadError::Refused)?;
    let pc = base.wrapping_add(header.e_entry);
    let auxiliary = [
        (3, headers),
        (4, u64::from(header.e_phentsize)),
        (5, u64::from(header.e_phnum)),
        (6, PAGE),
        (9, pc),
        (11, 1000),
        (12, 1000),
        (13, 1000),
        (14, 1000),
        // What RV64GC has, as letters of the alphabet.
        (16, "ACDFIM".bytes().map(|letter| 1 << (letter - b'A')).sum()),
        (17, 100),
        (23, 0),
    ];
    Ok(Start { pc, stack: push_arguments(memory, arguments, &auxiliary)? })
}

/// Lays out a program's stack; returns its pointer.
fn push_arguments(memory: &mut Memory<'_>, arguments: &[String], auxiliary: &[(u64, u64)]) -> Result<u64, LoadError> {
    if arguments.iter().map(|argument| argument.len() + 9).sum::<usize>() > ARGUMENT_BYTES_MOST {
        return Err(LoadError::NotRunnable("its arguments are longer than 1 MiB"));
    }
    let mut top = STACK_END;
    let mut push = |memory: &mut Memory<'_>, bytes: &[u8]| {
        top -= bytes.len() as u64;
        memory.write(top, bytes).map(|()| top).map_err(LoadError::Unwritable)
    };
    let random = push(memory, b"sixteen bytes...")?;
    let mut places = Vec::new();
    for argument in arguments {
        push(memory, &[0])?;
        places.push(push(memory, argument.as_bytes())?);
    }
    let mut words = vec![arguments.len() as u64];
    words.extend(&places);
    // No environment.
    words.extend([0, 0]);
    words.extend(auxiliary.iter().flat_map(|&(name, value)| [name, value]));
    words.extend([25, random, 31, places.first().copied().unwrap_or(0), 0, 0]);
    let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
    let pointer = (top - bytes.len() as u64) & !15;
    memory.write(pointer, &bytes).map_err(LoadError::Unwritable)?;
    Ok(pointer)
}

fn map(space: &SpaceRef<'_, Cpu>, start: u64, len_bytes: u64, protection: Protection) -> Result<VirtAddr, CallError> {
    let request = MapRequest {
        placement: Placement::FixedNoReplace(VirtAddr::new(start)),
        len_bytes,
        protection,
        options: MapOptions::empty(),
        backing: Backing::Anonymous,
        populate: Populate::OnFault,
    };
    space.mmap(&request)
}

/// Sums that stay below user memory's end.
trait CheckedEnd: Sized {
    fn checked_add_of(self, other: Self) -> Option<Self>;
}

impl CheckedEnd for u64 {
    fn checked_add_of(self, other: Self) -> Option<Self> {
        self.checked_add(other).filter(|&sum| sum <= STACK_END)
    }
}
