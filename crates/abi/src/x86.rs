//! What an x86-64 processor says of a page fault.
//!
//! # Guarantee
//! Bits that say nothing about the access (present, protection key, shadow stack) are left out: the library looks at
//! the tables itself.
//!
//! Source: Intel SDM volume 3A, section 4.7, "Page-Fault Exceptions".

use faultless_vm::{Access, Mode};

const WRITE: u64 = 1 << 1;
const USER: u64 = 1 << 2;
const FETCH: u64 = 1 << 4;

/// Returns the access and whose it was, of a page fault's error code.
///
/// ```
/// use faultless_abi::page_fault;
/// use faultless_vm::{Access, Mode};
///
/// assert_eq!(page_fault(0b0_0111), (Access::Write, Mode::User));
/// assert_eq!(page_fault(0b1_0100), (Access::Fetch, Mode::User));
/// assert_eq!(page_fault(0), (Access::Read, Mode::Kernel));
/// ```
pub const fn page_fault(error_code: u64) -> (Access, Mode) {
    let access = match error_code {
        code if code & FETCH != 0 => Access::Fetch,
        code if code & WRITE != 0 => Access::Write,
        _ => Access::Read,
    };
    (access, if error_code & USER != 0 { Mode::User } else { Mode::Kernel })
}
