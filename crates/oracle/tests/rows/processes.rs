//! Rows 41 and 42: fork, and calls that are given bad memory.

use crate::table::{ROOT, row};

#[test]
fn row_41_fork_copies_what_is_private_and_shares_the_rest() {
    row(
        ROOT,
        "
        mmap @0 #1 rw private|anon|fixed - 0            => @0
        mmap @2 #1 rw shared|anon|fixed - 0             => @2
        store @0 1                                      => ok
        store @2 1                                      => ok
        fork 4                                          => ok
            load @0                                     => byte 1
            store @0 2                                  => ok
            store @2 2                                  => ok
            load @0                                     => byte 2
        load @0                                         => byte 1
        load @2                                         => byte 2
    ",
    );
}

#[test]
fn row_42_calls_on_bad_memory_fail_and_send_no_signal() {
    row(
        ROOT,
        "
        mmap @0 #2 rw private|anon|fixed - 0            => @0
        mprotect @1 #1 r                                => ok
        output @4 0x10                                  => EFAULT
        input @1 0x10 3                                 => EFAULT
        input @4 0x10 3                                 => EFAULT
        input @0 0x10 3                                 => 0x10
        load @0+0xf                                     => byte 3
        discard @4 1                                    => 1
    ",
    );
}
