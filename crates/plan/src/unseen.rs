//! Memory that was changed, or kept from its program, by what a replay does not do.
//!
//! # Guarantee
//! A fault that this may explain is not held to be a mismatch, nor is a later one there until something is mapped anew.
//! All other faults are as strict as ever.
//!
//! | what | the recording shows | open from then on |
//! |---|---|---|
//! | protection keys, which a replay does not have | `pkey_mprotect` with a key; memory that may be executed alone, which has a key where the processor has any; a fault that tells of one | all faults there: a key may refuse what the rights allow, and a refused access makes no page |
//! | `userfaultfd`, `io_uring` | that the process has one, and not what it asks of it: pages that come, move, go, or are protected from stores | what the events before do not explain, and then that page |
//! | pages that the kernel pins for files opened with `O_DIRECT`, or for pipes: absent ones come, without a fault (mm/gup.c) | the opening, or `vmsplice` | the same |
//! | `process_madvise` that drops pages | that it was called, and not of which process's pages | the same, in every process |
//! | the end of a file under locked memory that grew: the pages behind it are not made (mm/mremap.c, `mm_populate`) | `mremap` of it | all faults on what it grew by |
//! | a file that was cut: its pages go, and private copies of them too (mm/memory.c, `unmap_mapping_range`) | `ftruncate`, `truncate`, `creat`, opening with `O_TRUNC`, or `fallocate` that collapses or inserts, maybe of the file | what the events before do not explain of a page that was there, and then all faults on that mapping: a load maps its neighbours, which may be copies that went |

use faultless_abi::Prot;
use faultless_trace::{Call, CallEnter};

use super::build::Builder;
use super::decode::is_error;
use super::faults::FaultContext;
use super::ids::{EventIndex, SpaceIndex};
use super::memory_calls::MemoryCall;
use super::regions::{PAGE, Sharing, page_floor};
use super::windows::{drops, span};

/// What Linux on x86-64 calls so.
const O_TRUNC: u64 = 0o1000;
const O_DIRECT: u64 = 0o40000;
/// `FALLOC_FL_COLLAPSE_RANGE` and `FALLOC_FL_INSERT_RANGE`.
const COLLAPSE_OR_INSERT: u64 = 0x28;

impl Builder<'_> {
    /// Notes what a call leaves open.
    pub(super) fn note_unseen(&mut self, place: EventIndex, enter: &CallEnter, memory_call: &MemoryCall) {
        let Some(result) = self.windows.calls[&place].result.filter(|&result| !is_error(result)) else { return };
        let [start, len, third, fourth, ..] = enter.args;
        let is_executed_alone = Prot::from_bits_retain(third) & Prot::RIGHTS == Prot::EXEC;
        let (now, space) = (self.now, self.space_of(place));
        if enter.call == Call::ProcessMadvise && drops(fourth) {
            self.spaces.iter_mut().for_each(|state| state.is_reached_into = true);
        }
        let state = &mut self.spaces[space as usize];
        match enter.call {
            Call::Userfaultfd | Call::IoUringSetup => state.is_reached_into = true,
            Call::Vmsplice => state.is_reached_into = true,
            Call::Open | Call::Openat => {
                let flags = if enter.call == Call::Open { len } else { third };
                state.is_reached_into |= flags & O_DIRECT != 0;
                self.file_cut_at = if flags & O_TRUNC != 0 { Some(now) } else { self.file_cut_at };
            }
            Call::Ftruncate | Call::Truncate | Call::Creat => self.file_cut_at = Some(now),
            Call::Fallocate if len & COLLAPSE_OR_INSERT != 0 => self.file_cut_at = Some(now),
            Call::PkeyMprotect if is_executed_alone || fourth as i32 > 0 => state.leave_unlike(span(start, len)),
            Call::Mprotect if is_executed_alone => state.leave_unlike(span(start, len)),
            Call::Mmap if is_executed_alone => state.leave_unlike(span(result as u64, len)),
            _ => {}
        }
        if let MemoryCall::Remap { old, old_len, new_len, .. } = *memory_call
            && state.is_unlike_in(&span(old, old_len))
        {
            state.leave_unlike(span(result as u64, new_len));
        }
    }

    /// Returns whether a fault says nothing of a replay's memory.
    pub(super) fn is_unlike(&mut self, context: &FaultContext) -> bool {
        let state = &mut self.spaces[context.space as usize];
        if context.fault.is_by_key()
            && let Some(region) = context.region
        {
            state.leave_unlike(region.start..region.end);
        }
        state.unlike.contains(&context.fault.address)
    }

    /// Notes that a page is another one here, if something unseen explains a fault that nothing else does.
    pub(super) fn note_unexplained(&mut self, context: &FaultContext) {
        let page = page_floor(context.fault.address);
        let unlike = match context.region.filter(|_| self.is_cut(context)) {
            Some(region) => region.start..region.end,
            None if self.is_reached_into(context.space) => page..page.saturating_add(PAGE),
            None => return,
        };
        self.spaces[context.space as usize].leave_unlike(unlike);
    }

    /// Returns whether a process may have others change its memory unseen.
    pub(super) fn is_reached_into(&self, space: SpaceIndex) -> bool {
        self.spaces[space as usize].is_reached_into
    }

    /// Returns whether a page that a file's private mapping had may have gone since, because a file was cut.
    pub(super) fn is_cut(&self, context: &FaultContext) -> bool {
        let was_there = context.page.content.is_mapped() && context.object_sharing() == Some(Sharing::Private);
        was_there && self.file_cut_at.is_some_and(|cut_at| context.page.since <= cut_at)
    }
}
