//! Answers to raw numbers, each as the kernel gives it; the crate `oracle` compares many more with the kernel itself.

use faultless_abi::{Calls, Errno, File, FileMode, refpage_create, refpage_create_sized};
use faultless_phys::{Memory, Options};
use faultless_platform::native::{HostRegion, Machine, Native};
use faultless_sync::Rwsem;
use faultless_vm::design::VmaLock;
use faultless_vm::{AreaFlags, AreaLine, Limits, ObjectSpec, Space, USER_END, Vm, WriteNotice, ZeroSource};

type Design = VmaLock<Rwsem<Native>>;

const PAGE: u64 = 4096;
const NO_FILE: u64 = u64::MAX;
const READ_WRITE: u64 = 3;
const PRIVATE: u64 = 0x22;
const DROPPABLE: u64 = 0x28;
const FIXED: u64 = 0x10;
const LOW_2G: u64 = 0x40;

/// Runs `test` on a fresh space.
fn with_space(test: impl FnOnce(&Vm<Native, Design>, &Space<Native, Design>)) {
    with_limits(Limits { lock_bytes: 64 * PAGE, ..Limits::default() }, test);
}

fn with_limits(limits: Limits, test: impl FnOnce(&Vm<Native, Design>, &Space<Native, Design>)) {
    let region = HostRegion::reserve(16 << 20).expect("address space");
    Machine::new(1).attach(|| {
        // SAFETY: the region is fresh, so zero, used by this memory alone, and outlives the instance.
        let memory = unsafe { Memory::new(region.base(), region.len_bytes(), 1, Options::default()) };
        let vm = Vm::<Native, Design>::new(memory.expect("memory")).expect("an instance");
        let space = vm.create_space(limits).expect("a space");
        test(&vm, &space);
    });
}

fn map(space: &Space<Native, Design>, start: u64, len: u64, flags: u64) -> Result<u64, Errno> {
    Calls::new(space).mmap([start, len, READ_WRITE, flags, NO_FILE, 0], None)
}

fn areas(space: &Space<Native, Design>) -> Vec<AreaLine> {
    let mut lines = Vec::new();
    space.for_each_area(|line| lines.push(line));
    lines
}

#[test]
fn low_mappings_go_up_from_one_gibibyte() {
    with_space(|_, space| {
        assert_eq!(map(space, 0, 2 * PAGE, PRIVATE | LOW_2G), Ok(0x4000_0000));
        assert_eq!(map(space, 0, 2 * PAGE, PRIVATE | LOW_2G), Ok(0x4000_2000));
        assert_eq!(map(space, 0x800, 2 * PAGE, PRIVATE | LOW_2G), Ok(0x4000_4000), "a hint in page 0 is none");
    });
}

#[test]
fn a_low_mapping_begins_where_a_huge_page_could() {
    with_space(|_, space| {
        let huge = 2 << 20;
        assert_eq!(
            map(space, 0, huge, PRIVATE | LOW_2G),
            Ok(0x4020_0000),
            "the upper end of the padding, as elsewhere"
        );
        assert_eq!(map(space, 0, huge, PRIVATE | LOW_2G), Ok(0x4060_0000));
        assert_eq!(map(space, 0x800, huge, PRIVATE | LOW_2G), Ok(0x40a0_0000), "a hint in page 0 is none");
        assert_eq!(map(space, 0, huge + PAGE, PRIVATE | LOW_2G), Ok(0x40c0_0000), "no whole number of huge pages");
        assert_eq!(map(space, 0, 0x3f00_0000, PRIVATE | LOW_2G), Ok(0x40e0_1000), "no room for the padding");
    });
}

#[test]
fn a_low_mapping_takes_its_hint_only_below_two_gibibytes() {
    with_space(|_, space| {
        assert_eq!(map(space, 0x1234_5123, 2 * PAGE, PRIVATE | LOW_2G), Ok(0x1234_5000));
        assert_eq!(map(space, 0x7fff_e000, 2 * PAGE, PRIVATE | LOW_2G), Ok(0x7fff_e000), "ends at 2 GiB");
        assert_eq!(map(space, 0x7fff_f000, 2 * PAGE, PRIVATE | LOW_2G), Ok(0x4000_0000), "would end above");
    });
}

