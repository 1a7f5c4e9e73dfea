//! The machine that an experiment runs on, as reports name it.
//!
//! # Guarantee
//! What the system does not tell is left empty, never guessed.

use std::fs;
use std::thread;

use faultless_trace::Machine;

/// Returns the machine's description.
pub fn machine() -> Machine {
    Machine {
        cpus: cpus() as u32,
        model: model().unwrap_or_default(),
        kernel: fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default().trim().to_owned(),
        page_size_bytes: faultless_vm::PAGE,
    }
}

/// Returns how many CPUs this process may use.
pub fn cpus() -> usize {
    thread::available_parallelism().map_or(1, usize::from)
}

/// Returns how large the first CPU's cache of a level is that holds data.
pub fn cache_kib(level: u32) -> Option<usize> {
    let indices = fs::read_dir("/sys/devices/system/cpu/cpu0/cache").ok()?.flatten().map(|entry| entry.path());
    let said = |path: &std::path::Path, what| fs::read_to_string(path.join(what)).unwrap_or_default().trim().to_owned();
    let is_wanted =
        |path: &std::path::PathBuf| said(path, "level") == level.to_string() && said(path, "type") != "Instruction";
    let size = said(&indices.into_iter().find(is_wanted)?, "size");
    size.strip_suffix('K')?.parse().ok()
}

/// Returns how much memory may be used without anybody's being swapped out or killed; nothing if the system does not
/// tell.
pub fn available_bytes() -> Option<u64> {
    let text = fs::read_to_string("/proc/meminfo").ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    line.trim().strip_suffix(" kB")?.parse::<u64>().ok().map(|kib| kib << 10)
}

fn model() -> Option<String> {
    let text = fs::read_to_string("/proc/cpuinfo").ok()?;
    let line = text.lines().find(|line| line.starts_with("model name"))?;
    Some(line.split_once(':')?.1.trim().to_owned())
}
