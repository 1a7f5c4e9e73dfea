//! Which system-call number is which memory call, on x86-64.
//!
//! # Guarantee
//! Every [`Call`] but [`Call::Clone`] has exactly one number, and the filter lets exactly these pass, and the calls
//! that make a task.

use faultless_trace::Call;

/// `PR_SET_MM`, the only `prctl` that changes a map.
const PR_SET_MM: u64 = 35;

/// `PTRACE_TRACEME`, `PTRACE_ATTACH`, `PTRACE_SEIZE`: from then on another process reaches into the caller's, or the
/// named thread's, memory without a fault of its own.
const BEGINNING_TRACING: [u64; 3] = [0, 16, 0x4206];

/// `O_TRUNC`, which cuts a file, and `O_DIRECT`, through which reads and writes pin memory.
const CUTTING_OR_PINNING: u64 = 0o1000 | 0o40000;

/// Returns whether a call matters to a map: of `prctl`, `ptrace` and those that open files few do.
pub(crate) fn matters(call: Call, args: [u64; 6]) -> bool {
    match call {
        Call::Prctl => args[0] == PR_SET_MM,
        Call::Ptrace => BEGINNING_TRACING.contains(&args[0]),
        Call::Open => args[1] & CUTTING_OR_PINNING != 0,
        Call::Openat => args[2] & CUTTING_OR_PINNING != 0,
        _ => true,
    }
}

/// Returns whether a mapping is the vdso of a program of 32 bits, whose calls have other numbers: those of 64 bits have
/// theirs above 4 GiB.
pub(crate) fn is_foreign_vdso(path: &str, start: u64) -> bool {
    path == "[vdso]" && start < 1 << 32
}

const NUMBERS: [(Call, i64); 35] = [
    (Call::Open, 2),
    (Call::Mmap, 9),
    (Call::Mprotect, 10),
    (Call::Munmap, 11),
    (Call::Brk, 12),
    (Call::Mremap, 25),
    (Call::Msync, 26),
    (Call::Mincore, 27),
    (Call::Madvise, 28),
    (Call::Shmat, 30),
    (Call::Shmdt, 67),
    (Call::Truncate, 76),
    (Call::Ftruncate, 77),
    (Call::Creat, 85),
    (Call::Ptrace, 101),
    (Call::Mlock, 149),
    (Call::Munlock, 150),
    (Call::Mlockall, 151),
    (Call::Munlockall, 152),
    (Call::Prctl, 157),
    (Call::IoSetup, 206),
    (Call::IoDestroy, 207),
    (Call::RemapFilePages, 216),
    (Call::Openat, 257),
    (Call::Vmsplice, 278),
    (Call::Fallocate, 285),
    (Call::ProcessVmReadv, 310),
    (Call::ProcessVmWritev, 311),
    (Call::Userfaultfd, 323),
    (Call::Mlock2, 325),
    (Call::PkeyMprotect, 329),
    (Call::IoUringSetup, 425),
    (Call::ProcessMadvise, 440),
    (Call::MapShadowStack, 453),
    (Call::Mseal, 462),
];

/// `clone`, `fork`, `vfork` and `clone3`: what they made is told by records of its own, but neither when they began,
/// nor that they made nothing.
const MAKING_TASKS: [i64; 4] = [56, 57, 58, 435];

/// Returns whether the call of this number makes a thread or a process.
pub(crate) fn makes_task(number: i64) -> bool {
    MAKING_TASKS.contains(&number)
}

/// Returns the call of this number.
pub(crate) fn call_of(number: i64) -> Option<Call> {
    let place = NUMBERS.binary_search_by_key(&number, |&(_, number)| number).ok()?;
    Some(NUMBERS[place].0)
}

/// Returns the numbers of the calls that are watched.
pub(crate) fn watched() -> impl Iterator<Item = i64> {
    NUMBERS.iter().map(|&(_, number)| number).chain(MAKING_TASKS)
}

/// Returns the kernel's filter expression for all of these numbers.
pub(crate) fn filter() -> String {
    expression(watched().collect())
}

