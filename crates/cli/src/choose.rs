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
    known("semaphore", &asked_semaphores(asked)?, SEMAPHORES.to_vec())
}

/// Returns the semaphores that were asked for, by one of their names; none if each design is to have its own.
pub fn asked_semaphores(asked: &[String]) -> Result<Vec<String>, Failure> {
    let listed: Vec<String> = asked.iter().map(|name| semaphore(name)).collect::<Result<_, _>>()?;
    Ok(distinct(&listed))
}

/// Returns the name in the list of a semaphore that was asked for by one of its names.
pub fn semaphore(asked: &str) -> Result<String, Failure> {
    let unknown = || Failure::usage(unknown("semaphore", asked, SEMAPHORES.iter().copied()));
    semaphore_named(asked).map(Into::into).ok_or_else(unknown)
}

/// Returns the values without those that came before.
pub fn distinct<T: Clone + PartialEq>(values: &[T]) -> Vec<T> {
    let first = |&place: &usize| !values[..place].contains(&values[place]);
    (0..values.len()).filter(first).map(|place| values[place].clone()).collect()
}
