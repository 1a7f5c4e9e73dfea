//! Any arguments to the public functions, a few seeds of it; `faultless check fuzz --target api` goes on for as long as
//! asked.
//!
//! `FAULTLESS_SEED` and `FAULTLESS_API_RUNS` choose others.

fn setting(name: &str, default: u64) -> u64 {
    std::env::var(name).ok().and_then(|value| value.parse().ok()).unwrap_or(default)
}

#[test]
fn any_arguments_are_sound() {
    std::panic::set_hook(Box::new(|info| {
        if !info.to_string().contains("a source that panics") {
            eprintln!("{info}");
        }
    }));
    let (seed, runs) = (setting("FAULTLESS_SEED", 1), setting("FAULTLESS_API_RUNS", 60));
    for seed in seed..seed + runs {
        eprintln!("FAULTLESS_SEED={seed} FAULTLESS_API_RUNS=1");
        faultless_soak::api::run(seed).expect("a design of the registry");
    }
}