#[test]
fn low_room_is_used_to_the_last_page() {
    with_space(|_, space| {
        let all = 0x4000_0000;
        assert_eq!(map(space, 0, all + PAGE, PRIVATE | LOW_2G), Err(Errno::ENOMEM));
        assert_eq!(map(space, 0x4000_0000, all - PAGE, PRIVATE | FIXED), Ok(0x4000_0000));
        assert_eq!(map(space, 0, 2 * PAGE, PRIVATE | LOW_2G), Err(Errno::ENOMEM));
        assert_eq!(map(space, 0, PAGE, PRIVATE | LOW_2G), Ok(0x7fff_f000));
        assert_eq!(map(space, 0, PAGE, PRIVATE | LOW_2G), Err(Errno::ENOMEM));
    });
}

#[test]
fn a_stack_just_above_keeps_its_gap_free_of_low_mappings() {
    const GROWSDOWN: u64 = 0x100;
    const GAP: u64 = 256 * PAGE;
    with_space(|_, space| {
        assert_eq!(map(space, 0x8000_0000, PAGE, PRIVATE | FIXED | GROWSDOWN), Ok(0x8000_0000));
        assert_eq!(map(space, 0, 0x4000_0000 - GAP + PAGE, PRIVATE | LOW_2G), Err(Errno::ENOMEM));
        assert_eq!(map(space, 0, 0x4000_0000 - GAP, PRIVATE | LOW_2G), Ok(0x4000_0000));
    });
}

#[test]
fn droppable_memory_is_wiped_not_dumped_and_never_locked() {
    const LOCKED: u64 = 0x2000;
    with_space(|_, space| {
        assert_eq!(map(space, 0, PAGE, DROPPABLE | LOCKED), Err(Errno::EINVAL));
        assert_eq!(Calls::new(space).mlockall(2), Ok(0), "MCL_FUTURE");
        let start = map(space, 0, PAGE, DROPPABLE).expect("droppable memory");
        let flags = areas(space)[0].flags;
        let brought = AreaFlags::DROPPABLE | AreaFlags::NORESERVE | AreaFlags::WIPEONFORK | AreaFlags::NO_DUMP;
        assert!(flags.contains(brought), "{flags:?}");
        assert!(!flags.intersects(AreaFlags::LOCKS), "{flags:?}");
        assert_eq!(Calls::new(space).madvise(start, PAGE, 19), Err(Errno::EINVAL), "MADV_KEEPONFORK");
    });
}

#[test]
fn a_fixed_address_near_the_top_is_its_own_error_number() {
    with_space(|_, space| {
        assert_eq!(map(space, 0u64.wrapping_sub(PAGE) + 4089, PAGE, PRIVATE | FIXED), Err(Errno::new(7)));
        assert_eq!(map(space, 0, USER_END + PAGE, PRIVATE | FIXED), Err(Errno::ENOMEM));
        assert_eq!(map(space, PAGE + 1, PAGE, PRIVATE | FIXED), Err(Errno::EINVAL));
    });
}

#[test]
fn a_files_refusal_comes_after_the_place() {
    const SHARED: u64 = 1;
    with_space(|vm, space| {
        let spec = ObjectSpec { identity: 1, size_bytes: PAGE, source: &ZeroSource, write_notice: WriteNotice::None };
        let object = vm.create_object(&spec).expect("an object");
        let calls = Calls::new(space);
        let map = |start, flags, file| calls.mmap([start, PAGE, READ_WRITE, flags, 3, 0], file);
        let read_only = File::new(&object, FileMode::READ);
        let pipe = File::unmappable(FileMode::READ | FileMode::WRITE);
        assert_eq!(map(0, SHARED, None), Err(Errno::EBADF));
        assert_eq!(map(0, SHARED, Some(read_only)), Err(Errno::EACCES));
        assert_eq!(map(0, SHARED, Some(pipe)), Err(Errno::ENODEV));
        assert_eq!(map(1, SHARED | FIXED, Some(pipe)), Err(Errno::EINVAL), "the place is looked at first");
        assert!(areas(space).is_empty(), "a refusal maps nothing");
        assert!(map(0, 2, Some(read_only)).is_ok(), "a private mapping may be written");
    });
}

