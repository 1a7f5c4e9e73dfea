//! Raw system calls, for a process that has no C library to speak of.
//!
//! # Guarantee
//! Nothing here touches errno, thread-locals or the heap. A call's answer is the kernel's: a value, or minus the error.

use core::arch::{asm, naked_asm};

/// A system call's answer.
pub(super) type SyscallResult = Result<u64, i32>;

/// Calls the kernel.
///
/// # Safety
/// The call must not break memory that Rust code relies on.
pub(super) unsafe fn call(number: i64, args: [u64; 6]) -> SyscallResult {
    let mut result = number;
    // SAFETY: the kernel's convention; rcx and r11 are what it clobbers.
    unsafe {
        asm!("syscall", inout("rax") result, in("rdi") args[0], in("rsi") args[1], in("rdx") args[2],
            in("r10") args[3], in("r8") args[4], in("r9") args[5], out("rcx") _, out("r11") _, options(nostack));
    }
    match result {
        -4095..0 => Err(-result as i32),
        value => Ok(value as u64),
    }
}

macro_rules! raw {
    ($number:expr $(, $arg:expr)*) => {{
        let given = [$($arg as u64),*];
        let mut args = [0_u64; 6];
        let mut place = 0;
        while place < given.len() {
            args[place] = given[place];
            place += 1;
        }
        $crate::kernel::sys::call($number, args)
    }};
}
pub(super) use raw;

/// Ends the process with a code.
pub(super) fn exit(code: i32) -> ! {
    loop {
        // SAFETY: the call does not return.
        let _ = unsafe { raw!(libc::SYS_exit_group, code) };
    }
}

/// An area as the kernel lists it (`struct procmap_query`).
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub(super) struct AreaQuery {
    size: u64,
    query_flags: u64,
    query_addr: u64,
    /// First byte.
    pub(super) start: u64,
    /// First byte behind.
    pub(super) end: u64,
    /// Rights in bits 0 to 2, shared in bit 3.
    pub(super) flags: u64,
    page_size: u64,
    /// Offset in the file.
    pub(super) offset: u64,
    /// Of the file, else 0.
    pub(super) inode: u64,
    dev_major: u32,
    dev_minor: u32,
    name_size: u32,
    build_id_size: u32,
    name_addr: u64,
    build_id_addr: u64,
}

/// Bit of [`AreaQuery::flags`]: shared.
pub(super) const AREA_SHARED: u64 = 8;

/// Returns the area that holds `address`, or the next one; `None` behind the last. `maps` is an open /proc/PID/maps.
pub(super) fn area_from(maps: i32, address: u64) -> Option<AreaQuery> {
    const COVERING_OR_NEXT: u64 = 0x10;
    const REQUEST: u64 = 0xc068_6611;
    let mut query = AreaQuery {
        size: size_of::<AreaQuery>() as u64,
        query_flags: COVERING_OR_NEXT,
        query_addr: address,
        ..AreaQuery::default()
    };
    // SAFETY: the kernel writes the structure only.
    unsafe { raw!(libc::SYS_ioctl, maps, REQUEST, &raw mut query) }.ok().map(|_| query)
}

/// Starts a task that runs `entry(argument)` on another stack and then ends; returns its number.
///
/// # Safety
/// `stack_top` is 16-byte aligned memory of the new task's alone; with `CLONE_VM` everything `entry` uses is shared.
#[unsafe(naked)]
pub(super) unsafe extern "C" fn spawn(
    flags: u64,
    stack_top: u64,
    tid: *mut u32,
    entry: unsafe extern "C" fn(u64),
    argument: u64,
) -> i64 {
    naked_asm!(
        "mov r9, rcx",  // entry
        "mov r10, rdx", // child's tid pointer (CLONE_CHILD_CLEARTID)
        "mov eax, 56",
        "syscall",
        "test rax, rax",
        "jnz 2f",
        "xor ebp, ebp",
        "mov rdi, r8",
        "call r9",
        "mov eax, 60",
        "xor edi, edi",
        "syscall",
        "ud2",
        "2: ret",
    )
}

/// Continues on another stack, never to return.
///
/// # Safety
/// `stack_top` is 16-byte aligned and stays valid.
#[unsafe(naked)]
pub(super) unsafe extern "C" fn continue_on(stack_top: u64, entry: unsafe extern "C" fn(u64) -> !, argument: u64) -> ! {
    naked_asm!("mov rsp, rdi", "mov rdi, rdx", "xor ebp, ebp", "call rsi", "ud2")
}
