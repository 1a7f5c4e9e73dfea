//! Shortening a list that makes something fail.

/// Returns a shorter list, or the same, that still fails: of which no single item can be left out.
///
/// Leaves out runs of items, long ones first. `fails` is asked for each candidate.
pub fn shrink<T: Clone>(items: Vec<T>, mut fails: impl FnMut(&[T]) -> bool) -> Vec<T> {
    let mut best = items;
    let mut len = best.len().div_ceil(2).max(1);
    loop {
        let before = best.len();
        let mut start = 0;
        while start < best.len() {
            let end = (start + len).min(best.len());
            let candidate: Vec<T> = best[..start].iter().chain(&best[end..]).cloned().collect();
            if fails(&candidate) {
                best = candidate;
            } else {
                start = end;
            }
        }
        if len > 1 {
            len = len.div_ceil(2).min(best.len().max(1));
        } else if best.len() == before {
            return best;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_needed_is_left() {
        let needed = [3, 77, 78];
        let fails = |items: &[i32]| needed.iter().all(|item| items.contains(item));
        assert_eq!(shrink((0..100).collect(), fails), needed);
        assert_eq!(shrink((0..100).collect::<Vec<_>>(), |_| true), []);
        assert_eq!(shrink(vec![1], |items: &[i32]| items == [1]), [1]);
    }
}
