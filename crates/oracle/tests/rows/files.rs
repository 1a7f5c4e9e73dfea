//! Row 32: the end of a file under its mappings. The file has five pages and a half at first.

use crate::table::{ROOT, row};

#[test]
fn row_32_a_file_ends_in_zeros_and_then_in_bus_errors() {
    row(
        ROOT,
        "
        mmap @0 #8 rw shared|fixed rw 0                 => @0
        mmap @8 #8 rw private|fixed rw 0                => @8
        load @5+0x7ff                                   => file 0x57ff
        load @5+0x800                                   => byte 0
        load @5+0xfff                                   => byte 0
        load @6                                         => BUS @6
        store @14+3 1                                   => BUS @14+3
        store @10 9                                     => ok
        truncate rw 0x7000                              => ok
        load @6                                         => byte 0
        store @6 4                                      => ok
        load @14                                        => byte 4
        truncate rw 0x2800                              => ok
        load @6                                         => BUS @6
        load @3                                         => BUS @3
        load @10                                        => byte 9
        load @10+0x900                                  => file 0x2900
        load @2+0x900                                   => byte 0
        load @11                                        => BUS @11
        store @11 1                                     => BUS @11
        truncate rw 0x1000                              => ok
        load @10                                        => BUS @10
        truncate rw 0x3000                              => ok
        load @10                                        => byte 0
        load @1                                         => byte 0
        load @0                                         => file 0
    ",
    );
}
