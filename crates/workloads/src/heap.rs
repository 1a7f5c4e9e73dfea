//! malloc over an address space that has none: what glibc's asks of the kernel, and where it touches memory.
//!
//! # Guarantee
//! Blocks come from where glibc 2.4x takes them for a thread that is not the first, with its default settings:
//! ```text
//! up to 1032 bytes      the thread's own lists of freed blocks, linked through the blocks
//! mid-sized             the thread's arena of 64 MiB, made accessible by mprotect as it grows, trimmed by madvise
//! from 128 KiB          a mapping each; freeing one raises that border to its size, up to 32 MiB
//! ```
//! # Invariants
//! * I1 every block has its length in the word before it; the allocator loads it when the block is freed
//! * I2 blocks of the arena are freed in reverse order: that is all that the workloads do, and it makes the arena a
//!   stack
//!
//! Left out: statistics that glibc keeps in lines that threads share. Source: glibc's manual, "Malloc Tunable
//! Parameters".

use crate::PAGE;
use crate::space::{AddressSpace, MapCall, Refused, Rights};
use core::cell::{Cell, RefCell};

/// Where blocks may come from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum HeapPolicy {
    /// As their size says.
    #[default]
    BySize,
    /// Never from a mapping of their own (`M_MMAP_MAX` 0).
    NeverMap,
}

/// Bytes in front of a block: its length, below 16 bytes of alignment.
const HEADER: u64 = 16;
/// The largest block, its header included, that the lists of freed blocks hold: room for 1032 bytes.
const LISTED_MOST: u64 = 1040;
const LISTS: usize = (LISTED_MOST / 16 + 1) as usize;
/// Where mappings begin at first, and the most that the border rises to.
const MAP_FROM: u64 = 128 << 10;
const MAP_FROM_MOST: u64 = 32 << 20;
/// An arena's size, and what is left of its free end when it is trimmed.
const ARENA_BYTES: u64 = 64 << 20;
const TOP_PAD: u64 = 128 << 10;
/// Marks a length as that of a mapping.
const MAPPED: u64 = 2;

/// One thread's heap.
#[derive(Debug)]
pub struct Heap {
    policy: Cell<HeapPolicy>,
    map_from: Cell<u64>,
    lists: RefCell<[u64; LISTS]>,
    arena: Cell<Option<Arena>>,
}

/// The thread's arena: addresses.
#[derive(Clone, Copy, Debug)]
struct Arena {
    start: u64,
    /// The first byte that no block has.
    top: u64,
    /// The end of what counts as the arena's.
    end: u64,
    /// The end of what may be accessed.
    accessible: u64,
}

impl Default for Heap {
    fn default() -> Self {
        Self {
            policy: Cell::default(),
            map_from: Cell::new(MAP_FROM),
            lists: RefCell::new([0; LISTS]),
            arena: Cell::new(None),
        }
    }
}

const fn page_up(bytes: u64) -> u64 {
    bytes.next_multiple_of(PAGE)
}

impl Heap {
    /// Says where blocks may come from, from now on.
    pub fn set_policy(&self, policy: HeapPolicy) {
        self.policy.set(policy);
    }

    /// Returns room for `len_bytes`.
    pub fn allocate(&self, space: &dyn AddressSpace, len_bytes: u64) -> Result<u64, Refused> {
        let whole = (len_bytes + 8).next_multiple_of(16).max(32);
        if let Some(block) = self.take_listed(space, whole)? {
            return Ok(block);
        }
        let is_large = whole >= self.map_from.get() && self.policy.get() == HeapPolicy::BySize;
        if is_large || whole + PAGE > ARENA_BYTES {
            return map_block(space, whole);
        }
        self.push(space, whole)
    }

    /// Gives a block back.
    pub fn release(&self, space: &dyn AddressSpace, block: u64) -> Result<(), Refused> {
        let whole = space.load(block - 8)?;
        if whole & MAPPED != 0 {
            return self.unmap_block(space, block - HEADER, whole - MAPPED);
        }
        match self.lists.borrow_mut().get_mut((whole / 16) as usize) {
            Some(first) => put_listed(space, first, block),
            None => self.pop(space, block - HEADER, whole),
        }
    }

