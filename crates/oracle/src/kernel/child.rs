//! The judged process: alone in its address space, with two zones to play in.
//!
//! # Guarantee
//! The process keeps its code, the block, and an arena; everything else that it inherits is unmapped, and all free
//! addresses but the zones are filled with inaccessible mappings, so that whatever the kernel places lands in the
//! window. It uses no heap, no thread-local and no function of the C library that needs one.
//!
//! # Invariants
//! * I1 after `shed`, system calls are raw.
//! * I2 the fillers beside the window are shared mappings: they never join what sequences map.

use std::os::fd::RawFd;

use super::attempt::{SLOT_BYTES, Slot};
use super::block::Block;
use super::look::Inodes;
use super::op::{FILE_BYTES, FILE_CONTENT, REFERENCE_BYTE, REFERENCE_BYTES};
use super::sys::{AREA_SHARED, area_from, raw};
use super::zone::{HEAP_START, LOW_END, PAGE, USER_END, WINDOW, WINDOW_BYTES};

/// The process could not be made ready.
pub(super) const EXIT_SETUP: i32 = 91;

/// Threads, and processes that share memory with their parent, at once.
pub(super) const NR_SLOTS: usize = 8;

/// Room for what is read and written.
pub(super) const SCRATCH_BYTES: u64 = 64 << 10;

/// What the child is started with.
#[derive(Clone, Copy)]
pub(super) struct Start {
    pub(super) block: Block,
    pub(super) commands: RawFd,
    pub(super) reports: RawFd,
    /// The user to become.
    pub(super) becomes: Option<u32>,
    pub(super) keeper: i32,
}

/// The descriptors of sequences.
#[derive(Clone, Copy, Default)]
pub(super) struct Descriptors {
    pub(super) read_write: i32,
    pub(super) read_only: i32,
    pub(super) write_only: i32,
    pub(super) empty: i32,
    pub(super) reference: i32,
    pub(super) pipe_out: i32,
    pub(super) pipe_in: i32,
    pub(super) null: i32,
    pub(super) maps: i32,
    pub(super) pagemap: i32,
    statm: i32,
}

/// The process.
pub(super) struct Child {
    pub(super) start: Start,
    pub(super) fds: Descriptors,
    pub(super) inodes: Inodes,
    pub(super) slots: u64,
    pub(super) scratch: u64,
    pub(super) has_used_files: bool,
    has_set_bounds: bool,
    usual_bounds: [[u64; 2]; 4],
    has_heap: bool,
}

/// The resources of [`super::Bounds`], in order.
const RESOURCES: [u32; 4] = [libc::RLIMIT_AS, libc::RLIMIT_DATA, libc::RLIMIT_MEMLOCK, libc::RLIMIT_STACK];

