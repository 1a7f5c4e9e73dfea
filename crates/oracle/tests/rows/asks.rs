//! Rows 37 to 39: mincore, msync, mlock.

use crate::table::{ROOT, row};
use faultless_oracle::kernel::REFERENCE_BYTE;

#[test]
fn row_37_mincore_tells_what_is_in_memory() {
    row(
        ROOT,
        "
        mmap @0 #4 rw private|anon|fixed - 0            => @0
        store @0 1                                      => ok
        mincore @0 #4 0                                 => bits 1000
        load @1                                         => byte 0
        mincore @0 #4 0                                 => bits 1100
        mincore @0+1 #1 0                               => EINVAL
        mincore @3 #2 0                                 => ENOMEM
        mincore @0 #4 1                                 => EFAULT
        mincore @0 0 0                                  => bits 0
    ",
    );
}

#[test]
fn row_38_msync_checks_its_arguments() {
    row(
        ROOT,
        "
        mmap @0 #2 rw shared|fixed rw 0                 => @0
        mmap @3 #1 rw private|anon|locked|fixed - 0     => @3
        msync @0+1 #1 sync                              => EINVAL
        msync @0 #1 async|sync                          => EINVAL
        msync @0 #1 0x8                                 => EINVAL
        msync @0 #2 sync                                => ok
        msync @0 #3 sync                                => ENOMEM
        msync @0 #3 async                               => ENOMEM
        msync @3 #1 invalidate                          => EBUSY
        msync @3 #1 sync                                => ok
        msync @8 0 sync                                 => ok
    ",
    );
}

#[test]
fn row_39_mlock_rounds_down_and_needs_mappings() {
    row(
        ROOT,
        "
        mmap @0 #2 rw private|anon|fixed - 0            => @0
        mlock @1 #2                                     => ENOMEM
        mlock @0+0x10 0x10                              => ok
        madvise @0 #1 dontneed                          => EINVAL
        mlock2 @0 #1 0x2                                => EINVAL
        mlock2 @0 #1 onfault                            => ok
        munlock @0 #2                                   => ok
        madvise @0 #2 dontneed                          => ok
    ",
    );
    row(
        "user lock=0x2000",
        "
        mmap @0 #4 rw private|anon|fixed - 0            => @0
        mlock @0 #3                                     => ENOMEM
        mlock @0 #2                                     => ok
        mlock @0 #2                                     => ok
        mlock @2 #1                                     => ENOMEM
        mmap @8 #1 rw private|anon|locked|fixed - 0     => EAGAIN
    ",
    );
    row(
        "user lock=0",
        "
        mmap @0 #4 rw private|anon|fixed - 0            => @0
        mlock @0 #1                                     => EPERM
        mmap @8 #1 rw private|anon|locked|fixed - 0     => EPERM
    ",
    );
}

#[test]
fn resident_size_is_that_of_pages_stored_to_and_of_what_is_locked_or_populated() {
    // What stands before `mmap` is a reference area, then plain memory: both count alike.
    for backing in ["private|fixed ref", "private|anon|fixed -"] {
        row(
            ROOT,
            &format!(
                "
        mmap @0 #8 rw {backing} 0                       => @0
        load @0                                         => {untouched}
        resident                                        => 0
        fill @1 3 5                                     => 3
        store @0 1                                      => ok
        resident                                        => 4
        madvise @1 #2 dontneed                          => ok
        load @1                                         => {untouched}
        resident                                        => 2
        mprotect @0 #8 none                             => ok
        resident                                        => 2
        mprotect @0 #8 rw                               => ok
        fork 2                                          => ok
        store @7 1                                      => ok
        resident                                        => 3
        mremap @0 #4 #4 maymove|fixed @20               => @20
        resident                                        => 2
        mlock @20 #4                                    => ok
        resident                                        => 4
        madvise @4 #2 populate_write                    => ok
        resident                                        => 6
        munmap @20 #3                                   => ok
        resident                                        => 3
    ",
                untouched = if backing.ends_with('-') { "0".into() } else { format!("{REFERENCE_BYTE:#x}") },
            ),
        );
    }
    row(
        ROOT,
        "
        mmap @0 #4 rw private|fixed rw 0                => @0
        load @0                                         => file 0x0
        resident                                        => 0
        store @1 1                                      => ok
        resident                                        => 1
        mmap @8 #2 rw shared|anon|fixed - 0             => @8
        fill @8 2 1                                     => 2
        resident                                        => 1
    ",
    );
}
