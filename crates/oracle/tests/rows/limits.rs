//! Rows 36 and 40: the limits of sizes, and of the number of areas.

use crate::table::row;
use faultless_phys::{Memory, Options};
use faultless_platform::native::{HostRegion, Machine, Native};
use faultless_vm::design::{Design, GenerationOf};
use faultless_vm::registry::{DESIGNS, DesignVisitor, with_design};
use faultless_vm::{
    AddressRange, AreaFlags, Backing, Limits, MapRequest, PAGE, Placement, Populate, Space, VirtAddr, Vm,
};

#[test]
fn row_36_sizes_are_limited() {
    row(
        "root data=0x4000",
        "
        mmap @0 #4 rw private|anon|fixed - 0            => @0
        mmap @8 #1 rw private|anon|fixed - 0            => ENOMEM
        mmap @8 #1 r private|anon|fixed - 0             => @8
        mmap @10 #1 rw shared|anon|fixed - 0            => @10
        mprotect @8 #1 rw                               => ENOMEM
        mremap @0 #4 #5 maymove 0                       => ENOMEM
        munmap @0 #1                                    => ok
        mprotect @8 #1 rw                               => ok
        look                                            => [1,4)rw-p [8,9)rw-p [10,11)rw-s@0
    ",
    );
    row(
        "root as=0x4000",
        "
        mmap @0 #4 r private|anon|fixed - 0             => @0
        mmap @8 #1 r shared|anon|fixed - 0              => ENOMEM
        mmap @2 #2 rw private|anon|fixed - 0            => @2
        mremap @0 #2 #2 maymove|dontunmap 0             => ENOMEM
        mremap @2 #2 #3 maymove 0                       => ENOMEM
    ",
    );
}

/// Where the areas are made: far from what a process maps by itself.
const BASE: u64 = 0x20_0000_0000;

/// A side that can be asked: the kernel, or the VM.
trait Side {
    /// Maps private anonymous pages at a fixed address; 0 or an error's number.
    fn map(&self, start: u64, pages: u64, rights: i32) -> i32;
    fn unmap(&self, start: u64, pages: u64) -> i32;
    fn protect(&self, start: u64, pages: u64, rights: i32) -> i32;
    fn nr_areas(&self) -> u64;
}

/// What the steps of row 40 came to.
#[derive(Debug, PartialEq, Eq)]
#[repr(C)]
struct AtLimit {
    /// How many areas there were when mmap failed.
    nr_areas: u64,
    /// That mmap, one that would join its neighbour, a cut by munmap and by mprotect, a whole munmap, and the next cut.
    errors: [i32; 6],
}

/// Makes areas until no more can be made, then tries what would need another one.
fn fill_up(side: &dyn Side) -> AtLimit {
    assert_eq!(side.map(BASE, 3, libc::PROT_READ), 0);
    assert_eq!(side.map(BASE + 8 * PAGE, 3, libc::PROT_READ), 0);
    let place = |index: u64| BASE + (16 + 2 * index) * PAGE;
    let (mut count, mut error) = (0, 0);
    while error == 0 && count < 1 << 20 {
        error = side.map(place(count), 1, libc::PROT_READ);
        count += 1;
    }
    AtLimit {
        nr_areas: side.nr_areas(),
        errors: [
            error,
            side.map(BASE + 3 * PAGE, 1, libc::PROT_READ),
            side.unmap(BASE + PAGE, 1),
            side.protect(BASE + PAGE, 1, libc::PROT_NONE),
            side.unmap(BASE + 8 * PAGE, 3),
            side.unmap(BASE + PAGE, 1),
        ],
    }
}

#[test]
fn row_40_the_number_of_areas_is_limited() {
    let limit: u64 =
        std::fs::read_to_string("/proc/sys/vm/max_map_count").expect("Linux").trim().parse().expect("a number");
    let no_room = libc::ENOMEM;
    // mmap may exceed the limit by one area; whatever is there then can be unmapped whole, but not cut.
    let expected = AtLimit { nr_areas: limit + 1, errors: [no_room, no_room, no_room, no_room, 0, no_room] };
    assert_eq!(on_kernel(), expected, "the kernel");
    for design in DESIGNS {
        let seen = with_design::<Native, _>(design, "rwsem-v8", OnVm { limit });
        assert_eq!(seen.expect("a design of the registry"), expected, "{design}");
    }
}

struct Kernel;

impl Side for Kernel {
    fn map(&self, start: u64, pages: u64, rights: i32) -> i32 {
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED_NOREPLACE;
        // SAFETY: the range is free, or the call fails.
        let at = unsafe { libc::mmap(start as *mut _, (pages * PAGE) as usize, rights, flags, -1, 0) };
        if at == libc::MAP_FAILED { error() } else { 0 }
    }

