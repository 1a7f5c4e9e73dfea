//! ebizzy: a search engine's memory: chunks that are copied in part or whole, searched, and thrown away.
//!
//! Source: ebizzy 0.2 (V. Henson), its description and its options. An operation is a record: a chunk is chosen at
//! random, copied into fresh memory, a key is looked up there by halving, and the memory is freed.
//!
//! | flag | meaning | unless given |
//! |---|---|---|
//! | `-m` | chunks and copies are mappings of their own | as malloc decides |
//! | `-M` | malloc takes nothing from mappings | as malloc decides |
//! | `-t N` | threads | two for each CPU |
//! | `-n N` | chunks | 10 |
//! | `-s BYTES` | bytes of a chunk | 512 KiB |
//! | `-T` | copies are touched, a byte a page, instead of copied and searched | copied and searched |
//! | `-R` | copies are of random length, up to the chunk's | the whole chunk |
//! | `-p` | every other chunk is made read-only, so that neighbours don't become one area | neighbours join |

use crate::PAGE;
use crate::heap::HeapPolicy;
use crate::program::{Program, Seat, Step, Worker};
use crate::random::Random;
use crate::settings::{Ebizzy, Settings};
use crate::space::{AddressSpace, MapCall, Refused, Rights};
use alloc::boxed::Box;
use alloc::vec::Vec;
use faultless_platform::Threads;

/// Bytes of a record.
const RECORD: u64 = 8;
/// What the searching threads begin their random numbers with: all with the same, as the original does.
const SEED: u64 = 0x0c0f_fee0;

/// The chunks, which all threads of a space share.
pub(crate) struct Chunks {
    flags: Ebizzy,
    starts: Vec<u64>,
}

/// Makes the chunks, and fills them with their records' numbers.
pub(crate) fn prepare(settings: &Settings, space: &dyn AddressSpace) -> Result<Chunks, Refused> {
    let flags = settings.ebizzy;
    if flags.never_maps {
        space.set_heap_policy(HeapPolicy::NeverMap);
    }
    let starts = (0..flags.nr_chunks).map(|_| allocate(space, &flags, flags.chunk_bytes)).collect::<Result<_, _>>()?;
    let chunks = Chunks { flags, starts };
    chunks.starts.iter().enumerate().try_for_each(|(place, &start)| fill(space, &flags, place, start))?;
    Ok(chunks)
}

/// Writes a chunk, and makes it read-only if it is its turn.
fn fill(space: &dyn AddressSpace, flags: &Ebizzy, place: usize, start: u64) -> Result<(), Refused> {
    // What nobody will look at need only be there.
    let each = if flags.only_touches { PAGE } else { RECORD };
    (0..flags.chunk_bytes).step_by(each as usize).try_for_each(|at| space.store(start + at, at / RECORD))?;
    // A block of malloc's does not begin at a page, and then mprotect does nothing.
    if flags.alternates_rights && place.is_multiple_of(2) && start.is_multiple_of(PAGE) {
        space.protect(start..(start + flags.chunk_bytes).next_multiple_of(PAGE), Rights::Read)?;
    }
    Ok(())
}

fn allocate(space: &dyn AddressSpace, flags: &Ebizzy, len_bytes: u64) -> Result<u64, Refused> {
    if flags.always_maps { space.map(&MapCall::anonymous(len_bytes)) } else { space.allocate(len_bytes) }
}

fn free(space: &dyn AddressSpace, flags: &Ebizzy, start: u64, len_bytes: u64) -> Result<(), Refused> {
    if flags.always_maps { space.unmap(start..start + len_bytes) } else { space.release(start) }
}

impl<P: Threads> Program<P> for Chunks {
    fn worker<'a>(&'a self, _seat: Seat, space: &'a dyn AddressSpace) -> Result<Box<dyn Worker + 'a>, Refused> {
        if self.flags.never_maps {
            space.set_heap_policy(HeapPolicy::NeverMap);
        }
        Ok(Box::new(Searcher { chunks: self, space, random: Random::new(SEED) }))
    }
}

struct Searcher<'a> {
    chunks: &'a Chunks,
    space: &'a dyn AddressSpace,
    random: Random,
}

impl Searcher<'_> {
    fn touch(&self, copy: u64, len_bytes: u64) -> Result<(), Refused> {
        (0..len_bytes).step_by(PAGE as usize).try_for_each(|offset| self.space.store(copy + offset, 0xff))
    }

    /// Looks a key up among numbers in order; every one is there.
    fn search(&self, copy: u64, nr_records: u64, key: u64) -> Result<(), Refused> {
        let (mut low, mut high) = (0, nr_records);
        while low < high {
            let middle = u64::midpoint(low, high);
            match self.space.load(copy + middle * RECORD)? {
                found if found == key => return Ok(()),
                found if found < key => low = middle + 1,
                _ => high = middle,
            }
        }
        Err(Refused::Wrong { address: copy + key * RECORD, found: low, expected: key })
    }
}

impl Worker for Searcher<'_> {
    fn step(&mut self) -> Result<Step, Refused> {
        let flags = &self.chunks.flags;
        let source = self.chunks.starts[self.random.below(flags.nr_chunks) as usize];
        let nr_records = match flags.chunk_bytes / RECORD {
            all if flags.has_random_lengths => self.random.below(all) + 1,
            all => all,
        };
        let len_bytes = nr_records * RECORD;
        let copy = allocate(self.space, flags, len_bytes)?;
        if flags.only_touches {
            self.touch(copy, len_bytes)?;
        } else {
            self.space.copy(source, copy, len_bytes)?;
            let key = self.random.below(nr_records);
            self.search(copy, nr_records, key)?;
        }
        free(self.space, flags, copy, len_bytes)?;
        Ok(Step::of(1))
    }
}
