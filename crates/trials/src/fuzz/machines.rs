//! Damaged machine files: refused, or understood so that they are written and read back equal.

use fastrand::Rng;
use faultless_sim::Spec;

use super::damage;
use faultless_machine::simulated;

pub(super) fn try_one(random: &mut Rng) {
    let names: Vec<&str> = simulated::names().filter(|name| Spec::preset(name).is_some()).collect();
    let good = random.choice(&names).and_then(|name| Spec::preset(name)).map(|spec| spec.to_toml());
    try_text(&damage::text(random, &good.unwrap_or_default()));
}

pub(super) fn try_text(text: &str) {
    let Ok(spec) = Spec::parse(text) else { return };
    let written = spec.to_toml();
    let again = Spec::parse(&written).unwrap_or_else(|error| panic!("what was written is refused: {error}"));
    assert_eq!(again.to_toml(), written, "what was written and read again differs");
    assert!(spec.nr_cpus() > 0 && !spec.name().is_empty());
}
