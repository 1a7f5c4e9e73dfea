//! Independent runs on several of the host's threads.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc;
use std::thread;

/// Runs `run` for each task, `jobs` at a time; returns the results in the tasks' order.
///
/// `ended` is told, on the calling thread, how many have ended whenever one does, and which.
pub fn in_parallel<T: Sync, R: Send>(
    jobs: usize,
    tasks: &[T],
    run: impl Fn(&T) -> R + Sync,
    mut ended: impl FnMut(usize, &T),
) -> Vec<R> {
    let next = AtomicUsize::new(0);
    let mut results: Vec<Option<R>> = tasks.iter().map(|_| None).collect();
    let (sender, receiver) = mpsc::channel();
    thread::scope(|scope| {
        for _ in 0..jobs.clamp(1, tasks.len().max(1)) {
            let (sender, next, run) = (sender.clone(), &next, &run);
            scope.spawn(move || {
                // Relaxed: each place is drawn once.
                while let Some((place, task)) = draw(tasks, next.fetch_add(1, Ordering::Relaxed)) {
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
    results.into_iter().map(|result| result.expect("each task ran, or its panic was passed on")).collect()
}

fn draw<T>(tasks: &[T], place: usize) -> Option<(usize, &T)> {
    tasks.get(place).map(|task| (place, task))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_stand_in_the_tasks_order_however_many_run_at_once() {
        let tasks: Vec<u64> = (0..100).collect();
        for jobs in [0, 1, 3, 200] {
            let mut seen = 0;
            let results = in_parallel(jobs, &tasks, |&task| task * task, |done, _| seen = done);
            assert!(results.iter().enumerate().all(|(place, &result)| result == (place * place) as u64));
            assert_eq!(seen, 100);
        }
        assert!(in_parallel(2, &[] as &[u64], |&task| task, |_, _| ()).is_empty());
    }
}
