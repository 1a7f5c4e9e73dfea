//! Rows 1 to 9: what mmap takes, where it puts things, and what it joins.

use crate::table::{ROOT, USER, row};

#[test]
fn row_01_lengths_addresses_and_offsets_are_checked() {
    row(
        ROOT,
        "
        mmap @0 0 rw private|anon|fixed - 0             => EINVAL
        mmap @0+1 #1 rw private|anon|fixed - 0          => EINVAL
        mmap @0 #1 rw private|anon|fixed - 0x800        => EINVAL
        mmap @0 #1 rw private|fixed rw 0x800            => EINVAL
        look                                            => nothing
    ",
    );
}

#[test]
fn row_02_a_mapping_is_shared_or_private() {
    row(
        ROOT,
        "
        mmap @0 #1 rw anon|fixed - 0                    => EINVAL
        mmap @0 #1 rw shared|private|anon|fixed - 0     => EINVAL
        mmap @0 #1 rw shared_validate|fixed rw 0        => @0
        mmap @1 #1 rw shared_validate|sync|fixed rw 0   => EOPNOTSUPP
        look                                            => [0,1)rw-s@0
    ",
    );
}

#[test]
fn row_03_what_leaves_user_memory_finds_no_room() {
    row(
        ROOT,
        "
        mmap 0 0xffffffffffffffff rw private|anon - 0                   => ENOMEM
        mmap 0 0x800000000000 rw private|anon - 0                       => ENOMEM
        mmap 0x7ffffffff000 #1 rw private|anon|fixed - 0                => ENOMEM
        mmap 0x800000000000 #1 rw private|anon|fixed - 0                => ENOMEM
    ",
    );
}

#[test]
fn row_04_low_addresses_need_a_privilege() {
    row(
        ROOT,
        "
        mmap 0 #1 rw private|anon|fixed - 0             => 0
        store 0 5                                       => ok
        load 0                                          => byte 5
        mmap 0x1000 #1 rw private|anon|fixed - 0        => 0x1000
    ",
    );
    row(
        USER,
        "
        mmap 0 #1 rw private|anon|fixed - 0             => EPERM
        mmap 0x1000 #1 rw private|anon|fixed - 0        => 0x1000
    ",
    );
}

#[test]
fn row_05_a_hint_that_is_too_low_is_moved_up() {
    // The lowest address is taken, so each ends up where the search puts it. A fixed address may be lower.
    row(
        USER,
        "
        mmap 0x10 #1 rw private|anon - 0                => @1023
        mmap 0xfff #1 rw private|anon - 0               => @1022
        mmap 0x1800 #1 rw private|anon - 0              => @1021
        mmap @5+0x10 #1 rw private|anon - 0             => @5
    ",
    );
}

#[test]
fn row_06_a_fixed_mapping_replaces_what_was_there() {
    row(
        ROOT,
        "
        mmap @0 #8 rw private|anon|fixed - 0            => @0
        fill @0 8 1                                     => 8
        mmap @2 #3 r private|anon|fixed - 0             => @2
        load @2                                         => byte 0
        load @1                                         => byte 2
        load @5                                         => byte 6
        look                                            => [0,2)rw-p [2,5)r--p [5,8)rw-p
    ",
    );
}

#[test]
fn row_07_noreplace_keeps_what_is_there() {
    row(
        ROOT,
        "
        mmap @0 #4 rw private|anon|fixed - 0            => @0
        store @1 7                                      => ok
        mmap @3 #2 rw private|anon|fixed_noreplace - 0  => EEXIST
        mmap @4 #2 r private|anon|fixed_noreplace - 0   => @4
        load @1                                         => byte 7
        look                                            => [0,4)rw-p [4,6)r--p
    ",
    );
}

#[test]
fn row_08_neighbours_of_one_kind_are_one_area() {
    row(
        ROOT,
        "
        mmap @0 #4 rw private|anon|fixed - 0            => @0
        mmap @4 #2 rw private|anon|fixed - 0            => @4
        look                                            => [0,6)rw-p
        mprotect @2 #1 r                                => ok
        look                                            => [0,2)rw-p [2,3)r--p [3,6)rw-p
        mprotect @2 #1 rw                               => ok
        look                                            => [0,6)rw-p
    ",
    );
}

#[test]
fn row_09_areas_that_had_pages_before_they_met_stay_apart() {
    row(
        ROOT,
        "
        mmap @0 #2 rw private|anon|fixed - 0            => @0
        mmap @3 #2 rw private|anon|fixed - 0            => @3
        store @0 1                                      => ok
        store @3 1                                      => ok
        mmap @2 #1 rw private|anon|fixed - 0            => @2
        look                                            => [0,3)rw-p [3,5)rw-p
    ",
    );
}