impl Child {
    /// Makes the arena and the descriptors, and puts the child in the arena.
    pub(super) fn new(start: Start) -> Option<&'static mut Self> {
        let arena_bytes = (NR_SLOTS as u64 + 1) * SLOT_BYTES + SCRATCH_BYTES + PAGE;
        let arena =
            map(0, arena_bytes, libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS, -1)?;
        let slots = arena.next_multiple_of(SLOT_BYTES);
        let scratch = slots + NR_SLOTS as u64 * SLOT_BYTES;
        let place = (scratch + SCRATCH_BYTES) as *mut Self;
        let fds = Descriptors::open()?;
        let inodes =
            Inodes { read_write: inode(fds.read_write)?, empty: inode(fds.empty)?, reference: inode(fds.reference)? };
        let child = Self {
            start,
            fds,
            inodes,
            slots,
            scratch,
            has_used_files: true,
            has_set_bounds: false,
            usual_bounds: [[0; 2]; 4],
            has_heap: false,
        };
        // SAFETY: the place is inside the arena, aligned, and ours.
        unsafe {
            place.write(child);
            Some(&mut *place)
        }
    }

    /// Returns the memory of a thread.
    pub(super) fn slot(&self, place: usize) -> Slot {
        assert!(place < NR_SLOTS);
        // SAFETY: the arena holds as many slots, aligned; each is used by one thread at a time.
        unsafe { Slot::new(self.slots + place as u64 * SLOT_BYTES) }
    }

    /// Sheds, fills, drops rights, measures.
    pub(super) fn settle(&mut self) -> Result<(), i32> {
        self.shed();
        fill_around()?;
        self.has_heap = move_heap().is_ok();
        if let Some(user) = self.start.becomes {
            become_user(user)?;
        }
        self.reopen_maps();
        for (resource, usual) in RESOURCES.iter().zip(&mut self.usual_bounds) {
            // SAFETY: the kernel writes the two numbers.
            unsafe { raw!(libc::SYS_prlimit64, 0, *resource, 0, usual.as_mut_ptr()) }?;
        }
        let (pages, data) = self.usage();
        // SAFETY: the keeper waits.
        unsafe {
            let control = self.start.block.control();
            (*control).baseline_pages = pages;
            (*control).baseline_data = data;
            (*control).has_heap = u64::from(self.has_heap);
        }
        Ok(())
    }

    /// Unmaps everything but code, block and arena.
    fn shed(&self) {
        let (block, block_bytes) = self.start.block.range();
        let mut position = 0;
        let mut kept_end = 0;
        while let Some(area) = area_from(self.fds.maps, position).filter(|area| area.start < USER_END) {
            let is_file = area.inode != 0 && area.flags & AREA_SHARED == 0;
            // What follows a file's data without a gap and is no file is its zeros (.bss).
            let holds = |address: u64| (area.start..area.end).contains(&address);
            // The kernel itself writes to the thread's own memory (restartable sequences).
            let is_ours =
                holds(self.slots) || holds(thread_pointer()) || (block..block + block_bytes).contains(&area.start);
            if is_file || is_ours || area.start == kept_end && area.flags & AREA_SHARED == 0 {
                kept_end = if is_file { area.end } else { 0 };
            } else {
                // SAFETY: nothing of it is used any more (I1).
                let _ = unsafe { raw!(libc::SYS_munmap, area.start, area.end - area.start) };
            }
            position = area.end;
        }
    }

    /// Returns the pages mapped, and those that count as data.
    fn usage(&self) -> (u64, u64) {
        // SAFETY: the kernel writes at most the scratch memory.
        let read = unsafe { raw!(libc::SYS_pread64, self.fds.statm, self.scratch, 256, 0) };
        // SAFETY: so many bytes were written there.
        let text = unsafe { std::slice::from_raw_parts(self.scratch as *const u8, read.unwrap_or(0) as usize) };
        let mut numbers = [0; 7];
        let mut place = 0;
        for &byte in text {
            match byte {
                b'0'..=b'9' if place < 7 => numbers[place] = numbers[place] * 10 + u64::from(byte - b'0'),
                _ => place += 1,
            }
        }
        (numbers[0], numbers[5])
    }

    /// Opens the area list and the page map of the calling process.
    pub(super) fn reopen_maps(&mut self) {
        self.fds.maps = reopened(self.fds.maps, c"/proc/self/maps");
        self.fds.pagemap = reopened(self.fds.pagemap, c"/proc/self/pagemap");
    }

    /// Removes what the last sequence left, and checks that nothing is left.
    pub(super) fn clean(&mut self) -> Result<(), i32> {
        if self.has_heap {
            self.reset_heap()?;
        }
        // SAFETY: the zones hold nothing but what sequences map.
        unsafe {
            raw!(libc::SYS_munmap, WINDOW, WINDOW_BYTES)?;
            raw!(libc::SYS_munmap, 0, LOW_END)?;
        }
        if self.has_used_files {
            self.reset_files()?;
            self.has_used_files = false;
        }
        let is_bare = |from, next| area_from(self.fds.maps, from).is_some_and(|area| area.start == next);
        if is_bare(0, LOW_END) && is_bare(WINDOW, WINDOW + WINDOW_BYTES) { Ok(()) } else { Err(0) }
    }

    fn reset_heap(&self) -> Result<(), i32> {
        // SAFETY: the heap lies in the window, where nothing is needed any more.
        unsafe {
            let end = raw!(libc::SYS_brk, 0)?;
            if end != HEAP_START {
                let first = HEAP_START & !(PAGE - 1);
                let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED;
                raw!(libc::SYS_mmap, first, end.max(HEAP_START + PAGE) - first, 0, flags, -1_i64, 0)?;
                raw!(libc::SYS_brk, HEAP_START)?;
            }
        }
        Ok(())
    }

    fn reset_files(&self) -> Result<(), i32> {
        // SAFETY: the kernel reads the content, which is as long as is written.
        unsafe {
            raw!(libc::SYS_ftruncate, self.fds.empty, 0)?;
            raw!(libc::SYS_ftruncate, self.fds.read_write, 0)?;
            raw!(libc::SYS_pwrite64, self.fds.read_write, FILE_CONTENT.as_ptr(), FILE_BYTES, 0)?;
        }
        Ok(())
    }

    pub(super) fn set_bounds(&mut self, bounds: &[u64; 4]) -> Result<(), i32> {
        // SAFETY: a plain number.
        let control = unsafe { &*self.start.block.control() };
        let offsets = [control.baseline_pages * PAGE, control.baseline_data * PAGE, 0, 0];
        for place in 0..4 {
            if bounds[place] != u64::MAX {
                let most = self.usual_bounds[place][1];
                let limit = [bounds[place].saturating_add(offsets[place]).min(most), most];
                // SAFETY: the kernel reads the two numbers.
                unsafe { raw!(libc::SYS_prlimit64, 0, RESOURCES[place], limit.as_ptr(), 0) }?;
                self.has_set_bounds = true;
            }
        }
        Ok(())
    }

    pub(super) fn unset_bounds(&mut self) {
        if self.has_set_bounds {
            for (resource, usual) in RESOURCES.iter().zip(&self.usual_bounds) {
                // SAFETY: the kernel reads the two numbers.
                let _ = unsafe { raw!(libc::SYS_prlimit64, 0, *resource, usual.as_ptr(), 0) };
            }
            self.has_set_bounds = false;
        }
    }
}

