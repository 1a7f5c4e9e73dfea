//! Accesses to memory that may not be there.
//!
//! # Guarantee
//! [`Slot::attempt`] does one access and says what came of it: a value, or the signal with code and address. The
//! process goes on after any of SIGSEGV, SIGBUS, SIGTRAP, SIGILL and SIGFPE.
//!
//! # Invariants
//! * I1 a slot is aligned to its size and holds frame, signal stack and stack, so that a handler finds the frame from
//!   its own stack pointer: no thread-local is needed.
//! * I2 `resume` is set while an access is under way; a signal at any other time ends the process.
//!
//! # A fetch
//! ```text
//! trap flag on; jump to the address -> SIGTRAP before the instruction there (phase 1) -> SIGTRAP after it, or its fault
//! ```
//! All registers but the stack pointer are not canonical meanwhile, so that the instruction reaches no memory.

use core::arch::naked_asm;
use core::mem::MaybeUninit;
use core::ptr;

use super::answer::Seen;
use super::sys;

/// A signal outside any access.
pub(super) const EXIT_STRAY_SIGNAL: i32 = 90;

/// Size and alignment of a slot.
pub(super) const SLOT_BYTES: u64 = 128 << 10;

/// Where in a slot its signal stack begins, and ends.
const SIGNAL_STACK: core::ops::Range<u64> = 4096..64 << 10;

/// What an attempt does; numbers that the assembly knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u64)]
pub(super) enum AccessKind {
    Load = 0,
    Store = 1,
    Fetch = 2,
    /// Folds the words of a page into one.
    Digest = 3,
}

/// State of the attempts of one thread, at the beginning of its slot.
#[repr(C)]
struct Frame {
    /// rbx, rbp, r12 to r15, rsp.
    registers: [u64; 7],
    resume: u64,
    phase: u64,
    signo: i32,
    code: i32,
    address: u64,
    rip: u64,
    trap: u64,
    error: u64,
}

/// What the assembly returns.
#[repr(C)]
struct Raw {
    value: u64,
    has_signal: u64,
}

/// Memory of a thread: frame, signal stack, stack.
#[derive(Clone, Copy, Debug)]
pub(super) struct Slot {
    base: u64,
}

impl Slot {
    /// Takes [`SLOT_BYTES`] of memory, aligned so (I1).
    ///
    /// # Safety
    /// The memory is zero, mapped, used for nothing else, and stays.
    pub(super) unsafe fn new(base: u64) -> Self {
        debug_assert!(base.is_multiple_of(SLOT_BYTES));
        Self { base }
    }

    /// Returns where the stack begins, downwards.
    pub(super) fn stack_top(self) -> u64 {
        self.base + SLOT_BYTES
    }

    fn frame(self) -> *mut Frame {
        self.base as *mut Frame
    }

    /// Lets signals of the calling thread be handled on the slot's signal stack.
    pub(super) fn adopt(self) {
        let stack = libc::stack_t {
            ss_sp: (self.base + SIGNAL_STACK.start) as *mut _,
            ss_flags: 0,
            ss_size: (SIGNAL_STACK.end - SIGNAL_STACK.start) as usize,
        };
        // SAFETY: the memory is the slot's, and nobody runs on it.
        let _ = unsafe { sys::raw!(libc::SYS_sigaltstack, &raw const stack, 0) };
    }

    /// Does one access. The calling thread has adopted the slot.
    pub(super) fn attempt(self, kind: AccessKind, address: u64, value: u64) -> Result<u64, Seen> {
        let frame = self.frame();
        // SAFETY: the frame is this thread's; the assembly survives whatever the address is.
        unsafe {
            (*frame).phase = 0;
            let raw = access(kind as u64, address, value, frame);
            (*frame).resume = 0;
            match raw.has_signal {
                0 => Ok(raw.value),
                _ if kind == AccessKind::Fetch && is_fetched(&*frame, address) => Ok(0),
                _ => Err(Seen { signo: (*frame).signo, code: (*frame).code, address: (*frame).address }),
            }
        }
    }
}

/// Says whether the instruction was reached: what was signalled is not its fetch.
fn is_fetched(frame: &Frame, address: u64) -> bool {
    const PAGE_FAULT: u64 = 14;
    const BY_FETCH: u64 = 1 << 4;
    let is_fetch_fault = frame.trap == PAGE_FAULT && frame.error & BY_FETCH != 0 && frame.rip == address;
    frame.phase == 1 && !is_fetch_fault
}

/// Does the access. On a signal, comes back from `resume` with the registers that the frame holds.
#[unsafe(naked)]
unsafe extern "C" fn access(kind: u64, address: u64, value: u64, frame: *mut Frame) -> Raw {
    naked_asm!(
        "mov [rcx], rbx",
        "mov [rcx + 8], rbp",
        "mov [rcx + 16], r12",
        "mov [rcx + 24], r13",
        "mov [rcx + 32], r14",
        "mov [rcx + 40], r15",
        "mov [rcx + 48], rsp",
        "lea rax, [rip + 9f]",
        "mov [rcx + 56], rax",
        "cmp rdi, 1",
        "je 3f",
        "cmp rdi, 2",
        "je {fetch}",
        "cmp rdi, 3",
        "je {fold}",
        // Load.
        "movzx eax, byte ptr [rsi]",
        "xor edx, edx",
        "ret",
        // Store.
        "3: mov byte ptr [rsi], dl",
        "xor eax, eax",
        "xor edx, edx",
        "ret",
        // The handler resumes here, with the frame in rdi.
        "9: mov rbx, [rdi]",
        "mov rbp, [rdi + 8]",
        "mov r12, [rdi + 16]",
        "mov r13, [rdi + 24]",
        "mov r14, [rdi + 32]",
        "mov r15, [rdi + 40]",
        "mov rsp, [rdi + 48]",
        "cld",
        "xor eax, eax",
        "mov edx, 1",
        "ret",
        fetch = sym fetch,
        fold = sym fold,
    )
}

