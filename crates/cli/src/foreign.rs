//! Flags of `bench` that are not for what is measured by itself.
//!
//! # Guarantee
//! A flag that was given and would change nothing is refused, by its name.

use crate::bench_args::{BenchArgs, Pin};
use crate::message::Failure;

/// What is measured by itself.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Alone {
    /// Kernel maps.
    Kmap,
    /// Semaphores.
    Rwsem,
    /// A workload whose tables or pages lie in high memory.
    High,
}

use Alone::{High, Kmap, Rwsem};

/// Refuses the first flag that was given and is not for what is measured, which is called `name`.
pub fn refuse(args: &BenchArgs, alone: Alone, name: &str) -> Result<(), Failure> {
    let given: [(&str, bool, &[Alone]); 17] = [
        ("--variant", !args.variant.is_empty(), &[]),
        ("--pattern", !args.pattern.is_empty(), &[]),
        ("--access", !args.access.is_empty(), &[]),
        ("--mapping", !args.mapping.is_empty(), &[]),
        ("--design", !args.design.is_empty(), &[High]),
        ("--semaphore", !args.semaphore.is_empty(), &[Rwsem, High]),
        ("--readers, --section, --threads or --grid", args.rwsem.is_any(), &[Rwsem]),
        ("--scheme, --slots and their like", args.kmap.is_any(), &[Kmap, High]),
        ("--tables, --pages and their like, or --pace,", args.high.is_any(), &[High]),
        ("--at-most", args.at_most.is_some(), &[]),
        ("--ceiling", args.ceiling, &[]),
        ("--processes", args.processes, &[Kmap, High]),
        ("--pin", args.pin != Pin::Auto, &[]),
        ("--filter", args.filter.is_some(), &[]),
        ("--placement", args.placement.asked().is_some(), &[]),
        ("--memory", args.memory.is_some(), &[]),
        ("a flag behind --", !args.flags.is_empty(), &[High]),
    ];
    match given.into_iter().find(|(_, is_given, whose)| *is_given && !whose.contains(&alone)) {
        Some((flag, ..)) => {
            Err(Failure::usage(format_args!("{flag} is not for {name} as it is measured here: leave it out")))
        }
        None => Ok(()),
    }
}
