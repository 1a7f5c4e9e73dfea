//! Rows 17 to 23: mremap.

use crate::table::{ROOT, row};

#[test]
fn row_17_mremap_checks_its_arguments() {
    row(
        ROOT,
        "
        mmap @0 #4 rw private|anon|fixed - 0            => @0
        mremap @0+1 #1 #2 maymove 0                     => EINVAL
        mremap @0 #1 0 maymove 0                        => EINVAL
        mremap @0 #1 #2 0x8 0                           => EINVAL
        mremap @0 #1 #1 fixed @8                        => EINVAL
        mremap @0 #1 #1 maymove|fixed @8+1              => EINVAL
        mremap @0 #4 #4 maymove|fixed @2                => EINVAL
        look                                            => [0,4)rw-p
    ",
    );
}

#[test]
fn row_18_what_is_not_one_mapping_does_not_grow() {
    row(
        ROOT,
        "
        mremap @8 #1 #2 maymove 0                       => EFAULT
        mmap @0 #2 rw private|anon|fixed - 0            => @0
        mmap @2 #2 r private|anon|fixed - 0             => @2
        mremap @0 #4 #8 maymove 0                       => EFAULT
        look                                            => [0,2)rw-p [2,4)r--p
    ",
    );
}

#[test]
fn row_19_several_mappings_move_if_their_size_stays() {
    row(
        ROOT,
        "
        mmap @0 #2 rw private|anon|fixed - 0            => @0
        mmap @2 #2 r private|anon|fixed - 0             => @2
        store @1 9                                      => ok
        mremap @0 #4 #4 maymove|fixed @16               => @16
        load @17                                        => byte 9
        load @1                                         => MAPERR @1
        look                                            => [16,18)rw-p [18,20)r--p
    ",
    );
}

#[test]
fn row_20_a_mapping_shrinks_grows_and_moves_with_its_content() {
    row(
        ROOT,
        "
        mmap @0 #4 rw private|anon|fixed - 0            => @0
        fill @0 4 1                                     => 4
        mremap @0 #4 #2 0 0                             => @0
        load @2                                         => MAPERR @2
        mremap @0 #2 #3 0 0                             => @0
        load @2                                         => byte 0
        load @1                                         => byte 2
        mmap @3 #1 r private|anon|fixed - 0             => @3
        mremap @0 #3 #5 0 0                             => ENOMEM
        mremap @0 #3 #5 maymove 0                       => @1019
        load @1020                                      => byte 2
        load @1                                         => MAPERR @1
        look                                            => [3,4)r--p [1019,1024)rw-p
    ",
    );
}

#[test]
fn row_21_a_fixed_move_replaces_its_target() {
    row(
        ROOT,
        "
        mmap @0 #4 rw private|anon|fixed - 0            => @0
        mmap @8 #8 r private|anon|fixed - 0             => @8
        store @1 4                                      => ok
        mremap @0 #4 #4 maymove|fixed @10               => @10
        load @11                                        => byte 4
        load @0                                         => MAPERR @0
        look                                            => [8,10)r--p [10,14)rw-p [14,16)r--p
    ",
    );
}

#[test]
fn row_22_a_kept_source_stays_and_is_empty() {
    row(
        ROOT,
        "
        mmap @0 #2 rw private|anon|fixed - 0            => @0
        store @0 6                                      => ok
        mremap @0 #2 #2 maymove|dontunmap 0             => @1022
        load @0                                         => byte 0
        load @1022                                      => byte 6
        mremap @0 #2 #3 maymove|dontunmap 0             => EINVAL
        mmap @8 #2 rw shared|anon|fixed - 0             => @8
        store @8 6                                      => ok
        mremap @8 #2 #2 maymove|dontunmap 0             => @1020
        load @8                                         => byte 6
        load @1020                                      => byte 6
    ",
    );
}

#[test]
fn row_23_old_length_0_makes_a_second_mapping_of_a_shared_one() {
    row(
        ROOT,
        "
        mmap @0 #2 rw shared|anon|fixed - 0             => @0
        store @0 8                                      => ok
        mremap @0 0 #2 maymove 0                        => @1022
        load @1022                                      => byte 8
        store @1023 3                                   => ok
        load @1                                         => byte 3
        mmap @8 #2 rw private|anon|fixed - 0            => @8
        mremap @8 0 #2 maymove 0                        => EINVAL
        look                                            => [0,2)rw-s@0 [8,10)rw-p [1022,1024)rw-s@0
    ",
    );
}