#[test]
fn ints_lose_their_upper_half() {
    with_space(|_, space| {
        let start = map(space, 0, PAGE, PRIVATE).expect("a mapping");
        let calls = Calls::new(space);
        assert_eq!(calls.madvise(start, PAGE, 1 << 32 | 4), Ok(0), "MADV_DONTNEED");
        assert_eq!(calls.mlock2(start, PAGE, 1 << 32), Ok(0));
        assert_eq!(calls.mremap([start, PAGE, PAGE, 1 << 32, 0]), Err(Errno::EINVAL), "a long: every bit counts");
    });
}

#[test]
fn a_reference_page_without_a_descriptor_leaves_nothing() {
    let region = HostRegion::reserve(16 << 20).expect("address space");
    Machine::new(1).attach(|| {
        // SAFETY: the region is fresh, so zero, used by this memory alone, and outlives the instance.
        let memory = unsafe { Memory::new(region.base(), region.len_bytes(), 1, Options::default()) };
        let vm = Vm::<Native, Design>::new(memory.expect("memory")).expect("an instance");
        let space = vm.create_space(Limits::default()).expect("a space");
        let content = map(&space, 0, PAGE, PRIVATE).expect("room");
        let nr_pages = || {
            let mut nr = 0;
            vm.for_each_reference(|_| nr += 1);
            nr
        };
        for errno in [Errno::EMFILE, Errno::ENFILE] {
            assert_eq!(refpage_create(&space, [content, 0], |_, _| Err(errno)), Err(errno));
            assert_eq!(refpage_create_sized(&space, [content, 8, 0], |_, _| Err(errno)), Err(errno));
            assert_eq!(nr_pages(), 0);
        }
        let answer = |content, flags| refpage_create(&space, [content, flags], |_, _| Ok(3));
        assert_eq!(answer(content, 1), Err(Errno::EINVAL));
        assert_eq!(answer(content + 1, 0), Err(Errno::EFAULT));
        assert_eq!(answer(0, 0), Err(Errno::EFAULT));
        let sized = |content, size| refpage_create_sized(&space, [content, size, 0], |_, _| Ok(3));
        assert_eq!(sized(content + 1, 2), Err(Errno::EINVAL));
        assert_eq!(sized(content, 1 << 32), Err(Errno::EINVAL), "no size is left of the upper half");
        assert_eq!(sized(0, 1), Err(Errno::EFAULT));
        // mmap(2) of the file: for reading alone, and closed on exec.
        let mut files = Vec::new();
        let mut install = |handle, open_flags| {
            assert_eq!(open_flags, (libc::O_RDONLY | libc::O_CLOEXEC) as u64);
            files.push(handle);
            Ok(files.len() as u64 + 2)
        };
        assert_eq!(refpage_create(&space, [content, 0], &mut install), Ok(3));
        assert_eq!(refpage_create_sized(&space, [content, 8, 0], install), Ok(4));
        let mmap =
            |prot, flags| Calls::new(&space).mmap([0, PAGE, prot, flags, 3, 0], Some(File::reference(&files[0])));
        assert_eq!(mmap(READ_WRITE, 1), Err(Errno::EACCES));
        let shared = mmap(1, 1).expect("may be read");
        assert_eq!(Calls::new(&space).mprotect(shared, PAGE, READ_WRITE), Err(Errno::EACCES));
        let private = mmap(READ_WRITE, 2).expect("room");
        // The descriptors may be closed while the page is mapped; it goes with the last mapping.
        drop(files);
        assert_eq!(nr_pages(), 1);
        assert_eq!(Calls::new(&space).munmap(shared, PAGE), Ok(0));
        assert_eq!(nr_pages(), 1);
        assert_eq!(Calls::new(&space).munmap(private, PAGE), Ok(0));
        vm.flush();
        assert_eq!(nr_pages(), 0);
    });
}

