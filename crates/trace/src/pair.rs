//! Calls as windows: which exit belongs to which enter.
//!
//! # Guarantee
//! for a trace that obeys I4, every exit is given to the enter that it ends

use std::collections::HashMap;

use crate::event::{Event, EventKind};

/// Returns, for each event, the place of its partner: an enter's exit, an exit's enter, `None` for all others and for
/// calls that never returned.
pub fn pair_calls(events: &[Event]) -> Vec<Option<usize>> {
    let mut partners = vec![None; events.len()];
    let mut open = HashMap::new();
    for (place, event) in events.iter().enumerate() {
        match event.kind {
            EventKind::CallEnter(_) => {
                open.insert(event.thread, place);
            }
            EventKind::CallExit(_) => {
                if let Some(enter) = open.remove(&event.thread) {
                    partners[enter] = Some(place);
                    partners[place] = Some(enter);
                }
            }
            _ => {}
        }
    }
    partners
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Call, CallEnter, CallExit};

    fn event(thread: u32, kind: EventKind) -> Event {
        Event { thread, time_ns: 0, on_cpu_ns: 0, kind }
    }

    #[test]
    fn calls_of_two_threads_overlap_and_one_never_returns() {
        let enter = |thread| event(thread, EventKind::CallEnter(CallEnter { call: Call::Brk, args: [0; 6] }));
        let exit = |thread| event(thread, EventKind::CallExit(CallExit { call: Call::Brk, result: 0 }));
        let events = [enter(0), enter(1), exit(0), event(0, EventKind::SwitchIn), enter(0), exit(0)];
        let partners = pair_calls(&events);
        assert_eq!(partners, vec![Some(2), None, Some(0), None, Some(5), Some(4)]);
    }
}