    /// Takes a freed block of this size, if there is one.
    fn take_listed(&self, space: &dyn AddressSpace, whole: u64) -> Result<Option<u64>, Refused> {
        let mut lists = self.lists.borrow_mut();
        let Some(first) = lists.get_mut((whole / 16) as usize).filter(|first| **first != 0) else { return Ok(None) };
        let block = *first;
        *first = space.load(block)?;
        space.store(block + 8, 0)?;
        Ok(Some(block))
    }

    fn unmap_block(&self, space: &dyn AddressSpace, start: u64, len_bytes: u64) -> Result<(), Refused> {
        if (self.map_from.get()..=MAP_FROM_MOST).contains(&len_bytes) {
            self.map_from.set(len_bytes);
        }
        space.unmap(start..start + len_bytes)
    }

    /// Puts a block on the arena's top.
    fn push(&self, space: &dyn AddressSpace, whole: u64) -> Result<u64, Refused> {
        let mut arena = match self.arena.get() {
            Some(arena) => arena,
            None => new_arena(space)?,
        };
        if arena.top + whole + HEADER > arena.start + ARENA_BYTES {
            return map_block(space, whole);
        }
        arena.end = arena.end.max(page_up(arena.top + whole + HEADER));
        if arena.end > arena.accessible {
            space.protect(arena.accessible..arena.end, Rights::ReadWrite)?;
            arena.accessible = arena.end;
        }
        let start = arena.top;
        arena.top += whole;
        self.arena.set(Some(arena));
        space.store(start + 8, whole)?;
        // The rest's own length.
        space.store(arena.top + 8, arena.end - arena.top)?;
        Ok(start + HEADER)
    }

    /// Takes the topmost block off the arena, and gives memory back if much is left over.
    fn pop(&self, space: &dyn AddressSpace, start: u64, whole: u64) -> Result<(), Refused> {
        let Some(mut arena) = self.arena.get().filter(|arena| arena.top == start + whole) else {
            debug_assert!(false, "blocks are freed in reverse order (I2)");
            return Ok(());
        };
        arena.top = start;
        space.store(start + 8, arena.end - arena.top)?;
        let trim_from = if self.map_from.get() == MAP_FROM { MAP_FROM } else { 2 * self.map_from.get() };
        if whole >= 64 << 10 && arena.end - arena.top >= trim_from {
            let kept = page_up(arena.top + TOP_PAD + 32).min(arena.end);
            if kept < arena.end {
                space.discard(kept..arena.end)?;
                arena.end = kept;
            }
        }
        self.arena.set(Some(arena));
        Ok(())
    }
}

/// Puts a freed block at the front of its list.
fn put_listed(space: &dyn AddressSpace, first: &mut u64, block: u64) -> Result<(), Refused> {
    space.store(block, *first)?;
    // glibc marks freed blocks, to notice one that is freed twice.
    space.store(block + 8, 1)?;
    *first = block;
    Ok(())
}

/// Maps a block by itself.
fn map_block(space: &dyn AddressSpace, whole: u64) -> Result<u64, Refused> {
    let len_bytes = page_up(whole + 8);
    let start = space.map(&MapCall::anonymous(len_bytes))?;
    space.store(start, 0)?;
    space.store(start + 8, len_bytes | MAPPED)?;
    Ok(start + HEADER)
}

/// Reserves an arena, at a multiple of its size, and makes its first pages accessible.
fn new_arena(space: &dyn AddressSpace) -> Result<Arena, Refused> {
    let reserve = MapCall { rights: Rights::None, ..MapCall::anonymous(2 * ARENA_BYTES) };
    let found = space.map(&reserve)?;
    let start = found.next_multiple_of(ARENA_BYTES);
    if start > found {
        space.unmap(found..start)?;
    }
    let (end, reserved_end) = (start + ARENA_BYTES, found + 2 * ARENA_BYTES);
    if end < reserved_end {
        space.unmap(end..reserved_end)?;
    }
    let first = start + TOP_PAD + PAGE;
    space.protect(start..first, Rights::ReadWrite)?;
    // glibc keeps its own state of the arena at the start, some 2 KiB.
    Ok(Arena { start, top: start + 2048, end: first, accessible: first })
}
