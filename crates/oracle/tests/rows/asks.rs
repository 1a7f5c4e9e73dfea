//! Rows 37 to 39: mincore, msync, mlock.

use crate::table::{ROOT, row};

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
