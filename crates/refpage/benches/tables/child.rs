//! One run of one variant, in a process of its own; it prints its numbers on one line.

use crate::userfault;
use faultless_refpage::{Fallback, Mapping, Options, stats};
use std::process::ExitCode;
use std::time::Instant;

/// The first argument of such a process.
pub(crate) const FLAG: &str = "--child";

const PAGE: usize = 4096;

/// How memory is made to start out as the pattern.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Variant {
    /// Not at all: plain anonymous memory.
    Anon,
    Memset,
    Refpage,
    Userfaultfd,
}

impl Variant {
    pub const ALL: [Variant; 4] = [Variant::Anon, Variant::Memset, Variant::Refpage, Variant::Userfaultfd];

    /// Returns its name in tables.
    pub fn name(self) -> &'static str {
        match self {
            Variant::Anon => "anon",
            Variant::Memset => "memset",
            Variant::Refpage => "refpage",
            Variant::Userfaultfd => "userfaultfd",
        }
    }
}

/// What is done to each page that is touched.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Access {
    Read,
    /// A load, then a store.
    ReadFirst,
    /// A store.
    WriteFirst,
}

impl Access {
    pub const ALL: [Access; 3] = [Access::Read, Access::ReadFirst, Access::WriteFirst];

    /// Returns its name in tables.
    pub fn name(self) -> &'static str {
        match self {
            Access::Read => "read",
            Access::ReadFirst => "read first",
            Access::WriteFirst => "write first",
        }
    }
}

/// What a run does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Work {
    pub access: Access,
    /// One page in so many is touched.
    pub stride: usize,
    pub threads: usize,
    pub pattern_len: usize,
    /// Whether the process may have huge pages, as the system is configured.
    pub has_huge_pages: bool,
    /// All threads together.
    pub len: usize,
}

/// What a run cost.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Cost {
    pub time_ms: f64,
    pub cpu_ms: f64,
    pub rss_kib: f64,
    pub pss_kib: f64,
    pub tile_kib: f64,
    pub faults: f64,
}

/// Runs a variant in a new process; nothing if the kernel does not support it.
pub(crate) fn run(variant: Variant, work: &Work) -> Option<Cost> {
    let words = [
        Variant::ALL.iter().position(|other| *other == variant)?,
        Access::ALL.iter().position(|other| *other == work.access)?,
        work.stride,
        work.threads,
        work.pattern_len,
        usize::from(work.has_huge_pages),
        work.len,
    ];
    let output = std::process::Command::new(std::env::current_exe().ok()?)
        .arg(FLAG)
        .args(words.map(|word| word.to_string()))
        .output()
        .ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    let numbers: Vec<f64> = text.split_whitespace().flat_map(str::parse).collect();
    let &[time_ms, cpu_ms, rss_kib, pss_kib, tile_kib, faults] = numbers.as_slice() else {
        eprint!("{}", String::from_utf8_lossy(&output.stderr));
        return None;
    };
    Some(Cost { time_ms, cpu_ms, rss_kib, pss_kib, tile_kib, faults })
}

/// The process's own main.
pub(crate) fn main(words: &[String]) -> ExitCode {
    let numbers: Vec<usize> = words.iter().flat_map(|word| word.parse()).collect();
    let &[variant, access, stride, threads, pattern_len, huge, len] = numbers.as_slice() else {
        return ExitCode::from(2);
    };
    let access = Access::ALL[access];
    let work = Work { access, stride, threads, pattern_len, has_huge_pages: huge == 1, len };
    if !work.has_huge_pages {
        // SAFETY: a setting of this process.
        unsafe { libc::prctl(libc::PR_SET_THP_DISABLE, 1, 0, 0, 0) };
    }
    match measure(Variant::ALL[variant], &work) {
        Ok(cost) => {
            println!(
                "{} {} {} {} {} {}",
                cost.time_ms, cost.cpu_ms, cost.rss_kib, cost.pss_kib, cost.tile_kib, cost.faults
            );
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("{}: {error}", Variant::ALL[variant].name());
            ExitCode::FAILURE
        }
    }
}

/// What the process has used so far.
struct Usage {
    cpu_ms: f64,
    faults: f64,
    rss_kib: f64,
    pss_kib: f64,
}

