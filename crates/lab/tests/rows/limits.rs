//! Rows 36 and 40: the limits of sizes, and of the number of areas.

use crate::table::row;

#[test]
fn row_36_sizes_are_limited() {
    row(
        "root data=0x4000",
        "
        mmap @0 #4 rw private|anon|fixed - 0            => @0
        mmap @8 #1 rw private|anon|fixed - 0            => ENOMEM
        mmap @8 #1 r private|anon|fixed - 0             => @8
        mmap @10 #1 rw shared|anon|fixed - 0            => @10
        mprotect @8 #1 rw                               => ENOMEM
        mremap @0 #4 #5 maymove 0                       => ENOMEM
        munmap @0 #1                                    => ok
        mprotect @8 #1 rw                               => ok
        look                                            => [1,4)rw-p [8,9)rw-p [10,11)rw-s@0
    ",
    );
    row(
        "root as=0x4000",
        "
        mmap @0 #4 r private|anon|fixed - 0             => @0
        mmap @8 #1 r shared|anon|fixed - 0              => ENOMEM
        mmap @2 #2 rw private|anon|fixed - 0            => @2
        mremap @0 #2 #2 maymove|dontunmap 0             => ENOMEM
        mremap @2 #2 #3 maymove 0                       => ENOMEM
    ",
    );
}