/// Part of [`access`], after its registers are saved: registers that reach nothing, then the trap flag, then the jump.
#[unsafe(naked)]
unsafe extern "C" fn fetch() {
    naked_asm!(
        "mov r11, rsi",
        "mov rax, 0x8000000000000000",
        "mov rbx, rax",
        "mov rcx, rax",
        "mov rdx, rax",
        "mov rsi, rax",
        "mov rdi, rax",
        "mov rbp, rax",
        "mov r8, rax",
        "mov r9, rax",
        "mov r10, rax",
        "mov r12, rax",
        "mov r13, rax",
        "mov r14, rax",
        "mov r15, rax",
        "sub rsp, 256",
        "pushfq",
        "or qword ptr [rsp], 0x100",
        "popfq",
        "jmp r11",
    )
}

/// Part of [`access`], after its registers are saved: folds the 512 words of a page as [`digest`] does.
#[unsafe(naked)]
unsafe extern "C" fn fold() {
    naked_asm!(
        "xor eax, eax",
        "xor edx, edx",
        "xor r9d, r9d",
        "xor r10d, r10d",
        "xor r11d, r11d",
        "mov r8, {odd}",
        "6: xor rax, [rsi + rdx * 8]",
        "imul rax, r8",
        "rol rax, 29",
        "xor r9, [rsi + rdx * 8 + 8]",
        "imul r9, r8",
        "rol r9, 29",
        "xor r10, [rsi + rdx * 8 + 16]",
        "imul r10, r8",
        "rol r10, 29",
        "xor r11, [rsi + rdx * 8 + 24]",
        "imul r11, r8",
        "rol r11, 29",
        "add edx, 4",
        "cmp edx, 512",
        "jb 6b",
        "xor rax, r9",
        "imul rax, r8",
        "rol rax, 29",
        "xor rax, r10",
        "imul rax, r8",
        "rol rax, 29",
        "xor rax, r11",
        "imul rax, r8",
        "rol rax, 29",
        "xor edx, edx",
        "ret",
        odd = const DIGEST_FACTOR,
    )
}

/// What the digest multiplies with.
const DIGEST_FACTOR: i64 = 0x9e37_79b9_7f4a_7c15_u64 as i64;

/// Returns the digest of a page's words, as `AccessKind::Digest` does: four sums side by side, folded into one.
pub fn digest(words: &[u64; 512]) -> u64 {
    let step = |sum: u64, word: u64| (sum ^ word).wrapping_mul(DIGEST_FACTOR as u64).rotate_left(29);
    let mut lanes = [0; 4];
    for part in words.as_chunks::<4>().0 {
        lanes = core::array::from_fn(|lane| step(lanes[lane], part[lane]));
    }
    let [first, rest @ ..] = lanes;
    rest.into_iter().fold(first, step)
}

/// Handles the signals of attempts in the calling process.
pub(super) fn install_handler() {
    for signal in [libc::SIGSEGV, libc::SIGBUS, libc::SIGTRAP, libc::SIGILL, libc::SIGFPE] {
        // SAFETY: the action is whole, and the handler is safe to run at any time.
        unsafe {
            let mut action: libc::sigaction = MaybeUninit::zeroed().assume_init();
            action.sa_sigaction = handle as *const () as usize;
            action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK;
            libc::sigaction(signal, &action, ptr::null_mut());
        }
    }
}

unsafe extern "C" fn handle(signo: i32, info: *mut libc::siginfo_t, context: *mut libc::c_void) {
    let frame = (&raw const signo as u64 & !(SLOT_BYTES - 1)) as *mut Frame;
    // SAFETY: the kernel gives whole structures; the handler runs on a slot's signal stack, so the frame is found (I1).
    let (frame, info, context) = unsafe { (&mut *frame, &*info, &mut *context.cast::<libc::ucontext_t>()) };
    if frame.resume == 0 {
        sys::exit(EXIT_STRAY_SIGNAL);
    }
    if signo == libc::SIGTRAP && frame.phase == 0 {
        frame.phase = 1;
        return;
    }
    let registers = &mut context.uc_mcontext.gregs;
    frame.signo = signo;
    frame.code = info.si_code;
    // SAFETY: the kernel fills the address in for these signals.
    frame.address = unsafe { info.si_addr() } as u64;
    frame.rip = registers[libc::REG_RIP as usize] as u64;
    frame.trap = registers[libc::REG_TRAPNO as usize] as u64;
    frame.error = registers[libc::REG_ERR as usize] as u64;
    registers[libc::REG_EFL as usize] &= !0x500;
    registers[libc::REG_RIP as usize] = frame.resume as i64;
    registers[libc::REG_RDI as usize] = ptr::from_mut(frame) as i64;
}
