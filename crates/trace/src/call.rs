//! The system calls that change a memory map, or what stands behind one.
//!
//! # Guarantee
//! codes never change their meaning from one format version to the next; new calls get new codes
//!
//! A call that a replay does not model is recorded all the same, under its name, so that the replay can say what it
//! left out.

/// A table of the calls: variant, name, number of arguments.
macro_rules! calls {
    ($($variant:ident = $code:literal, $name:literal, $arity:literal;)*) => {
        /// A memory call.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        #[repr(u8)]
        pub enum Call {
            $(#[doc = concat!("`", $name, "(2)`, of ", $arity, " arguments.")] $variant = $code,)*
        }

        impl Call {
            /// Every call, in the order of the codes.
            pub const ALL: &'static [Call] = &[$(Call::$variant,)*];

            /// Returns the system call's name.
            pub fn name(self) -> &'static str {
                match self { $(Call::$variant => $name,)* }
            }

            /// Returns how many arguments the call takes.
            pub fn arity(self) -> usize {
                match self { $(Call::$variant => $arity,)* }
            }
        }
    };
}

calls! {
    Mmap = 0, "mmap", 6;
    Munmap = 1, "munmap", 2;
    Mprotect = 2, "mprotect", 3;
    Mremap = 3, "mremap", 5;
    Madvise = 4, "madvise", 3;
    Brk = 5, "brk", 1;
    Mlock = 6, "mlock", 2;
    Mlock2 = 7, "mlock2", 3;
    Munlock = 8, "munlock", 2;
    Mlockall = 9, "mlockall", 1;
    Munlockall = 10, "munlockall", 0;
    Msync = 11, "msync", 3;
    Mincore = 12, "mincore", 3;
    RemapFilePages = 13, "remap_file_pages", 5;
    PkeyMprotect = 14, "pkey_mprotect", 4;
    Shmat = 15, "shmat", 3;
    Shmdt = 16, "shmdt", 1;
    IoSetup = 17, "io_setup", 2;
    MapShadowStack = 18, "map_shadow_stack", 3;
    ProcessMadvise = 19, "process_madvise", 5;
    Mseal = 20, "mseal", 3;
    Prctl = 21, "prctl", 5;
    Ftruncate = 22, "ftruncate", 2;
    Fallocate = 23, "fallocate", 4;
    Truncate = 24, "truncate", 2;
    IoDestroy = 25, "io_destroy", 1;
    Ptrace = 26, "ptrace", 4;
    Clone = 27, "clone", 0;
    Userfaultfd = 28, "userfaultfd", 1;
    IoUringSetup = 29, "io_uring_setup", 2;
    Open = 30, "open", 3;
    Openat = 31, "openat", 4;
    Creat = 32, "creat", 2;
    Vmsplice = 33, "vmsplice", 4;
    ProcessVmReadv = 34, "process_vm_readv", 6;
    ProcessVmWritev = 35, "process_vm_writev", 6;
}

impl Call {
    /// Returns the code that the file format stores.
    pub fn code(self) -> u8 {
        self as u8
    }

    /// Returns the call with this code, if there is one.
    pub fn from_code(code: u8) -> Option<Call> {
        Self::ALL.get(usize::from(code)).copied()
    }

    /// Returns the call of this name, if it is one of these.
    pub fn from_name(name: &str) -> Option<Call> {
        Self::ALL.iter().copied().find(|call| call.name() == name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_and_names_find_their_call_again() {
        for (place, &call) in Call::ALL.iter().enumerate() {
            assert_eq!(usize::from(call.code()), place);
            assert_eq!(Call::from_code(call.code()), Some(call));
            assert_eq!(Call::from_name(call.name()), Some(call));
            assert!(call.arity() <= 6);
        }
        assert_eq!(Call::from_code(Call::ALL.len() as u8), None);
        assert_eq!(Call::from_name("read"), None);
    }
}