impl Descriptors {
    fn open() -> Option<Self> {
        // SAFETY: paths and names are C strings; the kernel writes the two descriptors.
        unsafe {
            let open = |path: &std::ffi::CStr, flags| {
                Some(libc::open(path.as_ptr(), flags | libc::O_CLOEXEC)).filter(|&fd| fd >= 0)
            };
            let file = |name: &std::ffi::CStr| {
                Some(libc::memfd_create(name.as_ptr(), libc::MFD_CLOEXEC)).filter(|&fd| fd >= 0)
            };
            let mut pipe = [0; 2];
            if libc::pipe2(pipe.as_mut_ptr(), libc::O_CLOEXEC | libc::O_NONBLOCK) != 0 {
                return None;
            }
            let read_write = file(c"rw")?;
            Some(Self {
                read_write,
                read_only: again(read_write, libc::O_RDONLY)?,
                write_only: again(read_write, libc::O_WRONLY)?,
                empty: file(c"empty")?,
                reference: reference()?,
                pipe_out: pipe[1],
                pipe_in: pipe[0],
                null: open(c"/dev/null", libc::O_WRONLY)?,
                maps: open(c"/proc/self/maps", libc::O_RDONLY)?,
                pagemap: open(c"/proc/self/pagemap", libc::O_RDONLY)?,
                statm: open(c"/proc/self/statm", libc::O_RDONLY)?,
            })
        }
    }
}

/// Makes the file that stands for a reference page: its content can't change any more, and it is open for reading.
fn reference() -> Option<i32> {
    const CHUNK_BYTES: u64 = 16 * 4096;
    static CHUNK: [u8; CHUNK_BYTES as usize] = [REFERENCE_BYTE; CHUNK_BYTES as usize];
    // SAFETY: the name is a C string, and the kernel reads the chunk.
    unsafe {
        let fd = libc::memfd_create(c"ref".as_ptr(), libc::MFD_CLOEXEC | libc::MFD_ALLOW_SEALING);
        for offset in (0..REFERENCE_BYTES).step_by(CHUNK_BYTES as usize) {
            let written = libc::pwrite(fd, CHUNK.as_ptr().cast(), CHUNK.len(), offset as i64);
            if written != CHUNK.len() as isize {
                return None;
            }
        }
        let seals = libc::F_SEAL_WRITE | libc::F_SEAL_SHRINK | libc::F_SEAL_GROW | libc::F_SEAL_SEAL;
        let opened = again(fd, libc::O_RDONLY).filter(|_| libc::fcntl(fd, libc::F_ADD_SEALS, seals) == 0)?;
        libc::close(fd);
        Some(opened)
    }
}

/// Closes a file, and opens that of the calling process in its place.
fn reopened(fd: i32, path: &std::ffi::CStr) -> i32 {
    // SAFETY: the path is a C string, and the file is ours.
    unsafe {
        let _ = raw!(libc::SYS_close, fd);
        raw!(libc::SYS_openat, libc::AT_FDCWD, path.as_ptr(), libc::O_RDONLY | libc::O_CLOEXEC)
            .map_or(-1, |fd| fd as i32)
    }
}

