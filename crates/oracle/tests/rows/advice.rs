//! Rows 24 to 31: madvise.

use crate::table::{ROOT, row};

#[test]
fn row_24_dontneed_forgets_private_pages_and_keeps_shared_ones() {
    row(
        ROOT,
        "
        mmap @0 #1 rw private|anon|fixed - 0            => @0
        mmap @2 #1 rw shared|anon|fixed - 0             => @2
        store @0 8                                      => ok
        store @2 8                                      => ok
        madvise @0 #1 dontneed                          => ok
        madvise @2 #1 dontneed                          => ok
        load @0                                         => byte 0
        load @2                                         => byte 8
    ",
    );
}

#[test]
fn row_25_remove_makes_a_hole_in_what_is_shared() {
    row(
        ROOT,
        "
        mmap @0 #2 rw shared|anon|fixed - 0             => @0
        mmap @2 #2 rw private|anon|fixed - 0            => @2
        mmap @4 #2 rw private|fixed rw 0                => @4
        fill @0 2 5                                     => 2
        madvise @0 #1 remove                            => ok
        load @0                                         => byte 0
        load @1                                         => byte 6
        madvise @2 #1 remove                            => EINVAL
        madvise @4 #1 remove                            => EACCES
    ",
    );
}

#[test]
fn row_26_across_a_hole_advice_is_taken_and_enomem_answered() {
    row(
        ROOT,
        "
        mmap @0 #1 rw private|anon|fixed - 0            => @0
        mmap @2 #1 rw private|anon|fixed - 0            => @2
        store @0 1                                      => ok
        store @2 1                                      => ok
        madvise @0 #3 dontneed                          => ENOMEM
        load @0                                         => byte 0
        load @2                                         => byte 0
    ",
    );
}

#[test]
fn row_27_madvise_checks_its_arguments() {
    row(
        ROOT,
        "
        mmap @0 #2 rw private|anon|fixed - 0            => @0
        fill @0 2 1                                     => 2
        madvise @0+1 #1 dontneed                        => EINVAL
        madvise @0 0 dontneed                           => ok
        madvise @0 0 99                                 => EINVAL
        madvise @0 #1 99                                => EINVAL
        madvise @0 1 dontneed                           => ok
        load @0                                         => byte 0
        load @1                                         => byte 2
        madvise @0 0xffffffffffffffff dontneed          => EINVAL
    ",
    );
}

#[test]
fn row_28_locked_inaccessible_and_shared_pages_are_special() {
    row(
        ROOT,
        "
        mmap @0 #2 rw private|anon|fixed - 0            => @0
        fill @0 2 1                                     => 2
        mlock @0 #1                                     => ok
        madvise @0 #1 dontneed                          => EINVAL
        madvise @0 #1 dontneed_locked                   => ok
        load @0                                         => byte 0
        mprotect @1 #1 none                             => ok
        madvise @1 #1 dontneed                          => ok
        mprotect @1 #1 rw                               => ok
        load @1                                         => byte 0
        mmap @4 #1 rw shared|anon|fixed - 0             => @4
        madvise @4 #1 free                              => EINVAL
    ",
    );
}

#[test]
fn row_29_populating_needs_rights_and_a_mapping() {
    row(
        ROOT,
        "
        mmap @0 #2 none private|anon|fixed - 0          => @0
        madvise @0 #1 populate_write                    => EINVAL
        madvise @0 #1 populate_read                     => EINVAL
        madvise @4 #1 populate_read                     => ENOMEM
        mmap @4 #2 rw private|anon|fixed - 0            => @4
        madvise @4 #1 populate_write                    => ok
        mincore @4 #2 0                                 => bits 10
        madvise @4 #3 populate_read                     => ENOMEM
        mincore @4 #2 0                                 => bits 11
    ",
    );
}

#[test]
fn row_30_a_child_gets_what_advice_leaves_it() {
    row(
        ROOT,
        "
        mmap @0 #4 rw private|anon|fixed - 0            => @0
        fill @0 4 5                                     => 4
        madvise @0 #1 dontfork                          => ok
        madvise @1 #1 wipeonfork                        => ok
        look                                            => [0,1)rw-p [1,2)rw-p [2,4)rw-p
        fork 3                                          => ok
            load @0                                     => MAPERR @0
            load @1                                     => byte 0
            load @2                                     => byte 7
        load @0                                         => byte 5
        load @1                                         => byte 6
    ",
    );
}

#[test]
fn row_31_a_guard_is_no_mapping_and_no_cut() {
    row(
        ROOT,
        "
        mmap @0 #4 rw private|anon|fixed - 0            => @0
        fill @0 4 1                                     => 4
        madvise @1 #2 guard_install                     => ok
        load @1                                         => MAPERR @1
        store @2+7 1                                    => MAPERR @2+7
        load @3                                         => byte 4
        madvise @0 #4 dontneed                          => ok
        load @1                                         => MAPERR @1
        look                                            => [0,4)rw-p
        fork 1                                          => ok
            load @1                                     => MAPERR @1
        madvise @1 #1 guard_remove                      => ok
        load @1                                         => byte 0
        load @2                                         => MAPERR @2
        mmap @4 #2 rw private|anon|fixed - 0            => @4
        look                                            => [0,6)rw-p
    ",
    );
}
