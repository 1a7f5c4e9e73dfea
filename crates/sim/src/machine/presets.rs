//! The machines that come with the program.

/// Name and file of each.
pub const MACHINES: &[(&str, &str)] = &[
    ("numaq-16", include_str!("../../machines/numaq-16.toml")),
    ("xeon-40", include_str!("../../machines/xeon-40.toml")),
    ("xeon-40-menu", include_str!("../../machines/xeon-40-menu.toml")),
    ("x86-vm-16", include_str!("../../machines/x86-vm-16.toml")),
    ("power8-80", include_str!("../../machines/power8-80.toml")),
    ("skylake-192", include_str!("../../machines/skylake-192.toml")),
    ("xeon-56", include_str!("../../machines/xeon-56.toml")),
    ("epyc-384", include_str!("../../machines/epyc-384.toml")),
    ("here", include_str!("../../machines/here.toml")),
];

#[cfg(test)]
mod tests {
    use crate::Spec;

    #[test]
    fn xeon_40_menu_is_xeon_40_and_a_governor() {
        let numbers = |name: &str| {
            let mut numbers = Vec::new();
            Spec::preset(name)
                .expect("a preset")
                .for_each_number(|key, number| numbers.push((key.to_owned(), number.clone())));
            numbers
        };
        let (plain, mut menu) = (numbers("xeon-40"), numbers("xeon-40-menu"));
        assert_eq!(menu.pop().map(|(key, _)| key).as_deref(), Some("governor.timer_us"));
        assert_eq!(plain, menu);
    }

    #[test]
    fn a_governor_without_idle_states_is_refused() {
        let text = Spec::preset("xeon-40-menu").expect("a preset").to_toml();
        let (before, rest) = text.split_once("[idle]").expect("it has the table");
        let (_, after) = rest.split_once("[governor]").expect("it has the table");
        let error = Spec::parse(&format!("{before}[governor]{after}")).expect_err("refused");
        assert!(error.to_string().contains("no table idle"), "{error}");
    }
}
