//! User call chains: from what the kernel copied to named functions.
//!
//! # Guarantee
//! A chain belongs to the event of the same thread that the same system call or fault gave; one that finds no event is
//! dropped. A stack's content is looked at and forgotten: only addresses and names come into the trace.
//!
//! # Protocol
//! The chains come from events of their own, in rings of their own, so that a chain that finds no room costs the trace
//! nothing. So one entry of a system call gives two records, in any order; between them the thread does nothing else:
//! ```text
//! events' ring    enter 17 ------------- exit 18      fault 19
//! chains' ring        chain (mmap)                chain (address)
//! ```

mod code;
mod image;

use std::collections::HashMap;
use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use faultless_trace::stacks::{Chain, Frame, Reach, Sample, StackMethod, Stacks};
use faultless_trace::{Call, ChainIndex, Event, EventKind, File, FileIndex, FrameIndex, ThreadIndex};

use code::{Cache, FRAMES_MOST, Placed};
pub(crate) use code::{Code, Copied};
use image::Image;

/// How call chains are recorded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StackOptions {
    /// How they are found.
    pub method: StackMethod,
    /// How much is copied of each stack's top, for [`StackMethod::Dwarf`]: a multiple of 8, below 64 KiB.
    pub copied_bytes: u32,
    /// Of each thread's faults each so manieth gets a chain; none if this is 0.
    pub fault_period: u64,
}

impl fmt::Display for StackOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { method, copied_bytes, fault_period } = self;
        write!(f, "{},{copied_bytes},{fault_period}", method.name())
    }
}

impl FromStr for StackOptions {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        let [method, copied_bytes, fault_period] = text.trim().split(',').collect::<Vec<_>>()[..] else {
            return Err(());
        };
        let method = StackMethod::ALL.into_iter().find(|known| known.name() == method).ok_or(())?;
        let (copied_bytes, fault_period) = (copied_bytes.parse(), fault_period.parse());
        Ok(Self { method, copied_bytes: copied_bytes.map_err(drop)?, fault_period: fault_period.map_err(drop)? })
    }
}

/// What one record of the chains' rings tells.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Caught {
    pub(crate) of: Of,
    pub(crate) stack: Stack,
}

/// What a chain belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Of {
    Call(Call),
    Fault { address: u64 },
}

/// What was caught of a stack.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Stack {
    /// The addresses that the kernel found by frame pointers, the innermost first.
    Followed(Vec<u64>),
    Copied(Box<Copied>),
}

/// The unwinder tells its modules apart by 16 bits, so what it remembers is forgotten before they come round.
const CHANGES_MOST: u32 = 1 << 15;

/// Chains under way.
pub(crate) struct Keeper {
    images: HashMap<FileIndex, Option<Arc<Image>>>,
    cache: Cache,
    nr_changes: u32,
    frames: HashMap<(Option<FileIndex>, u64), FrameIndex>,
    chains: HashMap<Chain, ChainIndex>,
    threads: HashMap<ThreadIndex, Meeting>,
    stacks: Stacks,
    nr_events: u64,
}

/// Where a thread's events and chains meet.
#[derive(Debug, Default)]
struct Meeting {
    /// The last event that may still get a chain.
    event: Option<(Of, u64)>,
    /// A chain whose event is still to come.
    chain: Option<(Of, ChainIndex, Reach)>,
}

impl Keeper {
    /// Begins without any.
    pub(crate) fn new(options: StackOptions) -> Self {
        let StackOptions { method, fault_period, .. } = options;
        Self {
            images: HashMap::new(),
            cache: Cache::new(),
            nr_changes: 0,
            frames: HashMap::new(),
            chains: HashMap::new(),
            threads: HashMap::new(),
            stacks: Stacks { method: Some(method), fault_period, ..Stacks::default() },
            nr_events: 0,
        }
    }

