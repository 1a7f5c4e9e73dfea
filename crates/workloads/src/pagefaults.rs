//! pagefaults: accesses fresh memory in a pattern, 128 MiB at a time, unmaps it, and again.
//!
//! Source: what a reviewer of the rwsem series (linux-kernel, October 2013) asked for beside a program of one's own: a
//! benchmark of page faults as `perf bench mem` has them of copies. An operation is an access.
//!
//! The pattern is sequential, random (each page once, in an order that all runs share), or a stride: addresses that far
//! apart, of which several may lie in one page. Memory is private and anonymous, or a shared mapping of a file.

use crate::PAGE;
use crate::program::{Seat, Step, Worker};
use crate::random::Random;
use crate::settings::{AccessKind, Mapping, Pattern, Settings};
use crate::space::{AddressSpace, Backing, Content, FileName, MapCall, Refused};
use alloc::boxed::Box;
use alloc::vec::Vec;

/// The same order in every run.
const SEED: u64 = 20_131_009;

struct Faulting<'a> {
    space: &'a dyn AddressSpace,
    call: MapCall,
    access: AccessKind,
    /// The offsets of a random order; none for a stride.
    order: Vec<u64>,
    stride: u64,
    /// Where the memory is; nowhere before the first step.
    start: Option<u64>,
    next: u64,
}

/// Makes a worker.
pub(crate) fn worker<'a>(
    settings: &Settings,
    seat: Seat,
    space: &'a dyn AddressSpace,
) -> Result<Box<dyn Worker + 'a>, Refused> {
    let (len_bytes, told) = (settings.region_bytes, settings.pagefaults);
    let backing = match told.mapping {
        Mapping::Private => Backing::Anonymous,
        Mapping::Shared => Backing::Shared(space.open(FileName::Own(seat.global), len_bytes, Content::Hole)?),
    };
    let mut order = Vec::new();
    if told.pattern == Pattern::Random {
        order.extend((0..len_bytes).step_by(PAGE as usize));
        Random::new(SEED).shuffle(&mut order);
    }
    let stride = if let Pattern::Stride(bytes) = told.pattern { bytes } else { PAGE };
    let call = MapCall { backing, ..MapCall::anonymous(len_bytes) };
    Ok(Box::new(Faulting { space, call, access: told.access, order, stride, start: None, next: 0 }))
}

impl Faulting<'_> {
    /// Returns the next address; maps before the first, and again after the last.
    fn next_address(&mut self) -> Result<u64, Refused> {
        let nr_accesses = match self.order.len() as u64 {
            0 => self.call.len_bytes.div_ceil(self.stride),
            nr_pages => nr_pages,
        };
        let start = match self.start {
            Some(start) if self.next < nr_accesses => start,
            old => {
                if let Some(start) = old {
                    self.space.unmap(start..start + self.call.len_bytes)?;
                }
                self.next = 0;
                *self.start.insert(self.space.map(&self.call)?)
            }
        };
        let offset = self.order.get(self.next as usize).copied().unwrap_or(self.next * self.stride);
        self.next += 1;
        Ok(start + offset)
    }
}

impl Worker for Faulting<'_> {
    fn step(&mut self) -> Result<Step, Refused> {
        let address = self.next_address()?;
        match self.access {
            AccessKind::Write => self.space.store(address, address)?,
            AccessKind::Read => {
                let found = self.space.load(address)?;
                if found != 0 {
                    return Err(Refused::Wrong { address, found, expected: 0 });
                }
            }
        }
        Ok(Step::of(1))
    }
}