/// Returns where the thread's own memory is.
fn thread_pointer() -> u64 {
    let pointer;
    // SAFETY: on x86-64 the first word there is its own address.
    unsafe { core::arch::asm!("mov {}, fs:0", out(reg) pointer, options(nostack, readonly, preserves_flags)) };
    pointer
}

/// Opens a file that is open already, for other purposes.
fn again(fd: i32, flags: i32) -> Option<i32> {
    let mut path = [0_u8; 32];
    let text = b"/proc/self/fd/";
    path[..text.len()].copy_from_slice(text);
    let (mut rest, mut at) = (fd, text.len() + 4);
    while at > text.len() {
        at -= 1;
        path[at] = b'0' + (rest % 10) as u8;
        rest /= 10;
    }
    // "/proc/self/fd/0012" would be no name: leave the leading zeros out.
    let zeros = path[text.len()..text.len() + 3].iter().take_while(|&&digit| digit == b'0').count();
    path.copy_within(text.len() + zeros.., text.len());
    // SAFETY: the path ends with a zero byte.
    Some(unsafe { libc::open(path.as_ptr().cast(), flags | libc::O_CLOEXEC) }).filter(|&fd| fd >= 0)
}

fn inode(fd: i32) -> Option<u64> {
    // SAFETY: the kernel writes the structure whole.
    unsafe {
        let mut stat: libc::stat = std::mem::zeroed();
        (libc::fstat(fd, &mut stat) == 0).then_some(stat.st_ino)
    }
}

fn map(at: u64, len: u64, rights: i32, flags: i32, fd: i32) -> Option<u64> {
    // SAFETY: the callers map free memory.
    unsafe { raw!(libc::SYS_mmap, at, len, rights, flags, fd as i64, 0) }.ok()
}

/// Fills all free addresses but the zones with inaccessible mappings (I2).
fn fill_around() -> Result<(), i32> {
    let common = libc::MAP_ANONYMOUS | libc::MAP_NORESERVE | libc::MAP_FIXED_NOREPLACE;
    for page in [WINDOW - PAGE, WINDOW + WINDOW_BYTES] {
        map(page, PAGE, libc::PROT_NONE, common | libc::MAP_SHARED, -1).ok_or(libc::ENOMEM)?;
    }
    // SAFETY: the path is a C string.
    let maps = unsafe { raw!(libc::SYS_openat, libc::AT_FDCWD, c"/proc/self/maps".as_ptr(), libc::O_RDONLY) }? as i32;
    let mut position = LOW_END;
    while position < USER_END {
        let next = area_from(maps, position).map_or(USER_END, |area| area.start.min(USER_END));
        if position < next && position != WINDOW {
            map(position, next - position, libc::PROT_NONE, common | libc::MAP_PRIVATE, -1).ok_or(libc::ENOMEM)?;
        }
        position = area_from(maps, next).map_or(USER_END, |area| area.end);
    }
    // SAFETY: a descriptor of ours.
    unsafe { raw!(libc::SYS_close, maps) }.map(|_| ())
}

/// Lets the heap begin in the window, and forgets the program's own data, whose size counts with the heap's.
fn move_heap() -> Result<(), i32> {
    // All at once, which needs no rights; what is neither data nor heap is anywhere, in order.
    let below = WINDOW - PAGE;
    let mut map = [below; 13];
    (map[0], map[4], map[5]) = (below - PAGE, HEAP_START, HEAP_START);
    // No auxiliary vector, no other executable.
    (map[11], map[12]) = (0, u64::from(u32::MAX) << 32);
    // SAFETY: the kernel reads the map and keeps the numbers; the C library's heap is not used any more.
    unsafe { raw!(libc::SYS_prctl, libc::PR_SET_MM, libc::PR_SET_MM_MAP, map.as_ptr(), size_of_val(&map), 0) }?;
    Ok(())
}

fn become_user(user: u32) -> Result<(), i32> {
    // SAFETY: the calls change the process's rights only.
    unsafe {
        raw!(libc::SYS_setgroups, 0, 0)?;
        raw!(libc::SYS_setresgid, user, user, user)?;
        raw!(libc::SYS_setresuid, user, user, user)?;
        // Otherwise its own /proc entries would be closed to it.
        raw!(libc::SYS_prctl, libc::PR_SET_DUMPABLE, 1, 0, 0, 0)?;
    }
    Ok(())
}
