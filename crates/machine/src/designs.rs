//! The designs by name: the virtual memory's, and the host's kernel; and the semaphores beneath them.

pub use faultless_sync::SEMAPHORES;
pub use faultless_vm::registry::DESIGNS;

/// The design that is the host's kernel.
pub const HOST_DESIGN: &str = "linux";

/// The semaphore beneath a design unless another is asked for: the one that Linux had when the designs met.
pub const DEFAULT_SEMAPHORE: &str = "rwsem-v8";

/// A design, as lists show it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DesignLine {
    /// Its name.
    pub name: &'static str,
    /// How a fault is protected.
    pub fault: &'static str,
    /// Where it comes from.
    pub source: &'static str,
}

const fn line(name: &'static str, fault: &'static str, source: &'static str) -> DesignLine {
    DesignLine { name, fault, source }
}

/// What is said of each design.
const LINES: &[DesignLine] = &[
    line("mmap-sem", "reads the address space's semaphore around the whole fault", "Linux up to 4.x"),
    line("spf-srcu", "looks the area up under SRCU, then its sequence count; gives up to mmap-sem", "the 2017 series"),
    line("spf-v9", "as spf-v11, but gives up too where the page-table lock is busy", "the 2018 series, version 9"),
    line("spf-v11", "index lock, area reference, sequence count; gives up to mmap-sem", "the 2018 series, version 11"),
    line("vma-lock", "RCU lookup, then the area's own read lock", "Linux 6.4 to today"),
    line("faultless", "looks once for an announced change, which waits for faults; no lock", "this project"),
    line(HOST_DESIGN, "the host's kernel, by real system calls", "the machine it runs on"),
];

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
}
