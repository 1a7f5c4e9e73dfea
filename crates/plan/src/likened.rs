//! Calls that map or unmap memory under another name, as the mmap or munmap that does the same.
//!
//! # Guarantee
//! Whatever asks when a call came, or beside which others, sees `mmap` and `munmap` alone. What such a call is executed
//! as, and what its result is compared with, [`super::decode`] says.

use faultless_abi::{Errno, MapFlags, Prot};
use faultless_trace::{Call, CallEnter, EventKind, Mapped, Trace};
use rustc_hash::FxHashMap;

use super::ids::EventIndex;

/// The flag of `shmat` that lets it take the place of what is there.
const SHM_REMAP: u64 = 0o40000;

/// By enter's event: the call as it is likened, and what that returned.
pub type Likened = FxHashMap<EventIndex, (CallEnter, i64)>;

/// Finds such calls among those of a trace. `end_of` says of a call what it returned, and which event inside it told of
/// a mapping.
pub fn likened(trace: &Trace, end_of: impl Fn(EventIndex) -> (Option<i64>, Option<EventIndex>)) -> Likened {
    let mut likened = Likened::default();
    let areas = trace.snapshot.spaces.iter().flat_map(|space| &space.areas);
    let mut len_at: FxHashMap<u64, u64> = areas.map(|area| (area.start, area.end - area.start)).collect();
    for (place, event) in (0..).zip(&trace.events) {
        let EventKind::CallEnter(enter) = event.kind else { continue };
        let (result, told) = end_of(place);
        let Some(result) = result.filter(|&result| Errno::of_result(result).is_none()) else { continue };
        let told = told.and_then(|event| match trace.events[event as usize].kind {
            EventKind::Mapped(mapped) => Some(mapped),
            _ => None,
        });
        let other = match (enter.call, told) {
            (Call::Shmat | Call::IoSetup, Some(told)) => {
                let start = if enter.call == Call::Shmat { result as u64 } else { told.start };
                len_at.insert(start, told.len_bytes);
                let is_fixed = enter.call == Call::Shmat && enter.args[2] & SHM_REMAP != 0;
                mapping(start, told, is_fixed)
            }
            (Call::Shmdt | Call::IoDestroy, _) => {
                let start = enter.args[0];
                let Some(&len) = len_at.get(&start) else { continue };
                (CallEnter { call: Call::Munmap, args: [start, len, 0, 0, 0, 0] }, 0)
            }
            (Call::MapShadowStack, _) => {
                let rights = (Prot::READ | Prot::WRITE).bits();
                let flags = (MapFlags::PRIVATE | MapFlags::ANONYMOUS).bits();
                (CallEnter { call: Call::Mmap, args: [0, enter.args[1], rights, flags, 0, 0] }, result)
            }
            _ => continue,
        };
        likened.insert(place, other);
    }
    likened
}

fn mapping(start: u64, told: Mapped, is_fixed: bool) -> (CallEnter, i64) {
    let hint = if is_fixed { start } else { 0 };
    let flags = MapFlags::SHARED | if is_fixed { MapFlags::FIXED } else { MapFlags::empty() };
    let args = [hint, told.len_bytes, told.prot.into(), flags.bits(), 0, told.file_offset];
    (CallEnter { call: Call::Mmap, args }, start as i64)
}
