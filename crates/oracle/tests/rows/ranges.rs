//! Rows 10 to 16: munmap and mprotect, and what rights forbid.

use crate::table::{ROOT, row};
use faultless_oracle::kernel::has_protection_keys;

#[test]
fn row_10_munmap_takes_whole_pages_that_need_not_be_mapped() {
    row(
        ROOT,
        "
        mmap @0 #2 rw private|anon|fixed - 0            => @0
        munmap @0 0                                     => EINVAL
        munmap @0+1 #1                                  => EINVAL
        munmap @0 1                                     => ok
        munmap @0 #1                                    => ok
        munmap 0xffff800000000000 #1                    => EINVAL
        look                                            => [1,2)rw-p
    ",
    );
}

#[test]
fn row_11_munmap_splits_and_passes_over_holes() {
    row(
        ROOT,
        "
        mmap @0 #8 rw private|anon|fixed - 0            => @0
        munmap @2 #2                                    => ok
        look                                            => [0,2)rw-p [4,8)rw-p
        munmap @1 #4                                    => ok
        look                                            => [0,1)rw-p [5,8)rw-p
        load @1                                         => MAPERR @1
    ",
    );
}

#[test]
fn row_12_mprotect_checks_its_arguments() {
    row(
        ROOT,
        "
        mprotect @0 0 r                                 => ok
        mmap @0 #2 rw private|anon|fixed - 0            => @0
        mprotect @0+1 #1 r                              => EINVAL
        mprotect @0 #1 0x10                             => EINVAL
        mprotect @0 #1 r|growsdown                      => EINVAL
        mprotect @0 #1 r|growsup                        => EINVAL
        look                                            => [0,2)rw-p
    ",
    );
}

#[test]
fn row_13_mprotect_across_a_hole_changes_what_is_before() {
    row(
        ROOT,
        "
        mmap @0 #2 rw private|anon|fixed - 0            => @0
        mmap @3 #2 rw private|anon|fixed - 0            => @3
        mprotect @0 #5 r                                => ENOMEM
        look                                            => [0,2)r--p [3,5)rw-p
    ",
    );
}

#[test]
fn row_14_a_read_only_descriptor_forbids_shared_stores() {
    row(
        ROOT,
        "
        mmap @0 #1 r shared|fixed ro 0                  => @0
        mprotect @0 #1 rw                               => EACCES
        mmap @1 #1 rw shared|fixed ro 0                 => EACCES
        mmap @1 #1 rw private|fixed ro 0                => @1
        mmap @2 #1 r shared|fixed closed 0              => EBADF
        mmap @2 #1 r private|fixed wo 0                 => EACCES
        look                                            => [0,1)r--s@0 [1,2)rw-p@0
    ",
    );
}

#[test]
fn row_15_bad_accesses_say_what_was_bad() {
    row(
        ROOT,
        "
        mmap @0 #1 r private|anon|fixed - 0             => @0
        mmap @1 #1 none private|anon|fixed - 0          => @1
        store @0+5 1                                    => ACCERR @0+5
        load @0                                         => byte 0
        load @1                                         => ACCERR @1
        store @1 1                                      => ACCERR @1
        load @2+0x123                                   => MAPERR @2+0x123
        store @2 1                                      => MAPERR @2
        fetch @0                                        => ACCERR @0
    ",
    );
}

#[test]
fn row_16_any_right_lets_loads_succeed_but_for_a_key() {
    row(
        ROOT,
        "
        mmap @0 #1 w private|anon|fixed - 0             => @0
        load @0                                         => byte 0
        store @0 3                                      => ok
        load @0                                         => byte 3
    ",
    );
    // The row was measured without protection keys.
    let (loaded, stored) = match has_protection_keys() {
        true => ("PKUERR @1", "PKUERR @1"),
        false => ("byte 0", "ACCERR @1"),
    };
    row(
        ROOT,
        &format!(
            "
        mmap @1 #1 x private|anon|fixed - 0             => @1
        load @1                                         => {loaded}
        store @1 3                                      => {stored}
        mprotect @1 #1 rx                               => ok
        load @1                                         => byte 0
        store @1 3                                      => ACCERR @1
        mprotect @1 #1 x                                => ok
        load @1                                         => {loaded}
    "
        ),
    );
}