    fn unmap(&self, start: u64, pages: u64) -> i32 {
        // SAFETY: the range is ours.
        if unsafe { libc::munmap(start as *mut _, (pages * PAGE) as usize) } == 0 { 0 } else { error() }
    }

    fn protect(&self, start: u64, pages: u64, rights: i32) -> i32 {
        // SAFETY: the range is ours.
        if unsafe { libc::mprotect(start as *mut _, (pages * PAGE) as usize, rights) } == 0 { 0 } else { error() }
    }

    /// Counts the lines of the list, without memory of its own.
    fn nr_areas(&self) -> u64 {
        let (mut lines, mut buffer) = (0, [0_u8; 4096]);
        // SAFETY: the buffer is ours, and as long as told.
        unsafe {
            let file = libc::open(c"/proc/self/maps".as_ptr(), libc::O_RDONLY);
            loop {
                let len = libc::read(file, buffer.as_mut_ptr().cast(), buffer.len());
                if len <= 0 {
                    break;
                }
                lines += buffer[..len as usize].iter().filter(|&&byte| byte == b'\n').count() as u64;
            }
            libc::close(file);
        }
        // The last line is no area of the process ([vsyscall]).
        lines - 1
    }
}

fn error() -> i32 {
    // SAFETY: the calling thread's own number.
    unsafe { *libc::__errno_location() }
}

/// Runs the steps in a process of their own, which ends with all its areas.
fn on_kernel() -> AtLimit {
    let bytes = size_of::<AtLimit>();
    // SAFETY: fresh shared memory; the child writes it once, and only system calls are made there.
    unsafe {
        let flags = libc::MAP_SHARED | libc::MAP_ANONYMOUS;
        let shared = libc::mmap(std::ptr::null_mut(), bytes, libc::PROT_READ | libc::PROT_WRITE, flags, -1, 0);
        assert_ne!(shared, libc::MAP_FAILED);
        let result = shared.cast::<AtLimit>();
        match libc::fork() {
            0 => {
                result.write(fill_up(&Kernel));
                libc::_exit(0);
            }
            child => {
                let mut status = -1;
                assert_eq!(libc::waitpid(child, &mut status, 0), child);
                assert_eq!(status, 0, "the child ends well");
            }
        }
        let seen = result.read();
        libc::munmap(shared, bytes);
        seen
    }
}

struct OnVm {
    limit: u64,
}

impl DesignVisitor<Native> for OnVm {
    type Output = AtLimit;

    fn visit<D: Design<Native>>(self, semaphore: GenerationOf<Native, D>) -> AtLimit {
        let region = HostRegion::reserve(128 << 20).expect("the host has room");
        Machine::new(1).attach(|| {
            // SAFETY: the region is zeroed, ours alone, and outlives the instance.
            let memory = unsafe { Memory::new(region.base(), region.len_bytes(), 1, Options::default()) };
            let vm = Vm::<Native, D>::with_semaphore(memory.expect("large enough"), semaphore).expect("a frame");
            let space = vm.create_space(Limits { max_map_count: self.limit, ..Limits::default() }).expect("room");
            let seen = fill_up(&OneSpace(&space));
            drop(space);
            seen
        })
    }
}

struct OneSpace<'a, D: Design<Native>>(&'a Space<Native, D>);

impl<D: Design<Native>> Side for OneSpace<'_, D> {
    fn map(&self, start: u64, pages: u64, rights: i32) -> i32 {
        let flags = if rights == libc::PROT_READ { AreaFlags::READ } else { AreaFlags::empty() };
        let request = MapRequest {
            placement: Placement::FixedNoReplace(VirtAddr::new(start)),
            len_bytes: pages * PAGE,
            protection: flags.protection(),
            options: flags.options(),
            backing: Backing::Anonymous,
            populate: Populate::OnFault,
        };
        self.0.mmap(&request).map_or_else(|error| error.errno(), |_| 0)
    }

    fn unmap(&self, start: u64, pages: u64) -> i32 {
        self.0.munmap(AddressRange::new(VirtAddr::new(start), pages * PAGE)).map_or_else(|error| error.errno(), |()| 0)
    }

    fn protect(&self, start: u64, pages: u64, rights: i32) -> i32 {
        let flags = if rights == libc::PROT_READ { AreaFlags::READ } else { AreaFlags::empty() };
        self.0
            .mprotect(AddressRange::new(VirtAddr::new(start), pages * PAGE), flags.protection())
            .map_or_else(|error| error.errno(), |()| 0)
    }

    fn nr_areas(&self) -> u64 {
        self.0.nr_areas()
    }
}
