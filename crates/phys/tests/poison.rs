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
#[should_panic(expected = "an allocation that may sleep is made inside an RCU section")]
fn an_allocation_that_may_sleep_is_found_inside_a_section_though_it_need_not() {
    let (world, machine) = (World::<Native>::new(50, 1, narrow()), Machine::new(1));
    machine.attach(|| {
        let _section = world.memory.rcu().read();
        let pfn = world.memory.try_alloc().expect("plenty");
        world.free_all([pfn]);
        let _ = world.memory.alloc();
    });
}

#[test]
fn without_poison_nobody_looks() {
    write_after_free(0, Options::default());
}

/// Frees 64 frames, merges them, writes to the one of that index, and takes them again in rows or one by one.
fn write_into_merged(index: usize, order: u8) {
    let (world, machine) = (World::<Native>::new(64, 1, narrow()), Machine::new(1));
    machine.attach(|| {
        let mut frames = world.take_all();
        frames.sort_unstable();
        world.free_all(frames.clone());
        world.memory.drain_cpu_lists();
        // SAFETY: as above.
        unsafe { world.memory.frame(frames[index]).add(100).write_volatile(1) };
        let rows = std::iter::from_fn(|| world.memory.alloc_order(order).ok()).count();
        assert_eq!(rows << order, 64);
    });
}

#[test]
fn a_write_is_found_wherever_the_frame_stands_in_its_row() {
    let every = if cfg!(miri) { 31 } else { 1 };
    for (index, order) in (0..64).step_by(every).flat_map(|index| [(index, 0), (index, 1)]) {
        let found = std::panic::catch_unwind(|| write_into_merged(index, order));
        let message = found.expect_err("the write went unnoticed");
        let message = message.downcast_ref::<String>().expect("a message");
        assert!(message.contains("was written after it was freed: byte 96 holds"), "{message}");
    }
}

/// Frees a row of four, writes to the one of that index, and takes the row again.
fn write_into_freed_row(index: usize) {
    let (world, machine) = (World::<Native>::new(64, 1, narrow()), Machine::new(1));
    machine.attach(|| {
        let row = world.memory.alloc_order(2).expect("plenty");
        // SAFETY: ours until it is freed; the write after that is what the test is about.
        unsafe {
            world.memory.free_order(row, 2);
            world.memory.frame(row).add(index * PAGE_BYTES + 100).write_volatile(1);
        }
        assert_eq!(world.memory.alloc_order(2), Ok(row));
    });
}

#[test]
fn a_write_to_any_frame_of_a_freed_row_is_found() {
    for index in 0..4 {
        let found = std::panic::catch_unwind(|| write_into_freed_row(index));
        let message = found.expect_err("the write went unnoticed");
        let message = message.downcast_ref::<String>().expect("a message");
        assert!(message.contains("was written after it was freed: byte 96 holds"), "{message}");
    }
}

#[test]
fn rows_split_and_merge_with_their_poison_intact() {
    // The largest row needs an aligned place, wherever the memory begins.
    let (nr_frames, largest, nr_rounds) = if cfg!(miri) { (100, 4, 1) } else { (3000, 8, 5_u8) };
    let (world, machine) = (World::<Native>::new(nr_frames, 1, narrow()), Machine::new(1));
    machine.attach(|| {
        for round in 0..nr_rounds {
            let rows: Vec<(Pfn, u8)> =
                (0..=largest).map(|order| (world.memory.alloc_order(order).expect("plenty"), order)).collect();
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
            assert_eq!(world.memory.nr_free(), nr_frames);
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

#[test]
#[should_panic(expected = "an allocation that may sleep is made inside an RCU section")]
fn an_allocation_that_may_sleep_in_an_rcu_section_is_found_though_it_need_not() {
    let (world, machine) = (World::<Native>::new(50, 1, narrow()), Machine::new(1));
    machine.attach(|| {
        let _section = world.memory.rcu().read();
        assert!(world.memory.try_alloc().is_ok());
        let slept = world.memory.alloc();
        panic!("{slept:?} was given out");
    });
}