/// Returns the kernel's filter expression for the memory calls alone; those of which few are such are left out.
pub(crate) fn memory_filter() -> String {
    let is_kept = |&&(call, _): &&(Call, i64)| !matches!(call, Call::Prctl | Call::Ptrace | Call::Open | Call::Openat);
    expression(NUMBERS.iter().filter(is_kept).map(|&(_, number)| number).collect())
}

/// Returns an expression for numbers, neighbours joined into ranges.
fn expression(mut numbers: Vec<i64>) -> String {
    let mut ranges: Vec<(i64, i64)> = Vec::new();
    numbers.sort_unstable();
    for number in numbers {
        match ranges.last_mut() {
            Some((_, last)) if *last + 1 == number => *last = number,
            _ => ranges.push((number, number)),
        }
    }
    let terms: Vec<_> = ranges.into_iter().map(term).collect();
    terms.join(" || ")
}

fn term((first, last): (i64, i64)) -> String {
    if first == last { format!("id == {first}") } else { format!("(id >= {first} && id <= {last})") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_call_has_one_number_and_the_table_is_in_order() {
        assert!(NUMBERS.is_sorted_by(|a, b| a.1 < b.1));
        // All that make tasks are one call.
        assert_eq!(NUMBERS.len() + 1, Call::ALL.len());
        for &call in Call::ALL.iter().filter(|&&call| call != Call::Clone) {
            let numbers: Vec<_> = NUMBERS.iter().filter(|entry| entry.0 == call).collect();
            assert_eq!(numbers.len(), 1, "{}", call.name());
            assert_eq!(call_of(numbers[0].1), Some(call));
        }
        assert_eq!(call_of(0), None);
    }

    #[test]
    fn the_numbers_are_those_of_libc() {
        let known = [
            (Call::Mmap, libc::SYS_mmap),
            (Call::Munmap, libc::SYS_munmap),
            (Call::Mprotect, libc::SYS_mprotect),
            (Call::Mremap, libc::SYS_mremap),
            (Call::Madvise, libc::SYS_madvise),
            (Call::Brk, libc::SYS_brk),
            (Call::Mlock, libc::SYS_mlock),
            (Call::Mlock2, libc::SYS_mlock2),
            (Call::Munlock, libc::SYS_munlock),
            (Call::Mlockall, libc::SYS_mlockall),
            (Call::Munlockall, libc::SYS_munlockall),
            (Call::Msync, libc::SYS_msync),
            (Call::Mincore, libc::SYS_mincore),
            (Call::RemapFilePages, libc::SYS_remap_file_pages),
            (Call::PkeyMprotect, libc::SYS_pkey_mprotect),
            (Call::Shmat, libc::SYS_shmat),
            (Call::Shmdt, libc::SYS_shmdt),
            (Call::IoSetup, libc::SYS_io_setup),
            (Call::IoDestroy, libc::SYS_io_destroy),
            (Call::ProcessMadvise, libc::SYS_process_madvise),
            (Call::Prctl, libc::SYS_prctl),
            (Call::Ptrace, libc::SYS_ptrace),
            (Call::Ftruncate, libc::SYS_ftruncate),
            (Call::Fallocate, libc::SYS_fallocate),
            (Call::Truncate, libc::SYS_truncate),
            (Call::Userfaultfd, libc::SYS_userfaultfd),
            (Call::IoUringSetup, libc::SYS_io_uring_setup),
            (Call::Open, libc::SYS_open),
            (Call::Openat, libc::SYS_openat),
            (Call::Creat, libc::SYS_creat),
            (Call::Vmsplice, libc::SYS_vmsplice),
            (Call::ProcessVmReadv, libc::SYS_process_vm_readv),
            (Call::ProcessVmWritev, libc::SYS_process_vm_writev),
        ];
        for (call, number) in known {
            assert_eq!(call_of(number), Some(call), "{}", call.name());
        }
    }

    #[test]
    fn the_filter_joins_neighbours() {
        let filter = filter();
        assert!(
            filter.starts_with(
                "id == 2 || (id >= 9 && id <= 12) || (id >= 25 && id <= 28) || id == 30 || (id >= 56 && id <= 58)"
            ),
            "{filter}"
        );
        assert!(filter.contains("id == 435"), "{filter}");
    }
}