#[test]
fn a_file_where_nothing_may_be_executed_is_never_made_executable() {
    with_space(|vm, space| {
        let spec =
            ObjectSpec { identity: 1, size_bytes: 4 * PAGE, source: &ZeroSource, write_notice: WriteNotice::None };
        let object = vm.create_object(&spec).expect("an object");
        let calls = Calls::new(space);
        let file = |mode| Some(File::new(&object, mode));
        let usual = FileMode::READ | FileMode::WRITE;
        for flags in [1, 2] {
            let asked = |prot| [0, 2 * PAGE, prot, flags, 3, 0];
            assert_eq!(calls.mmap(asked(5), file(usual | FileMode::NO_EXEC)), Err(Errno::EPERM));
            let denied = calls.mmap(asked(3), file(usual | FileMode::NO_EXEC)).expect("room");
            let allowed = calls.mmap(asked(3), file(usual)).expect("room");
            assert_eq!(calls.mprotect(denied, PAGE, 5), Err(Errno::EACCES));
            assert_eq!(calls.mprotect(denied, PAGE, 1), Ok(0));
            assert_eq!(calls.mprotect(denied, PAGE, 4), Err(Errno::EACCES));
            assert_eq!(calls.mprotect(allowed, PAGE, 5), Ok(0));
        }
        let denied = calls.mmap([0, 2 * PAGE, 3, 1, 3, 0], file(usual | FileMode::NO_EXEC)).expect("room");
        assert_eq!(calls.remap_file_pages([denied, PAGE, 0, 1, 0]), Ok(0));
        assert_eq!(calls.mprotect(denied, PAGE, 5), Err(Errno::EACCES), "what was shown anew is of that file, too");
    });
}

#[test]
fn an_ordinary_file_has_no_huge_pages() {
    with_space(|vm, space| {
        let spec = ObjectSpec { identity: 1, size_bytes: PAGE, source: &ZeroSource, write_notice: WriteNotice::None };
        let object = vm.create_object(&spec).expect("an object");
        let (calls, huge) = (Calls::new(space), 0x4_0000);
        let file = || Some(File::new(&object, FileMode::READ | FileMode::WRITE));
        assert_eq!(calls.mmap([0, PAGE, 3, 2 | huge, 3, 0], file()), Err(Errno::EINVAL));
        // Linux looks for the file first, and at its kind before the length.
        assert_eq!(calls.mmap([0, PAGE, 3, 2 | huge, 3, 0], None), Err(Errno::EBADF));
        assert_eq!(calls.mmap([0, 0, 3, 2 | huge | FIXED, 3, 0], file()), Err(Errno::EINVAL));
    });
}

/// What Linux 6.18 answered on a machine whose pool of huge pages is empty.
#[test]
fn there_are_no_huge_pages() {
    with_space(|_, space| {
        let (calls, huge) = (Calls::new(space), 0x4_0000);
        let (shared, private, droppable, grows) = (0x21, 0x22, 0x28, 0x122);
        let size = |bits: u64| bits << 26;
        let (place, beside) = (0x1000_0000_0000, 0x1000_0000_1000);
        let cases = [
            (0, PAGE, private, Errno::ENOMEM),
            (0, PAGE, shared, Errno::ENOMEM),
            (0, PAGE, private | size(21), Errno::ENOMEM),
            (0, PAGE, private | size(30), Errno::ENOMEM),
            (0, 1 << 48, private, Errno::ENOMEM),
            (place, PAGE, private | FIXED, Errno::ENOMEM),
            (0, PAGE, private | size(20), Errno::EINVAL),
            (0, PAGE, private | size(63), Errno::EINVAL),
            (0, 0, private, Errno::EINVAL),
            (0, PAGE, 0x20, Errno::EINVAL),
            (0, PAGE, grows, Errno::EINVAL),
            (0, PAGE, droppable, Errno::EINVAL),
            (beside, PAGE, private | FIXED, Errno::EINVAL),
        ];
        for (start, len, flags, expected) in cases {
            let answer = calls.mmap([start, len, 3, flags | huge, u64::MAX, 0], None);
            assert_eq!(answer, Err(expected), "{start:#x} {len:#x} {flags:#x}");
        }
    });
}

