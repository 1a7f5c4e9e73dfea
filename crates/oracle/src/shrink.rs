//! A difference made small: the shortest sequence that still shows it.
//!
//! # Guarantee
//! What comes out differs as what went in did, and none of its operations can be left out, nor any argument be made
//! simpler in the ways that are tried here. (Delta debugging: Zeller and Hildebrandt 2002.)

use crate::kernel::{Bounds, Kind, Op, PAGE, Sequence};

use super::finding::Finding;

/// Makes a sequence small; `differs` runs one and says what differs.
pub fn shrink(
    sequence: &Sequence,
    finding: &Finding,
    differs: &mut dyn FnMut(&Sequence) -> Option<Finding>,
) -> (Sequence, Finding) {
    let mut best = (sequence.clone(), finding.clone());
    let mut attempt = |candidate: Sequence, best: &mut (Sequence, Finding)| {
        if candidate == best.0 || candidate.harmful().is_some() {
            return false;
        }
        match differs(&candidate) {
            Some(found) if found.is_like(&best.1) => {
                *best = (candidate, found);
                true
            }
            _ => false,
        }
    };
    if let Some(place) = finding.place() {
        let mut cut = best.0.clone();
        cut.ops.truncate(end_of(&cut.ops, place));
        attempt(cut, &mut best);
    }
    loop {
        let before = best.0.clone();
        leave_out(&mut best, &mut attempt);
        simplify(&mut best, &mut attempt);
        if best.0 == before {
            return best;
        }
    }
}

/// Tries a candidate, and keeps it if it differs alike.
type Attempt<'a> = dyn FnMut(Sequence, &mut (Sequence, Finding)) -> bool + 'a;

/// Returns the place behind an operation and those that belong to it.
fn end_of(ops: &[Op], place: usize) -> usize {
    let own = ops.get(place).filter(|op| op.call.makes_process()).map_or(0, |op| op.args[0] as usize);
    (place + 1).saturating_add(own).min(ops.len())
}

/// Leaves out ever smaller parts.
fn leave_out(best: &mut (Sequence, Finding), attempt: &mut Attempt<'_>) {
    let mut size = best.0.ops.len().div_ceil(2).max(1);
    loop {
        let mut start = 0;
        while start < best.0.ops.len() {
            let candidate = without(&best.0, start, size);
            if !attempt(candidate, best) {
                start += size;
            }
        }
        if size == 1 {
            return;
        }
        size = size.div_ceil(2);
    }
}

/// Returns the sequence without some operations; children keep the operations that are left of theirs.
fn without(sequence: &Sequence, start: usize, size: usize) -> Sequence {
    let gone = start..(start + size).min(sequence.ops.len());
    let mut shorter = sequence.clone();
    for (place, op) in shorter.ops.iter_mut().enumerate() {
        if op.call.makes_process() {
            let inner = place + 1..end_of(&sequence.ops, place);
            let lost = gone.clone().filter(|at| inner.contains(at)).count() as u64;
            op.args[0] = (inner.len() as u64).saturating_sub(lost);
        }
    }
    shorter.ops.drain(gone);
    shorter
}

/// Tries simpler conditions and arguments.
fn simplify(best: &mut (Sequence, Finding), attempt: &mut Attempt<'_>) {
    attempt(Sequence { bounds: Bounds::default(), ..best.0.clone() }, best);
    for place in 0..best.0.ops.len() {
        for argument in 0..best.0.ops[place].call.arguments().len() {
            let (op, kind) = (best.0.ops[place], best.0.ops[place].call.arguments()[argument].1);
            for simpler in simpler(kind, op.args[argument]) {
                let mut candidate = best.0.clone();
                candidate.ops[place].args[argument] = simpler;
                if attempt(candidate, best) {
                    break;
                }
            }
        }
        if best.0.ops[place].thread != 0 {
            let mut candidate = best.0.clone();
            candidate.ops[place] = Op { thread: 0, ..candidate.ops[place] };
            attempt(candidate, best);
        }
    }
}

/// Returns simpler values of an argument, the simplest first.
fn simpler(kind: Kind, value: u64) -> Vec<u64> {
    let values = match kind {
        Kind::Address => vec![value & !(PAGE - 1)],
        Kind::Length => vec![PAGE, value.next_multiple_of(PAGE.min(value.max(1))), (value / 2) & !(PAGE - 1)],
        Kind::Rights => vec![3, 1],
        Kind::Number => vec![0, 1, value / 2],
        Kind::MapFlags | Kind::RemapFlags | Kind::SyncFlags | Kind::LockAllFlags => {
            (0..64).filter(|bit| value >> bit & 1 == 1).map(|bit| value & !(1 << bit)).collect()
        }
        Kind::Advice | Kind::LockFlags | Kind::File => vec![],
    };
    // What stands behind the value itself is no simpler than it: otherwise two values could take turns for ever.
    values.into_iter().take_while(|&simpler| simpler != value).collect()
}

/// Returns a test that can be pasted, and the line that replays the sequence.
pub fn pasteable(sequence: &Sequence, finding: &Finding, design: &str) -> String {
    let mut name = String::from("differs");
    for op in sequence.ops.iter().rev().take(2) {
        name = format!("{}_{name}", op.call.name());
    }
    let story: String = finding.to_string().lines().map(|line| format!("    // {line}\n")).collect();
    format!(
        "#[test]\nfn {name}() {{\n{story}    same_as_linux(\"{sequence}\");\n}}\n\nreplay with: faultless check oracle --design {design} --replay '{sequence}'\n"
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernel::Call;

    fn finding(place: usize) -> Finding {
        Finding::Outcome { place, kernel: String::new(), vm: String::new() }
    }

    #[test]
    fn only_what_matters_is_left() {
        let line = "root lock=0x1000; look; mmap w+0x0 0x3000 rw private|anon|fixed|populate - 0x0; look; fork 0x2; store w+0x5 0x7; look; munmap w+0x0 0x1000";
        let sequence: Sequence = line.parse().expect("a sequence");
        // It differs where a mapping is stored to.
        let mut differs = |candidate: &Sequence| {
            let has_map = candidate.ops.iter().position(|op| op.call == Call::Mmap);
            let store = candidate.ops.iter().position(|op| op.call == Call::Store);
            has_map.zip(store).filter(|(map, store)| map < store).map(|(_, store)| finding(store))
        };
        let (small, _) = shrink(&sequence, &finding(4), &mut differs);
        assert_eq!(small.ops.iter().map(|op| op.call).collect::<Vec<_>>(), [Call::Mmap, Call::Store], "{small}");
        assert_eq!((small.bounds, small.ops[0].args[1]), (Bounds::default(), PAGE));
        let text = pasteable(&small, &finding(1), "mmap-sem");
        assert!(text.contains("fn mmap_store_differs()") && text.contains(&format!("--replay '{small}'")));
    }

    #[test]
    fn children_keep_what_is_left_of_theirs() {
        let sequence: Sequence = "root; look; fork 3; look; load w+0x0; look; look".parse().expect("a sequence");
        assert_eq!(without(&sequence, 2, 2).to_string(), "root; look; fork 0x1; look; look");
        assert_eq!(without(&sequence, 0, 1).to_string(), "root; fork 0x3; look; load w+0x0; look; look");
    }
}