    /// Notes that code, or something else, was mapped.
    pub(crate) fn map(&mut self, code: &mut Code, mapped: &faultless_trace::Mapped, files: &[File]) {
        let end = mapped.start.saturating_add(mapped.len_bytes);
        let is_code = mapped.prot & libc::PROT_EXEC as u32 != 0;
        let placed = mapped.file.filter(|_| is_code).and_then(|file| {
            let image = Arc::clone(self.image(file, files)?);
            let bias = image.bias(mapped.start, mapped.file_offset)?;
            Some(Placed { end, file, image, bias })
        });
        self.nr_changes += 1;
        if self.nr_changes.is_multiple_of(CHANGES_MOST) {
            self.cache = Cache::new();
        }
        code.map(mapped.start, end, placed);
    }

    fn image(&mut self, file: FileIndex, files: &[File]) -> Option<&Arc<Image>> {
        let read = || files.get(file as usize).and_then(|file| Image::read(&file.path, file.inode)).map(Arc::new);
        self.images.entry(file).or_insert_with(read).as_ref()
    }

    /// Takes the next event of the trace.
    pub(crate) fn pass(&mut self, event: &Event) {
        let place = self.nr_events;
        self.nr_events += 1;
        let of = match event.kind {
            EventKind::CallEnter(enter) => Of::Call(enter.call),
            EventKind::Fault(fault) => Of::Fault { address: fault.address },
            EventKind::CallExit(_) | EventKind::Exec | EventKind::Exit => {
                self.threads.remove(&event.thread);
                return;
            }
            _ => return,
        };
        let meeting = self.threads.entry(event.thread).or_default();
        match meeting.chain.take() {
            Some((met, chain, reach)) if met == of => {
                meeting.event = None;
                self.stacks.samples.push(Sample { event: place, chain, reach });
            }
            _ => meeting.event = Some((of, place)),
        }
    }

    /// Takes what was caught of a thread's stack.
    pub(crate) fn take(&mut self, thread: ThreadIndex, code: &Code, caught: &Caught) {
        let (addresses, reach) = match &caught.stack {
            Stack::Followed(addresses) => {
                let is_cut = addresses.len() >= FRAMES_MOST;
                (addresses.clone(), if is_cut { Reach::Cut } else { Reach::Whole })
            }
            Stack::Copied(copied) => code.unwind(copied, &mut self.cache),
        };
        let begins = |address: &u64| code.at(*address).is_some_and(|(placed, own)| placed.image.begins_at(own));
        let reach = if addresses.last().is_some_and(begins) { Reach::Whole } else { reach };
        let Some(chain) = self.chain(code, &addresses) else { return };
        let meeting = self.threads.entry(thread).or_default();
        match meeting.event.take() {
            Some((of, event)) if of == caught.of => self.stacks.samples.push(Sample { event, chain, reach }),
            _ => meeting.chain = Some((caught.of, chain, reach)),
        }
    }

    /// Returns the chain of these addresses, the innermost first.
    fn chain(&mut self, code: &Code, addresses: &[u64]) -> Option<ChainIndex> {
        let mut caller = None;
        for &address in addresses.iter().rev() {
            let chain = Chain { frame: self.frame(code, address), caller };
            let next = self.stacks.chains.len() as ChainIndex;
            let place = *self.chains.entry(chain).or_insert(next);
            if place == next {
                self.stacks.chains.push(chain);
            }
            caller = Some(place);
        }
        caller
    }

    fn frame(&mut self, code: &Code, address: u64) -> FrameIndex {
        let found = code.at(address);
        let (file, own) = found.map_or((None, address), |(placed, own)| (Some(placed.file), own));
        let next = self.stacks.frames.len() as FrameIndex;
        let place = *self.frames.entry((file, own)).or_insert(next);
        if place == next {
            let function = found.and_then(|(placed, own)| placed.image.function(own)).map(str::to_owned);
            self.stacks.frames.push(Frame { function, file, address: own });
        }
        place
    }

    /// Returns the chains of all events, of which so many more found no room.
    pub(crate) fn finish(mut self, lost: u64) -> Stacks {
        self.stacks.samples.sort_by_key(|sample| sample.event);
        self.stacks.lost = lost;
        self.stacks
    }
}

impl fmt::Debug for Keeper {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Keeper of {} chains", self.stacks.chains.len())
    }
}

#[cfg(test)]
mod tests;