#[test]
fn there_are_no_protection_keys() {
    with_space(|_, space| {
        let calls = Calls::new(space);
        let none = u64::from(u32::MAX);
        let at = calls.mmap([0, PAGE, 3, 0x22, u64::MAX, 0], None).expect("room");
        assert_eq!(calls.pkey_mprotect(at, PAGE, 1, none), Ok(0));
        assert_eq!(calls.pkey_mprotect(at, PAGE, 1, u64::MAX), Ok(0), "an int");
        assert_eq!(calls.pkey_mprotect(at, PAGE, 1, 0), Err(Errno::EINVAL));
        assert_eq!(calls.pkey_mprotect(at, 0, 1, 7), Ok(0), "nothing is looked at");
        assert_eq!(calls.pkey_mprotect(at + PAGE, PAGE, 1, none), Err(Errno::ENOMEM));
        assert_eq!(calls.pkey_alloc(0, 0), Err(Errno::EINVAL));
        assert_eq!(calls.pkey_free(0), Err(Errno::EINVAL));
    });
}

/// RLIMIT_DATA of 0: Linux's exception for Valgrind, which brk does not know.
#[test]
fn a_limit_of_no_data_holds_the_heap_alone() {
    let limits = |data_bytes, most_data_bytes| Limits { data_bytes, most_data_bytes, ..Limits::default() };
    let map = [0, 2 * PAGE, 3, 0x22, u64::MAX, 0];
    for (limits, expected) in [
        (limits(0, u64::MAX), true),
        (limits(0, 2 * PAGE), true),
        (limits(0, PAGE), false),
        (limits(PAGE - 1, u64::MAX), false),
    ] {
        with_limits(limits, |_, space| {
            let calls = Calls::new(space);
            let at = calls.mmap(map, None);
            assert_eq!(at.is_ok(), expected, "{limits:?}");
            if let Ok(at) = at {
                assert_eq!(calls.mremap([at, 2 * PAGE, 4 * PAGE, 1, 0]).is_ok(), limits.most_data_bytes == u64::MAX);
            }
            let end = calls.brk(0).expect("an address");
            assert_eq!(calls.brk(end + PAGE), Ok(end), "it stays");
        });
    }
}

#[test]
fn pages_behind_the_longest_file_are_no_hole() {
    with_space(|vm, space| {
        let spec = ObjectSpec { identity: 1, size_bytes: PAGE, source: &ZeroSource, write_notice: WriteNotice::None };
        let object = vm.create_object(&spec).expect("an object");
        let calls = Calls::new(space);
        // The last page that a file may have, and one more by growth, which Linux does not check.
        let last = (i64::MAX as u64 - PAGE) & !(PAGE - 1);
        let file = || Some(File::new(&object, FileMode::READ | FileMode::WRITE));
        let at = calls.mmap([0, PAGE, 3, 1, 3, last], file()).expect("room");
        let at = calls.mremap([at, PAGE, 3 * PAGE, 1, 0]).expect("room");
        let remove = |page, nr_pages| calls.madvise(at + page * PAGE, nr_pages * PAGE, 9);
        assert_eq!(remove(0, 1), Ok(0));
        assert_eq!(remove(0, 2), Err(Errno::new(27)), "the longest file ends in it");
        assert_eq!(remove(2, 1), Err(Errno::EINVAL), "begins behind it");
    });
}
