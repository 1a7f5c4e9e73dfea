//! Names that the user chose, of those that there are.

use faultless_machine::designs::{DESIGNS, HOST_DESIGN, SEMAPHORES, semaphore_named};

use crate::message::Failure;
use crate::nearest::unknown;

/// Returns the names of all designs.
pub fn designs() -> Vec<&'static str> {
    DESIGNS.iter().copied().chain([HOST_DESIGN]).collect()
}

/// Returns the names that were asked for, or all; each of them must be known.
pub fn known(kind: &str, asked: &[String], names: Vec<&'static str>) -> Result<Vec<String>, Failure> {
    if asked.is_empty() {
        return Ok(names.into_iter().map(Into::into).collect());
    }
    match asked.iter().find(|name| !names.contains(&name.as_str())) {
        Some(name) => Err(Failure::usage(unknown(kind, name, names.into_iter()))),
        None => Ok(distinct(asked)),
    }
}

/// Returns the semaphores that were asked for, by one of their names, or all.
pub fn semaphores(asked: &[String]) -> Result<Vec<String>, Failure> {
    let listed = |name: &String| semaphore_named(name).map_or_else(|| name.clone(), Into::into);
    known("semaphore", &asked.iter().map(listed).collect::<Vec<_>>(), SEMAPHORES.to_vec())
}

/// Returns the values without those that came before.
pub fn distinct<T: Clone + PartialEq>(values: &[T]) -> Vec<T> {
    let first = |&place: &usize| !values[..place].contains(&values[place]);
    (0..values.len()).filter(first).map(|place| values[place].clone()).collect()
}