fn usage() -> Usage {
    // SAFETY: all bytes zero is a `rusage`, which the call fills.
    let usage = unsafe {
        let mut usage: libc::rusage = std::mem::zeroed();
        libc::getrusage(libc::RUSAGE_SELF, &mut usage);
        usage
    };
    let ms = |time: libc::timeval| time.tv_sec as f64 * 1e3 + time.tv_usec as f64 / 1e3;
    let rollup = std::fs::read_to_string("/proc/self/smaps_rollup").unwrap_or_default();
    let line = |name: &str| {
        let line = rollup.lines().find_map(|line| line.strip_prefix(name));
        line.and_then(|line| line.trim().trim_end_matches(" kB").parse().ok()).unwrap_or(f64::NAN)
    };
    Usage {
        cpu_ms: ms(usage.ru_utime) + ms(usage.ru_stime),
        faults: usage.ru_minflt as f64,
        rss_kib: line("Rss:"),
        pss_kib: line("Pss:"),
    }
}

fn measure(variant: Variant, work: &Work) -> Result<Cost, String> {
    let content: Vec<u8> = (0..work.pattern_len).map(|i| (i % 251 + 1) as u8).collect();
    let before = usage();
    let at = Instant::now();
    let memory = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..work.threads).map(|_| scope.spawn(|| one_thread(variant, work, &content))).collect();
        let done = threads.into_iter().map(|thread| thread.join().map_err(|_| "panicked".to_string())?);
        done.collect::<Result<Vec<_>, String>>()
    })?;
    let time_ms = at.elapsed().as_secs_f64() * 1e3;
    let after = usage();
    drop(memory);
    Ok(Cost {
        time_ms,
        cpu_ms: after.cpu_ms - before.cpu_ms,
        rss_kib: after.rss_kib - before.rss_kib,
        pss_kib: after.pss_kib - before.pss_kib,
        tile_kib: stats().tile_bytes as f64 / 1024.0,
        faults: after.faults - before.faults,
    })
}

/// Memory of one thread, kept until it was measured.
pub(crate) enum Memory {
    Anonymous(*mut u8, usize),
    Patterned(Mapping),
    Served(userfault::Served),
}

// SAFETY: plain memory that one thread hands to another.
unsafe impl Send for Memory {}

impl Memory {
    fn bytes(&mut self) -> &mut [u8] {
        match self {
            // SAFETY: mapped by `map_anonymous`, for as long as the process lives.
            Memory::Anonymous(start, len) => unsafe { std::slice::from_raw_parts_mut(*start, *len) },
            Memory::Patterned(mapping) => mapping,
            Memory::Served(served) => served.bytes(),
        }
    }
}

fn one_thread(variant: Variant, work: &Work, content: &[u8]) -> Result<Memory, String> {
    let len = work.len / work.threads;
    let mut memory = match variant {
        Variant::Anon | Variant::Memset => map_anonymous(len)?,
        Variant::Refpage => {
            let options = Options::new().fallback(Fallback::Fail);
            let mapped = options.create(content).and_then(|pages| pages.map(len));
            Memory::Patterned(mapped.map_err(|error| error.to_string())?)
        }
        Variant::Userfaultfd => Memory::Served(userfault::serve(len, content)?),
    };
    if variant == Variant::Memset {
        fill(memory.bytes(), content);
    }
    touch(memory.bytes(), work);
    Ok(memory)
}

/// Maps plain memory.
pub(crate) fn map_anonymous(len: usize) -> Result<Memory, String> {
    let (protection, flags) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
    // SAFETY: a new mapping.
    let start = unsafe { libc::mmap(std::ptr::null_mut(), len, protection, flags, -1, 0) };
    if start == libc::MAP_FAILED {
        return Err(std::io::Error::last_os_error().to_string());
    }
    Ok(Memory::Anonymous(start.cast(), len))
}

/// What an allocator does that fills: memset, or copies of the pattern.
pub(crate) fn fill(memory: &mut [u8], content: &[u8]) {
    if let [byte] = content {
        return memory.fill(*byte);
    }
    let block = content.repeat(PAGE.div_ceil(content.len()));
    memory.chunks_mut(block.len()).for_each(|chunk| chunk.copy_from_slice(&block[..chunk.len()]));
}

fn touch(memory: &mut [u8], work: &Work) {
    let mut sum = 0_u64;
    for byte in memory.iter_mut().step_by(work.stride * PAGE) {
        if work.access != Access::WriteFirst {
            // SAFETY: a reference is readable; volatile, so that the load stays.
            sum += u64::from(unsafe { std::ptr::read_volatile(byte) });
        }
        if work.access != Access::Read {
            // SAFETY: a reference is writable; volatile, so that the store stays.
            unsafe { std::ptr::write_volatile(byte, 0x11) };
        }
    }
    std::hint::black_box(sum);
}
