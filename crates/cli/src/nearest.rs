//! The name that was probably meant.
//!
//! # Guarantee
//! Nothing is suggested that has little in common with what was written.

/// Returns the known name nearest to a wrong one.
pub fn nearest<'a>(wrong: &str, known: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    let with_distance = known.map(|name| (distance(wrong, name), name));
    let (distance, name) = with_distance.min_by_key(|(distance, _)| *distance)?;
    let is_near = distance <= wrong.chars().count().max(name.chars().count()).div_ceil(2);
    is_near.then_some(name)
}

/// Returns a message about an unknown name: the nearest one there is, and all of them.
pub fn unknown<'a>(kind: &str, wrong: &str, known: impl Iterator<Item = &'a str> + Clone) -> String {
    let guess = nearest(wrong, known.clone()).map_or(String::new(), |near| format!("; did you mean {near}?"));
    let all: Vec<&str> = known.collect();
    format!("there is no {kind} '{wrong}'{guess}\nthere are: {}", all.join(", "))
}

/// Returns how many letters must be put in, taken out or changed (Levenshtein).
fn distance(one: &str, other: &str) -> usize {
    let other: Vec<char> = other.chars().collect();
    let mut row: Vec<usize> = (0..=other.len()).collect();
    for (place, letter) in one.chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = place + 1;
        for (column, &it) in other.iter().enumerate() {
            let changed = diagonal + usize::from(letter != it);
            diagonal = row[column + 1];
            row[column + 1] = changed.min(row[column] + 1).min(diagonal + 1);
        }
    }
    row[other.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slips_are_understood_and_nonsense_is_not() {
        let known = ["faults", "spf", "spf-failed", "pagefault:spf_vma_changed", "tlb_shootdown"];
        let near = |wrong| nearest(wrong, known.into_iter());
        assert_eq!(near("fault"), Some("faults"));
        assert_eq!(near("spf_failed"), Some("spf-failed"));
        assert_eq!(near("tlb-shootdowns"), Some("tlb_shootdown"));
        assert_eq!(near("pagefault:vma_changed"), Some("pagefault:spf_vma_changed"));
        assert_eq!(near("xyzzyq"), None);
        let said = unknown("event", "fault", known.into_iter());
        assert!(said.starts_with("there is no event 'fault'; did you mean faults?") && said.ends_with("tlb_shootdown"));
        assert_eq!(nearest("x", [].into_iter()), None);
        assert_eq!((distance("kitten", "sitting"), distance("", "ab"), distance("ab", "")), (3, 2, 2));
    }
}
