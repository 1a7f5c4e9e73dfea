//! A program's view of the host's own address space.

use std::cell::{Cell, RefCell};
use std::fs::File;
use std::ops::Range;
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;

use faultless_linux::space::{self as host, Behind, Errno, Usage};
use faultless_workloads::{AddressSpace, Backing, Content, FileId, FileName, HeapPolicy, MapCall, Refused, Rights};

/// A thread's view of the process that it runs in.
pub(super) struct HostSpace<'a> {
    common: &'a File,
    open: RefCell<Vec<File>>,
    aside: Cell<Usage>,
}

fn refused(call: &'static str) -> impl Fn(Errno) -> Refused {
    move |errno| Refused::Call { call, errno }
}

fn prot(rights: Rights) -> i32 {
    match rights {
        Rights::None => host::NOTHING,
        Rights::Read => host::READ,
        Rights::ReadWrite => host::READ_WRITE,
    }
}

impl<'a> HostSpace<'a> {
    /// Returns a view; `common` is the file that all open.
    pub(super) fn new(common: &'a File) -> Self {
        Self { common, open: RefCell::default(), aside: Cell::default() }
    }

    /// Returns what the thread used for what it did aside.
    pub(super) fn used_aside(&self) -> Usage {
        self.aside.get()
    }

    fn fd(&self, file: FileId) -> i32 {
        // A descriptor that is none gets the kernel's own answer.
        self.open.borrow().get(file.0 as usize).map_or(-1, |file| file.as_raw_fd())
    }
}

/// Makes a file as long as it has to be, and fills it if it has to be filled.
fn fill(file: &File, len_bytes: u64, content: Content) -> std::io::Result<()> {
    if file.metadata()?.len() < len_bytes {
        file.set_len(len_bytes)?;
    }
    match content {
        Content::Hole => Ok(()),
        Content::Written => {
            let zeros = [0; 4096];
            (0..len_bytes).step_by(zeros.len()).try_for_each(|offset| {
                file.write_all_at(&zeros[..zeros.len().min((len_bytes - offset) as usize)], offset)
            })
        }
    }
}

impl AddressSpace for HostSpace<'_> {
    fn aside(&self, act: &mut dyn FnMut() -> Result<(), Refused>) -> Result<(), Refused> {
        let before = Usage::of_this_thread();
        let result = act();
        self.aside.set(self.aside.get().and(Usage::of_this_thread().since(before)));
        result
    }

    fn map(&self, call: &MapCall) -> Result<u64, Refused> {
        let behind = match call.backing {
            Backing::Anonymous => Behind::Nothing,
            Backing::Private(file) => Behind::Private(self.fd(file)),
            Backing::Shared(file) => Behind::Shared(self.fd(file)),
        };
        host::mmap(call.fixed, call.len_bytes, prot(call.rights), behind).map_err(refused("mmap"))
    }

    fn unmap(&self, range: Range<u64>) -> Result<(), Refused> {
        host::munmap(range).map_err(refused("munmap"))
    }

    fn protect(&self, range: Range<u64>, rights: Rights) -> Result<(), Refused> {
        host::mprotect(range, prot(rights)).map_err(refused("mprotect"))
    }

    fn discard(&self, range: Range<u64>) -> Result<(), Refused> {
        host::discard(range).map_err(refused("madvise"))
    }

    fn set_break(&self, end: u64) -> u64 {
        host::brk(end)
    }

    #[inline]
    fn load(&self, address: u64) -> Result<u64, Refused> {
        Ok(host::load(address))
    }

    #[inline]
    fn store(&self, address: u64, value: u64) -> Result<(), Refused> {
        host::store(address, value);
        Ok(())
    }

    fn copy(&self, from: u64, to: u64, len_bytes: u64) -> Result<(), Refused> {
        host::copy(from, to, len_bytes);
        Ok(())
    }

    fn open(&self, name: FileName, len_bytes: u64, content: Content) -> Result<FileId, Refused> {
        let file = match name {
            FileName::Common => host::reopen(self.common),
            FileName::Own(_) => host::memory_file(),
        };
        let file = file.map_err(refused("open"))?;
        let failed = |error: std::io::Error| refused("write")(error.raw_os_error().unwrap_or(5));
        fill(&file, len_bytes, content).map_err(failed)?;
        let mut open = self.open.borrow_mut();
        open.push(file);
        Ok(FileId(open.len() as u32 - 1))
    }

    fn read(&self, file: FileId, into: u64, len_bytes: u64) -> Result<u64, Refused> {
        host::read(self.fd(file), into, len_bytes).map_err(refused("read"))
    }

    fn rewind(&self, file: FileId) -> Result<(), Refused> {
        host::rewind(self.fd(file)).map_err(refused("lseek"))
    }

    fn fork(&self, life: &mut dyn FnMut(&dyn AddressSpace) -> Result<(), Refused>) -> Result<(), Refused> {
        let child = || {
            life(self).map_err(|cause| match cause {
                Refused::Call { errno, .. } => errno,
                _ => 1,
            })
        };
        host::fork(child).map_err(refused("fork"))
    }

    fn set_heap_policy(&self, policy: HeapPolicy) {
        if policy == HeapPolicy::NeverMap {
            host::never_map_blocks();
        }
    }

    fn allocate(&self, len_bytes: u64) -> Result<u64, Refused> {
        host::malloc(len_bytes).map_err(refused("malloc"))
    }

    fn release(&self, address: u64) -> Result<(), Refused> {
        host::free(address);
        Ok(())
    }
}
