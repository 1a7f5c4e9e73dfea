//! A result set's figures by workload and by design: what verdicts and plots are made of.

use crate::{Measured, ResultSet};

/// What one metric of one workload showed, under each design and on each number of CPUs.
#[derive(Clone, Debug)]
pub struct Group<'a> {
    /// The workload, with what tells it from others of its name.
    pub name: String,
    /// Its figures, in the order of the set.
    pub arms: Vec<&'a Measured>,
}

/// Returns the figures of a metric by workload.
pub fn groups<'a>(set: &'a ResultSet, metric: &str) -> Vec<Group<'a>> {
    let mut found: Vec<Group<'a>> = Vec::new();
    for result in set.results.iter().filter(|result| result.metric == metric && !result.samples.is_empty()) {
        let name = group_name(set, result);
        match found.iter_mut().find(|group| group.name == name) {
            Some(group) => group.arms.push(result),
            None => found.push(Group { name, arms: vec![result] }),
        }
    }
    found
}

fn group_name(set: &ResultSet, result: &Measured) -> String {
    let has_both = set.results.iter().any(|other| other.workload == result.workload && other.mode != result.mode);
    if has_both { format!("{} ({})", result.workload, result.mode) } else { result.workload.clone() }
}

/// Returns what a design is called: with its semaphore, where a set has several beneath one design.
pub fn arm_name(set: &ResultSet, result: &Measured) -> String {
    let is_other = |other: &Measured| {
        other.design == result.design && other.semaphore.is_some() && other.semaphore != result.semaphore
    };
    match &result.semaphore {
        Some(semaphore) if set.results.iter().any(is_other) => format!("{}/{semaphore}", result.design),
        _ => result.design.clone(),
    }
}

/// Returns the numbers of CPUs of a group, in order.
pub fn cpus(group: &Group<'_>) -> Vec<usize> {
    let mut cpus: Vec<usize> = group.arms.iter().map(|arm| arm.cpus).collect();
    cpus.sort_unstable();
    cpus.dedup();
    cpus
}

/// Returns another metric of the same runs.
pub fn beside<'a>(set: &'a ResultSet, arm: &Measured, metric: &str) -> Option<&'a Measured> {
    set.results.iter().find(|other| {
        other.metric == metric
            && (&other.workload, other.mode, &other.design, &other.semaphore, other.cpus)
                == (&arm.workload, arm.mode, &arm.design, &arm.semaphore, arm.cpus)
    })
}
