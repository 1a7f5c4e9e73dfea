//! The designs by name: the virtual memory's, and the host's kernel; and the semaphores beneath them.

pub use faultless_results::designs::DesignLine;
use faultless_results::designs::LINES;
use faultless_sync::Generation;
pub use faultless_sync::SEMAPHORES;
use faultless_vm::PlacementPolicy;
pub use faultless_vm::registry::DESIGNS;

/// The design that is the host's kernel.
pub const HOST_DESIGN: &str = "linux";

/// The design where one alone is meant and none is named: the one that an instance has by default.
pub const DEFAULT_DESIGN: &str = "vma-lock";

/// The semaphore beneath most designs unless another is asked for: the one that Linux had when the designs met.
pub const DEFAULT_SEMAPHORE: &str = "rwsem-v8";

/// What stands beneath `faultless`: calls that meet nowhere take the semaphore for reading, so its readers write no
/// line of each other's, and mappings of two CPUs lie apart.
const SIDE_BY_SIDE: (&str, PlacementPolicy) = ("rwsem-v8+bravo", PlacementPolicy::Auto);

/// Returns the semaphore beneath a design unless another is asked for.
pub fn semaphore_of(design: &str) -> &'static str {
    made_for(design).map_or(DEFAULT_SEMAPHORE, |(semaphore, _)| semaphore)
}

/// Returns where a design's address spaces put mappings: as was asked for, or as it is made for.
pub fn placement_beneath(design: &str, asked: Option<PlacementPolicy>) -> PlacementPolicy {
    let own = || made_for(design).map_or(PlacementPolicy::Linux, |(_, placement)| placement);
    asked.unwrap_or_else(own)
}

fn made_for(design: &str) -> Option<(&'static str, PlacementPolicy)> {
    (design == "faultless").then_some(SIDE_BY_SIDE)
}

/// Returns the semaphores beneath a design: those that were asked for, or its own; the host's kernel has no choice.
pub fn semaphores_beneath(design: &str, asked: &[String]) -> Vec<Option<String>> {
    match asked {
        _ if design == HOST_DESIGN => vec![None],
        [] => vec![Some(semaphore_of(design).to_owned())],
        asked => asked.iter().cloned().map(Some).collect(),
    }
}

/// Returns the name under which [`SEMAPHORES`] has a semaphore, which may have another one, too.
pub fn semaphore_named(name: &str) -> Option<&'static str> {
    let generation = Generation::named(name)?;
    let listed = SEMAPHORES.iter().find(|listed| **listed == name);
    listed.or_else(|| SEMAPHORES.iter().find(|listed| Generation::named(listed) == Some(generation))).copied()
}

/// Returns the designs that there are, the host's kernel last.
pub fn design_lines() -> impl Iterator<Item = &'static DesignLine> {
    LINES.iter().filter(|line| line.name == HOST_DESIGN || DESIGNS.contains(&line.name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_list_knows_every_design() {
        let names: Vec<&str> = design_lines().map(|line| line.name).collect();
        for name in DESIGNS.iter().chain([&HOST_DESIGN]) {
            assert!(names.contains(name), "{name} is not described");
        }
        assert_eq!(names.len(), DESIGNS.len() + 1);
    }

    #[test]
    fn a_semaphore_is_found_by_its_other_name_too() {
        assert!(SEMAPHORES.iter().all(|name| semaphore_named(name) == Some(name)));
        assert_eq!(semaphore_named("rwsem-v8-p8"), Some("rwsem-v8-no-optspin"));
        assert_eq!(semaphore_named("rwsem-v8-p2"), None);
    }

    #[test]
    fn who_asks_for_no_semaphore_gets_the_designs_own() {
        let asked = ["handoff".to_owned(), "rwsem-2012".to_owned()];
        assert_eq!(semaphores_beneath("mmap-sem", &[]), [Some(DEFAULT_SEMAPHORE.to_owned())]);
        assert_eq!(semaphores_beneath("mmap-sem", &asked), asked.clone().map(Some));
        assert_eq!(semaphores_beneath(HOST_DESIGN, &asked), [None]);
        assert!(DESIGNS.iter().all(|design| semaphore_named(semaphore_of(design)) == Some(semaphore_of(design))));
        assert!(DESIGNS.iter().any(|design| placement_beneath(design, None) != PlacementPolicy::Linux));
    }

    #[test]
    fn the_default_is_the_librarys() {
        use faultless_platform::native::Native;
        use faultless_vm::design::{DefaultDesign, Design};
        assert_eq!(DEFAULT_DESIGN, <DefaultDesign<Native> as Design<Native>>::NAME);
    }

    #[test]
    fn every_design_has_a_style_of_its_own() {
        let names: Vec<&str> = design_lines().map(|line| line.name).collect();
        assert_eq!(names, LINES.map(|line| line.name), "and is of no other list than that of styles");
    }
}
