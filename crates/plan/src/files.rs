//! Calls that read files and write into them, added to a plan whose recording has none.
//!
//! # Guarantee
//! The recorded steps, and their order, stay as they are. Each call stands in its thread's life where it was seen, by
//! the share of the steps that lies before it; each file is an object that no recorded step maps. Calls do not wait for
//! each other.

use faultless_trace::ThreadIndex;

use super::regions::PAGE;
use super::{Action, ObjectPlan, Plan, Step};

/// A call that moves bytes between a file and its caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileCall<'a> {
    /// Whose.
    pub thread: ThreadIndex,
    /// How much of the thread's life since its last exec had passed, in thousandths.
    pub permille: u32,
    /// Whether it writes.
    pub is_write: bool,
    /// The file's name.
    pub file: &'a str,
    /// From which byte on.
    pub offset: u64,
    /// How many.
    pub len_bytes: u32,
}

impl Plan {
    /// Returns the plan with these calls, each thread's in order.
    #[must_use]
    pub fn with_file_calls(mut self, calls: &[FileCall<'_>]) -> Self {
        let mut files: Vec<&str> = Vec::new();
        let first_object = self.objects.len();
        let mut added: Vec<Vec<(usize, Step)>> = vec![Vec::new(); self.programs.len()];
        let space_users: Vec<_> = self.programs.iter().map(|program| life(&program.steps)).collect();
        let event = self.totals.events as u32;
        for call in calls {
            let known = files.iter().position(|file| *file == call.file);
            let place = known.unwrap_or_else(|| {
                files.push(call.file);
                self.objects.push(ObjectPlan { nr_maps: 2, ..ObjectPlan::default() });
                files.len() - 1
            });
            let object = &mut self.objects[first_object + place];
            object.has_stores |= call.is_write;
            self.demand.object_pages += u64::from(call.len_bytes).div_ceil(PAGE) + 1;
            let (object, offset) = ((first_object + place) as u32, call.offset);
            let action = Action::File { object, offset, len_bytes: call.len_bytes };
            let life = &space_users[call.thread as usize];
            let before = life.start + life.len() * call.permille.min(1000) as usize / 1000;
            added[call.thread as usize].push((before, Step { event, nr_waits: 0, work_ns: 0, gate: None, action }));
        }
        for (program, added) in self.programs.iter_mut().zip(added) {
            program.steps = merged(std::mem::take(&mut program.steps), added);
        }
        self
    }
}

/// Returns the places of a thread's steps between its last exec and its end.
fn life(steps: &[Step]) -> std::ops::Range<usize> {
    let begin = steps.iter().rposition(|step| matches!(step.action, Action::Renew { .. })).map_or(0, |place| place + 1);
    let end = steps.iter().rposition(|step| matches!(step.action, Action::Leave(_))).unwrap_or(steps.len());
    begin..end.max(begin)
}

/// Returns the steps with those that are added, each before the step at its place.
fn merged(steps: Vec<Step>, added: Vec<(usize, Step)>) -> Vec<Step> {
    let mut added = added.into_iter().peekable();
    let mut all = Vec::with_capacity(steps.len() + added.len());
    for (place, step) in steps.into_iter().enumerate() {
        while let Some((_, file)) = added.next_if(|(before, _)| *before <= place) {
            all.push(file);
        }
        all.push(step);
    }
    all.extend(added.map(|(_, file)| file));
    all
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::space_users::Departure;
    use crate::{Program, Totals};

    fn step(action: Action) -> Step {
        Step { event: 0, nr_waits: 0, work_ns: 0, gate: None, action }
    }

    #[test]
    fn calls_stand_between_exec_and_end_at_their_share_of_the_steps() {
        let leave = Action::Leave(Departure { space: 0, is_last: true });
        let mut actions = vec![Action::Pass, Action::Renew { old: None, new: 0 }];
        actions.extend([Action::Pass; 10]);
        actions.push(leave);
        let program = Program { steps: actions.into_iter().map(step).collect(), ..Program::default() };
        let plan =
            Plan { programs: vec![program], totals: Totals { events: 13, ..Totals::default() }, ..Plan::default() };
        let call =
            |permille, file, is_write| FileCall { thread: 0, permille, is_write, file, offset: 100, len_bytes: 5000 };
        let plan = plan.with_file_calls(&[call(0, "a", false), call(500, "b", true), call(1000, "a", false)]);
        let places: Vec<(usize, u32)> = plan.programs[0]
            .steps
            .iter()
            .enumerate()
            .filter_map(|(place, step)| match step.action {
                Action::File { object, .. } => Some((place, object)),
                _ => None,
            })
            .collect();
        assert_eq!(places, [(2, 0), (8, 1), (14, 0)]);
        assert_eq!(plan.programs[0].steps.len(), 16);
        assert_eq!(plan.programs[0].steps.last().map(|step| step.action), Some(leave));
        assert_eq!(plan.objects.iter().map(|object| object.has_stores).collect::<Vec<_>>(), [false, true]);
    }
}
