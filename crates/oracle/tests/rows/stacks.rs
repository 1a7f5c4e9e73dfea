//! Rows 33 to 35: stacks that grow, the gap below them, and the heap. Page 576 holds the heap's start, off its
//! beginning.

use crate::table::{ROOT, row};

#[test]
fn row_33_a_stack_grows_by_a_touch_far_below() {
    row(
        ROOT,
        "
        mmap @300 #1 rw private|anon|growsdown|fixed - 0    => @300
        store @299 1                                        => ok
        look                                                => [299,301)rw-p
        store @199 1                                        => ok
        look                                                => [199,301)rw-p
        load @250                                           => byte 0
    ",
    );
}

#[test]
fn row_34_the_gap_below_a_stack_stays_free() {
    row(
        ROOT,
        "
        mmap @600 #1 rw private|anon|growsdown|fixed - 0    => @600
        mmap @0 #1 rw private|anon|fixed - 0                => @0
        store @257 1                                        => ok
        store @256 1                                        => MAPERR @256
        look                                                => [0,1)rw-p [257,601)rw-p
        mmap @200 #1 rw private|anon|fixed - 0              => @200
        load @200                                           => byte 0
    ",
    );
}

#[test]
fn row_35_the_heap_ends_where_brk_says_or_where_it_did() {
    row(
        ROOT,
        "
        brk 0                                           => @576+0x123
        brk @576                                        => @576+0x123
        brk @578+0x234                                  => @578+0x234
        store @578 1                                    => ok
        store @579 1                                    => MAPERR @579
        mmap @590 #1 r private|anon|fixed - 0           => @590
        brk @589                                        => @589
        brk @590                                        => @589
        brk @592                                        => @589
        look                                            => [577,589)rw-p [590,591)r--p
        brk @578                                        => @578
        load @578                                       => MAPERR @578
        look                                            => [577,578)rw-p [590,591)r--p
    ",
    );
    row(
        "root data=0x2000",
        "
        brk @577                                        => @577
        brk @580                                        => @577
    ",
    );
}
