//! The machines that come with the program.

/// Name and file of each.
pub const MACHINES: &[(&str, &str)] = &[
    ("numaq-16", include_str!("../../machines/numaq-16.toml")),
    ("xeon-40", include_str!("../../machines/xeon-40.toml")),
    ("x86-vm-16", include_str!("../../machines/x86-vm-16.toml")),
    ("power8-80", include_str!("../../machines/power8-80.toml")),
    ("skylake-192", include_str!("../../machines/skylake-192.toml")),
    ("xeon-56", include_str!("../../machines/xeon-56.toml")),
    ("epyc-384", include_str!("../../machines/epyc-384.toml")),
    ("here", include_str!("../../machines/here.toml")),
];
