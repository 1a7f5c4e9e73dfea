//! The order of a session: which arm runs when.
//!
//! # Guarantee
//! * On this machine one run follows the other. Each turn has a run of every arm, in an order that is drawn anew, so no
//!   arm has the better hour.
//! * On a simulated machine each arm runs under each seed, several at once; the results do not depend on how many.

use std::ops::Range;

use faultless_results::stats::Random;

use crate::simulated::in_parallel;

/// Returns the runs of a session on this machine, as turn and arm. Called by whoever compares arms here.
pub fn in_turns(nr_turns: usize, nr_arms: usize, seed: u64) -> impl Iterator<Item = (usize, usize)> {
    let mut random = Random::new(seed);
    (0..nr_turns).flat_map(move |turn| {
        let mut order: Vec<usize> = (0..nr_arms).collect();
        random.shuffle(&mut order);
        order.into_iter().map(move |arm| (turn, arm))
    })
}

/// Returns the runs of a session on a simulated machine, as arm and seed.
pub fn under_seeds(nr_arms: usize, seeds: impl IntoIterator<Item = u64>) -> Vec<(usize, u64)> {
    seeds.into_iter().flat_map(|seed| (0..nr_arms).map(move |arm| (arm, seed))).collect()
}

/// Runs `run` for each of `nr_arms` arms under each seed, `jobs` at a time; returns each arm's results, in the order of
/// the seeds. Called by whoever compares arms; no run begins once `is_over` says yes, and `ended` is told how many runs
/// have ended.
pub fn arms_in_parallel<R: Send, E: Send>(
    nr_arms: usize,
    seeds: Range<u64>,
    jobs: usize,
    is_over: impl Fn() -> bool + Sync,
    run: impl Fn(usize, u64) -> Result<R, E> + Sync,
    mut ended: impl FnMut(usize),
) -> Result<Vec<Vec<R>>, E> {
    let tasks = under_seeds(nr_arms, seeds);
    let runs = in_parallel(jobs, &tasks, is_over, |&(arm, seed)| run(arm, seed), |done, _| ended(done));
    let mut results: Vec<Vec<R>> = (0..nr_arms).map(|_| Vec::new()).collect();
    for (run, (arm, _)) in runs.into_iter().zip(tasks) {
        results[arm].extend(run.transpose()?);
    }
    Ok(results)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering};

    #[test]
    fn each_turn_has_every_arm_in_an_order_of_its_own() {
        let runs: Vec<(usize, usize)> = in_turns(20, 3, 7).collect();
        let orders: Vec<Vec<usize>> = runs.chunks(3).map(|turn| turn.iter().map(|&(_, arm)| arm).collect()).collect();
        assert!(runs.iter().enumerate().all(|(place, &(turn, _))| turn == place / 3));
        assert!(orders.iter().all(|order| (0..3).all(|arm| order.contains(&arm))));
        assert!(orders.iter().any(|order| *order != orders[0]), "the order is drawn anew");
        assert!(in_turns(20, 3, 7).eq(runs), "by the seed");
    }

    #[test]
    fn each_arm_has_its_runs_in_the_order_of_the_seeds_and_the_first_error_counts() {
        let run = |arm: usize, seed: u64| Ok::<_, ()>((arm, seed));
        let results = arms_in_parallel(2, 5..8, 3, || false, run, |_| ());
        assert_eq!(results, Ok(vec![vec![(0, 5), (0, 6), (0, 7)], vec![(1, 5), (1, 6), (1, 7)]]));
        let nr_asked = AtomicUsize::new(0);
        let is_over = || nr_asked.fetch_add(1, Ordering::Relaxed) == 3;
        let results = arms_in_parallel(2, 5..8, 1, is_over, run, |_| ());
        assert_eq!(results, Ok(vec![vec![(0, 5), (0, 6)], vec![(1, 5)]]), "a run that was not made is left out");
        let failing = |arm: usize, seed: u64| if seed > 5 { Err((arm, seed)) } else { Ok(()) };
        assert_eq!(arms_in_parallel(2, 5..8, 1, || false, failing, |_| ()), Err((0, 6)));
    }
}
