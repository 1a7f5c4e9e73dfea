//! Independent runs on several of the host's threads.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc;
use std::thread;

/// Runs `run` for each task, `jobs` at a time; returns the results in the tasks' order.
///
/// `is_over` is asked before each task: once it says yes, those that are left are not run, and have no result. `ended`
/// is told, on the calling thread, how many have ended whenever one does, and which.
pub fn in_parallel<T: Sync, R: Send>(
    jobs: usize,
    tasks: &[T],
    is_over: impl Fn() -> bool + Sync,
    run: impl Fn(&T) -> R + Sync,
    mut ended: impl FnMut(usize, &T),
) -> Vec<Option<R>> {
    let next = AtomicUsize::new(0);
    let mut results: Vec<Option<R>> = tasks.iter().map(|_| None).collect();
    let (sender, receiver) = mpsc::channel();
    thread::scope(|scope| {
        for _ in 0..jobs.clamp(1, tasks.len().max(1)) {
            let (sender, next, is_over, run) = (sender.clone(), &next, &is_over, &run);
            scope.spawn(move || {
                // Relaxed: each place is drawn once.
                while !is_over()
                    && let Some((place, task)) = draw(tasks, next.fetch_add(1, Ordering::Relaxed))
                {
                    // The receiver waits for all of us.
                    let _ = sender.send((place, run(task)));
                }
            });
        }
        drop(sender);
        for (done, (place, result)) in receiver.iter().enumerate() {
            results[place] = Some(result);
            ended(done + 1, &tasks[place]);
        }
    });
    results
}

fn draw<T>(tasks: &[T], place: usize) -> Option<(usize, &T)> {
    tasks.get(place).map(|task| (place, task))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_task_begins_once_it_is_over() {
        let nr_begun = AtomicUsize::new(0);
        let is_over = || nr_begun.load(Ordering::Relaxed) >= 3;
        let run = |&task: &u64| {
            nr_begun.fetch_add(1, Ordering::Relaxed);
            task
        };
        let results = in_parallel(1, &[5, 6, 7, 8, 9], is_over, run, |_, _| ());
        assert_eq!(results, [Some(5), Some(6), Some(7), None, None]);
    }

    #[test]
    fn results_stand_in_the_tasks_order_however_many_run_at_once() {
        let tasks: Vec<u64> = (0..100).collect();
        for jobs in [0, 1, 3, 200] {
            let mut seen = 0;
            let results = in_parallel(jobs, &tasks, || false, |&task| task * task, |done, _| seen = done);
            assert!(results.iter().enumerate().all(|(place, &result)| result == Some((place * place) as u64)));
            assert_eq!(seen, 100);
        }
        assert!(in_parallel(2, &[] as &[u64], || false, |&task| task, |_, _| ()).is_empty());
    }
}
