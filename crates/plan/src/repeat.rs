//! A plan many times at once: as many copies of the recorded program, beside each other.
//!
//! # Guarantee
//! Copies share what programs share that know nothing of each other: files that nobody stores to. Spaces, shared
//! memory, and the order of threads are each copy's own.

use super::memory_calls::MemoryCall;
use super::regions::Backing;
use super::space_users::Departure;
use super::steps::Restoration;
use super::{Action, Before, Plan, Program, Step};

/// Where a copy's numbers begin.
#[derive(Clone, Copy)]
struct Offset {
    thread: u32,
    gate: u32,
    space: u32,
    call: u32,
    restoration: u32,
    copy: u32,
}

impl Plan {
    /// Returns a plan of `copies` of this one.
    pub fn repeated(&self, copies: usize) -> Self {
        let mut all = Self {
            nr_spaces: self.nr_spaces * copies as u32,
            nr_gates: self.nr_gates * copies as u32,
            objects: Vec::new(),
            programs: Vec::new(),
            roots: Vec::new(),
            calls: Vec::new(),
            restorations: Vec::new(),
            arounds: self.arounds.clone(),
            totals: self.totals.clone(),
            surprises: self.surprises.clone(),
            ..*self
        };
        let copies_u64 = copies as u64;
        all.demand.own_pages *= copies_u64;
        all.demand.made_pages *= copies_u64;
        all.demand.table_pages *= copies_u64;
        all.demand.object_pages *= copies_u64;
        all.demand.areas *= copies_u64;
        (0..copies as u32).for_each(|copy| self.add_copy(&mut all, copy));
        all
    }

    /// Lets the copies, of which this plan has so many, begin one after the other, evenly over a time.
    pub fn spread_starts(&mut self, copies: usize, over_ns: u64) {
        let nr_roots = (self.roots.len() / copies.max(1)).max(1);
        for (place, &root) in self.roots.iter().enumerate() {
            let mut steps = self.programs[root as usize].steps.iter_mut();
            // What stood before the first event is made in no time of the program's.
            if let Some(first) = steps.find(|step| !matches!(step.action, Action::Restore(_))) {
                first.work_ns += over_ns * (place / nr_roots) as u64 / copies as u64;
            }
        }
    }

    /// Returns how long all threads compute together.
    pub fn computing_ns(&self) -> u64 {
        self.programs.iter().flat_map(|program| &program.steps).map(|step| step.work_ns).sum()
    }

    fn add_copy(&self, all: &mut Self, copy: u32) {
        let offset = Offset {
            thread: copy * self.programs.len() as u32,
            gate: copy * self.nr_gates,
            space: copy * self.nr_spaces,
            call: copy * self.calls.len() as u32,
            restoration: copy * self.restorations.len() as u32,
            copy,
        };
        all.roots.extend(self.roots.iter().map(|root| root + offset.thread));
        all.programs.extend(self.programs.iter().map(|program| self.copied(program, offset)));
        all.objects.extend(self.objects.iter().map(|&object| {
            // Kept for all copies: several map it now.
            super::ObjectPlan { nr_maps: object.nr_maps * 2, ..object }
        }));
        all.calls.extend(self.calls.iter().map(|call| {
            let mut call = *call;
            self.rename_object(&mut call.memory_call, copy);
            call
        }));
        all.restorations.extend(self.restorations.iter().map(|restoration| {
            let mut copied = Restoration { space: restoration.space + offset.space, ..restoration.clone() };
            copied.memory_calls.iter_mut().for_each(|memory_call| self.rename_object(memory_call, copy));
            copied
        }));
    }

    fn rename_object(&self, memory_call: &mut MemoryCall, copy: u32) {
        if let MemoryCall::Map(mapping) = memory_call
            && let Backing::Object { object, .. } = &mut mapping.backing
        {
            *object = self.object(*object, copy);
        }
    }

    /// Returns a copy's number of an object: the first copy's for files that nobody stores to.
    fn object(&self, object: u32, copy: u32) -> u32 {
        let plan = &self.objects[object as usize];
        if plan.is_memory || plan.has_stores { object + copy * self.objects.len() as u32 } else { object }
    }

    fn copied(&self, program: &Program, offset: Offset) -> Program {
        Program {
            steps: program.steps.iter().map(|step| self.moved(step, offset)).collect(),
            waits: program.waits.iter().map(|gate| gate + offset.gate).collect(),
            home: program.home.map(|space| space + offset.space),
        }
    }

    fn moved(&self, step: &Step, offset: Offset) -> Step {
        let leave = |old: Departure| Departure { space: old.space + offset.space, ..old };
        let action = match step.action {
            Action::Call(call) => Action::Call(call + offset.call),
            Action::Restore(place) => Action::Restore(place + offset.restoration),
            Action::Fork { child, space } => Action::Fork { child: child + offset.thread, space: space + offset.space },
            Action::Spawn { child } => Action::Spawn { child: child + offset.thread },
            Action::Renew { old, new } => Action::Renew { old: old.map(leave), new: new + offset.space },
            Action::Leave(old) => Action::Leave(leave(old)),
            Action::Access(mut touch) => {
                if let Before::Content { object, .. } = &mut touch.before {
                    *object = self.object(*object, offset.copy);
                }
                Action::Access(touch)
            }
            Action::File { object, offset: from, len_bytes } => {
                Action::File { object: self.object(object, offset.copy), offset: from, len_bytes }
            }
            Action::Pass => Action::Pass,
        };
        Step { gate: step.gate.map(|gate| gate + offset.gate), action, ..*step }
    }
}
