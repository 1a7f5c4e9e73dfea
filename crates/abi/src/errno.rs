//! Error numbers of Linux on x86-64 (`asm-generic/errno-base.h`, `errno.h`).

use core::fmt;
use faultless_vm::CallError;

/// An error number; a kernel returns its negative in `rax`.
///
/// ```
/// use faultless_abi::Errno;
/// use faultless_vm::{CallError, VirtAddr};
///
/// let errno = Errno::from(CallError::Unmapped { address: VirtAddr::new(0x1000) });
/// assert_eq!((errno, errno.number(), errno.raw()), (Errno::ENOMEM, 12, -12));
/// assert_eq!(Errno::EFAULT.name(), Some("EFAULT"));
/// ```
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Errno(i32);

/// Defines the numbers that memory calls answer, and their names.
macro_rules! errnos {
    ($($name:ident = $number:literal, $meaning:literal;)*) => {
        impl Errno {
            $(#[doc = $meaning] pub const $name: Self = Self($number);)*

            /// Returns the name, such as `EINVAL`; nothing if no memory call answers this number.
            pub const fn name(self) -> Option<&'static str> {
                match self.0 {
                    $($number => Some(stringify!($name)),)*
                    _ => None,
                }
            }
        }
    };
}

errnos! {
    EPERM = 1, "Not permitted: a sealed area, or an address below the lowest.";
    EIO = 5, "The file could not give the page.";
    EBADF = 9, "No such file descriptor.";
    EAGAIN = 11, "Try again: more is locked than allowed, or memory is short.";
    ENOMEM = 12, "No memory, no room, or nothing is mapped there.";
    EACCES = 13, "The descriptor does not allow this access.";
    EFAULT = 14, "Bad address.";
    EBUSY = 16, "The pages are locked.";
    EEXIST = 17, "Something is mapped there already.";
    ENODEV = 19, "The file can't be mapped.";
    EINVAL = 22, "Invalid argument.";
    ENFILE = 23, "Too many open files in the system.";
    EMFILE = 24, "Too many open files.";
    ENOSYS = 38, "No such call.";
    EOVERFLOW = 75, "The offset is too large.";
    EOPNOTSUPP = 95, "Not supported for this file.";
}

impl Errno {
    /// Returns the error of this number.
    pub const fn new(number: i32) -> Self {
        Self(number)
    }

    /// Returns the error that a system call's result register holds; nothing if the call succeeded.
    ///
    /// ```
    /// use faultless_abi::Errno;
    ///
    /// assert_eq!(Errno::of_result(-22), Some(Errno::EINVAL));
    /// assert_eq!(Errno::of_result(-4096), None, "an address near the end of memory");
    /// ```
    pub const fn of_result(register: i64) -> Option<Self> {
        // As IS_ERR: the last 4095 values are errors.
        match register {
            -4095..0 => Some(Self(-(register as i32))),
            _ => None,
        }
    }

    /// Returns the number, positive.
    pub const fn number(self) -> i32 {
        self.0
    }

    /// Returns what a system call leaves in its result register.
    pub const fn raw(self) -> i64 {
        -(self.0 as i64)
    }
}

impl From<CallError> for Errno {
    fn from(error: CallError) -> Self {
        Self(error.errno())
    }
}

impl fmt::Debug for Errno {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, out)
    }
}

impl fmt::Display for Errno {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.name() {
            Some(name) => out.write_str(name),
            None => write!(out, "errno {}", self.0),
        }
    }
}

impl core::error::Error for Errno {}

#[cfg(test)]
mod tests {
    use super::Errno;
    use std::format;

    #[test]
    fn numbers_are_those_of_the_host() {
        let table = [
            (Errno::EPERM, libc::EPERM),
            (Errno::EIO, libc::EIO),
            (Errno::EBADF, libc::EBADF),
            (Errno::EAGAIN, libc::EAGAIN),
            (Errno::ENOMEM, libc::ENOMEM),
            (Errno::EACCES, libc::EACCES),
            (Errno::EFAULT, libc::EFAULT),
            (Errno::EBUSY, libc::EBUSY),
            (Errno::EEXIST, libc::EEXIST),
            (Errno::ENODEV, libc::ENODEV),
            (Errno::EINVAL, libc::EINVAL),
            (Errno::ENFILE, libc::ENFILE),
            (Errno::EMFILE, libc::EMFILE),
            (Errno::ENOSYS, libc::ENOSYS),
            (Errno::EOVERFLOW, libc::EOVERFLOW),
            (Errno::EOPNOTSUPP, libc::EOPNOTSUPP),
        ];
        for (ours, host) in table {
            assert_eq!(ours.number(), host, "{ours}");
        }
    }

    #[test]
    fn a_number_without_a_name_is_printed_as_a_number() {
        assert_eq!(format!("{} {}", Errno::EINVAL, Errno::new(1234)), "EINVAL errno 1234");
    }
}
