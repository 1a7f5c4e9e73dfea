//! Writes to freed memory are found; nothing else is taken for one.

mod support;

use faultless_phys::{Options, Pfn, Slab};
use faultless_platform::PAGE_BYTES;
use faultless_platform::native::{Machine, Native};
use support::{World, narrow};

/// Frees a frame, changes one byte of it, and takes it again.
fn write_after_free(byte: usize, options: Options) {
    let (world, machine) = (World::<Native>::new(50, 1, options), Machine::new(1));
    machine.attach(|| {
        let pfn = world.memory.alloc().expect("plenty");
        world.free_all([pfn]);
        // SAFETY: the region is ours; that the frame isn't is what the test is about.
        unsafe { world.memory.frame(pfn).add(byte).write_volatile(0x11) };
        assert_eq!(world.memory.alloc(), Ok(pfn));
    });
}

#[test]
#[should_panic(expected = "was written after it was freed: byte 0 holds")]
fn a_write_to_the_first_byte_of_a_freed_frame_is_found() {
    write_after_free(0, narrow());
}

#[test]
#[should_panic(expected = "was written after it was freed: byte 4088 holds")]
fn a_write_to_the_last_byte_of_a_freed_frame_is_found() {
    write_after_free(PAGE_BYTES - 1, narrow());
}

#[test]
fn without_poison_nobody_looks() {
    write_after_free(0, Options::default());
}

#[test]
#[should_panic(expected = "was written after it was freed")]
fn a_write_is_found_after_the_frame_has_merged_into_a_row() {
    let (world, machine) = (World::<Native>::new(64, 1, narrow()), Machine::new(1));
    machine.attach(|| {
        let frames = world.take_all();
        world.free_all(frames.clone());
        world.memory.drain_cpu_lists();
        // SAFETY: as above.
        unsafe { world.memory.frame(frames[40]).add(100).write_volatile(1) };
        let rows: Vec<Pfn> = std::iter::from_fn(|| world.memory.alloc_order(2).ok()).collect();
        panic!("{} rows were given out", rows.len());
    });
}

#[test]
fn rows_split_and_merge_with_their_poison_intact() {
    let (world, machine) = (World::<Native>::new(3000, 1, narrow()), Machine::new(1));
    machine.attach(|| {
        for round in 0..5_u8 {
            let rows: Vec<(Pfn, u8)> =
                (0..=8).map(|order| (world.memory.alloc_order(order).expect("plenty"), order)).collect();
            let singles = world.take_all();
            for (row, order) in rows {
                // SAFETY: ours.
                unsafe {
                    world.memory.frame(row).write_bytes(round, PAGE_BYTES << order);
                    world.memory.free_order(row, order);
                }
            }
            world.free_all(singles);
            world.memory.drain_cpu_lists();
            assert_eq!(world.memory.nr_free(), 3000);
        }
    });
}

#[test]
#[should_panic(expected = "the object at")]
fn a_write_to_a_freed_object_is_found() {
    let (world, machine) = (World::<Native>::new(50, 1, narrow()), Machine::new(1));
    let slab = Slab::<Native, [u64; 9]>::new(&world.memory);
    machine.attach(|| {
        let object = slab.alloc().expect("plenty");
        // SAFETY: freed as it should be; the write after that is what the test is about.
        unsafe {
            object.write([1; 9]);
            slab.free(object);
            object.cast::<u64>().add(8).write_volatile(0);
        }
        let again = slab.alloc();
        panic!("{again:?} was given out");
    });
}
