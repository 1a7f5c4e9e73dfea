//! The designs: what is said of each, and how it looks, which is the same in every plot, whatever else that shows.
//!
//! # Guarantee
//! A known design has the style of its place in [`LINES`], alone or beside others, in a bench as in a replay. One that
//! is not on the list gets a style that no known one of the same plot has. Under another semaphore a design keeps its
//! colour and gets another mark.

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

/// What is said of each design, in the order of their styles; `faultless-machine` holds it against the list of what
/// can be run.
pub static LINES: [DesignLine; 8] = [
    line("mmap-sem", "reads the address space's semaphore around the whole fault", "Linux up to 4.x"),
    line("spf-srcu", "looks the area up under SRCU, then its sequence count; gives up to mmap-sem", "the 2017 series"),
    line("spf-v9", "as spf-v11, but gives up too where the page-table lock is busy", "the 2018 series, version 9"),
    line("spf-v11", "index lock, area reference, sequence count; gives up to mmap-sem", "the 2018 series, version 11"),
    line("vma-lock", "RCU lookup, then the area's own read lock", "Linux 6.4 to today"),
    line("faultless-queued", "as faultless, but its map calls queue", "this project"),
    line(
        "faultless",
        "takes no lock: looks once for an announced change, which waits for faults; map calls go side by side",
        "this project",
    ),
    line("linux", "the host's kernel, by real system calls", "the machine it runs on"),
];

/// How many colours, marks and dashes there are.
pub const NR_STYLES: usize = 8;

/// How something is drawn.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Style {
    /// Its colour.
    pub color: usize,
    /// The shape of its marks, and the dash of its line.
    pub mark: usize,
}

impl Style {
    /// Returns the style of so many that came before.
    pub fn nth(place: usize) -> Self {
        Self { color: place % NR_STYLES, mark: (place + place / NR_STYLES) % NR_STYLES }
    }

    /// Returns the style of a name, which is a design or `design/semaphore`, among all names of a page.
    pub fn of(name: &str, names: &[String]) -> Self {
        let place_of = |name: &str| LINES.iter().position(|line| line.name == design(name));
        let is_known = |name: &str| place_of(name).is_some();
        let Some(place) = place_of(name) else {
            let unknown = names.iter().filter(|other| !is_known(other)).position(|other| other == name).unwrap_or(0);
            let first = if names.iter().any(|name| is_known(name)) { LINES.len() } else { 0 };
            return Self::nth(first + unknown);
        };
        let beneath = names.iter().filter(|other| design(other) == design(name)).position(|other| other == name);
        Self { color: place, mark: (place + beneath.unwrap_or(0)) % NR_STYLES }
    }
}

/// Returns what is said of the design of a name.
pub fn line_of(name: &str) -> Option<&'static DesignLine> {
    LINES.iter().find(|line| line.name == design(name))
}

/// Returns the design of a name.
fn design(name: &str) -> &str {
    name.split_once('/').map_or(name, |(design, _)| design)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn styles(names: &[&str]) -> Vec<Style> {
        let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
        names.iter().map(|name| Style::of(name, &names)).collect()
    }

    #[test]
    fn a_design_looks_alike_whatever_stands_beside_it() {
        let (alone, among) = (styles(&["vma-lock"]), styles(&["linux", "vma-lock", "mmap-sem"]));
        assert_eq!(alone[0], among[1]);
        assert_eq!(among[0], Style { color: 7, mark: 7 });
    }

    #[test]
    fn names_of_a_page_differ_in_colour_or_mark() {
        let known = LINES.map(|line| line.name);
        let with_semaphores =
            ["vma-lock/rwsem-v8", "vma-lock/rwsem-2012", "faultless/rwsem-v8", "faultless/rwsem-2012"];
        let unknown: Vec<String> = (0..20).map(|place| format!("-/sem-{place}")).collect();
        let unknown: Vec<&str> = unknown.iter().map(String::as_str).collect();
        for names in [&known[..], &with_semaphores, &unknown, &["other", "mmap-sem"]] {
            let styles = styles(names);
            let is_new = |place: usize| !styles[..place].contains(&styles[place]);
            assert!((0..styles.len()).all(is_new), "{names:?}: {styles:?}");
        }
        let same = styles(&with_semaphores);
        assert_eq!(same[0].color, same[1].color, "the colour is the design's");
    }
}
