//! Machines on a processor that walks their tables: what guests and devices see, and copies made while guests run.

mod processor;

use faultless_embed_hypervisor::{EptWithoutBits, Exit, Machine, Migration, Page, Ram, Rights, Window};
use faultless_phys::Pfn;
use faultless_vm::check_format;
use processor::{Core, Generation, WithBits, WithoutBits, with_instance};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use virtio_queue::desc::RawDescriptor;
use virtio_queue::desc::split::Descriptor;
use virtio_queue::mock::MockSplitQueue;
use virtio_queue::{Queue, QueueT};
use vm_memory::{Bytes, GuestAddress, GuestMemory, Permissions};

const PAGE: u64 = 4096;
/// As on a PC: a hole for devices below 4 GiB.
const LOW: Ram = 0..0x80_0000;
const HIGH: Ram = 0x1_0000_0000..0x1_0080_0000;

/// Runs a test on both generations of the processor.
macro_rules! on_both {
    ($name:ident, $vm:ident, $host:ident, $body:block) => {
        mod $name {
            use super::*;

            fn run<H: Generation>() {
                with_instance::<H>(|$host, $vm| $body);
            }
            #[test]
            fn with_bits() {
                run::<WithBits>();
            }
            #[test]
            fn without_bits() {
                run::<WithoutBits>();
            }
        }
    };
}

on_both!(memory_is_where_ram_is, vm, _host, {
    let machine = Machine::new(vm, &[LOW, HIGH]).expect("room");
    let core = Core::new(&machine);
    for address in [0, 8, LOW.end - 8, HIGH.start, HIGH.end - 8] {
        assert_eq!(core.load(address), Ok(0));
        assert_eq!(core.store(address, address + 1), Ok(()));
        assert_eq!(core.fetch(address), Ok(()));
        assert_eq!(core.load(address), Ok(address + 1));
    }
    for address in [LOW.end, 0xfee0_0000, HIGH.end, 1 << 46] {
        assert_eq!(core.load(address), Err(Exit::NoMemory));
        assert_eq!(core.store(address, 1), Err(Exit::NoMemory));
    }
    let other = Machine::new(vm, &[LOW]).expect("room");
    assert_eq!(Core::new(&other).load(8), Ok(0), "another machine's memory");
});

on_both!(rights_are_three_and_independent, vm, _host, {
    let machine = Machine::new(vm, &[LOW]).expect("room");
    let core = Core::new(&machine);
    core.store(0, 7).expect("memory");
    for bits in 0..8 {
        let rights = Rights { read: bits & 1 != 0, write: bits & 2 != 0, execute: bits & 4 != 0 };
        machine.protect(0..PAGE, rights).expect("memory");
        let expected = |may| if may { Ok(()) } else { Err(Exit::Forbidden) };
        // Hardware has no store without a load; what the guest may write it may read.
        assert_eq!(core.load(0).map(|_| ()), expected(rights.read || rights.write), "{rights:?}");
        assert_eq!(core.store(0, 7), expected(rights.write), "{rights:?}");
        assert_eq!(core.fetch(0), expected(rights.execute), "{rights:?}");
    }
    machine.protect(0..PAGE, Rights { read: true, write: true, execute: false }).expect("memory");
    assert_eq!(core.load(0), Ok(7));
});

/// Where an indirect table of descriptors stands.
const TABLE: u64 = 0x4_0ff0;

/// A request: a header that the device reads, and room for an answer that it writes; by descriptors in the queue's
/// table, or by one that names a table of their own, which crosses pages.
fn request(
    window: &Window<'_, '_, impl Generation>,
    is_indirect: bool,
    header: u64,
    answer: u64,
) -> Vec<RawDescriptor> {
    const NEXT: u16 = 1;
    const WRITE: u16 = 2;
    const INDIRECT: u16 = 4;
    let direct = [Descriptor::new(header, 24, NEXT, 1), Descriptor::new(answer, 6000, WRITE, 0)];
    if !is_indirect {
        return direct.map(Into::into).to_vec();
    }
    for (place, descriptor) in direct.into_iter().enumerate() {
        window.write_obj(descriptor, GuestAddress(TABLE + place as u64 * 16)).expect("memory");
    }
    vec![Descriptor::new(TABLE, 32, INDIRECT, 0).into()]
}

on_both!(virtio_queues_run_over_it, vm, _host, {
    let machine = Machine::new(vm, &[LOW]).expect("room");
    let core = Core::new(&machine);
    // Both buffers cross pages, and nobody has touched the answer's.
    let (header, answer) = (0x20_0ff8, 0x30_0ffd);
    for word in 0..3 {
        core.store(header + word * 8, 0x1111 * (word + 1)).expect("memory");
    }
    for is_indirect in [false, true] {
        let window = Window::new(&machine);
        let driver = MockSplitQueue::create(&window, GuestAddress(0x1000), 16);
        driver.build_desc_chain(&request(&window, is_indirect, header, answer)).expect("room in the queue");
        let mut queue: Queue = driver.create_queue().expect("a good queue");
        let found = queue.pop_descriptor_chain(&window).expect("one request");
        let head = found.head_index();
        let mut reader = found.clone().reader(&window).expect("a header");
        let mut words = [0_u64; 3];
        for word in &mut words {
            *word = reader.read_obj().expect("24 bytes");
        }
        assert_eq!(words, [0x1111, 0x2222, 0x3333]);
        let mut writer = found.writer(&window).expect("room for an answer");
        let text: Vec<u8> = (0..6000_u32).map(|place| (place % 251) as u8).collect();
        std::io::Write::write_all(&mut writer, &text).expect("6000 bytes");
        queue.add_used(&window, head, 6000).expect("room in the ring");
        let (used, nr_used) = (driver.used_addr(), driver.used().idx().load());
        drop(window);
        // The driver's view of the used ring: flags and index, then the chain's head and how much was written.
        assert_eq!(nr_used, 1);
        assert_eq!(core.load(used.0 & !7).map(|word| word >> (used.0 % 8 * 8) >> 16 & 0xffff), Ok(1));
        let element =
            (used.0 + 4..used.0 + 12).map(|place| (core.load(place & !7).expect("memory") >> (place % 8 * 8)) as u8);
        let element: Vec<u8> = element.collect();
        assert_eq!(element, [u32::from(head).to_le_bytes(), 6000_u32.to_le_bytes()].concat());
        let byte = |place: u64| (core.load((answer + place) & !7).expect("memory") >> ((answer + place) % 8 * 8)) as u8;
        assert!((0..6000).all(|place| byte(place) == text[place as usize]));
    }
});

on_both!(devices_are_kept_inside_ram, vm, _host, {
    let machine = Machine::new(vm, &[LOW, HIGH]).expect("room");
    let window = Window::new(&machine);
    let may = |start, len| GuestMemory::check_range(&window, GuestAddress(start), len, Permissions::ReadWrite);
    assert!(may(0, 0x80_0000) && may(HIGH.start, 8) && may(LOW.end - 1, 1));
    assert!(!may(LOW.end - 1, 2) && !may(LOW.end, 1) && !may(u64::MAX, 2));
    assert!(window.write_obj(1_u64, GuestAddress(LOW.end - 4)).is_err());
    assert!(window.read_obj::<u64>(GuestAddress(0xfee0_0000)).is_err());
    machine.protect(0..PAGE, Rights { read: true, write: false, execute: false }).expect("memory");
    assert!(window.write_obj(1_u64, GuestAddress(0)).is_err(), "memory that may not be written");
    assert_eq!(window.read_obj::<u64>(GuestAddress(0)).ok(), Some(0));
});

on_both!(a_chain_that_leaves_ram_is_refused, vm, _host, {
    let machine = Machine::new(vm, &[LOW]).expect("room");
    let window = Window::new(&machine);
    for answer in [LOW.end - 100, LOW.end, 0xfee0_0000, u64::MAX - 100] {
        for is_indirect in [false, true] {
            let driver = MockSplitQueue::create(&window, GuestAddress(0x1000), 16);
            driver.build_desc_chain(&request(&window, is_indirect, 0x20_0ff8, answer)).expect("room in the queue");
            let mut queue: Queue = driver.create_queue().expect("a good queue");
            let found = queue.pop_descriptor_chain(&window).expect("one request");
            assert!(found.clone().writer(&window).is_err(), "{answer:#x}, indirect: {is_indirect}");
        }
    }
    // An indirect table outside RAM has no descriptors.
    let driver = MockSplitQueue::create(&window, GuestAddress(0x1000), 16);
    driver.build_desc_chain(&[Descriptor::new(LOW.end, 32, 4, 0).into()]).expect("room in the queue");
    let mut queue: Queue = driver.create_queue().expect("a good queue");
    assert_eq!(queue.pop_descriptor_chain(&window).expect("one request").count(), 0);
});

on_both!(a_store_to_a_page_that_a_device_has_read_is_copied, vm, _host, {
    let machine = Machine::new(vm, &[LOW]).expect("room");
    let core = Core::new(&machine);
    let window = Window::new(&machine);
    // The page becomes the machine's own without a store, while none is allowed: then it is writable, and clean.
    let rights = |write| Rights { read: true, write, execute: false };
    machine.protect(LOW, rights(false)).expect("memory");
    assert_eq!(window.read_obj::<u64>(GuestAddress(0x5000)).ok(), Some(0));
    machine.protect(LOW, rights(true)).expect("memory");
    let migration = Migration::begin(&machine);
    let mut image: BTreeMap<u64, Page> = BTreeMap::new();
    for value in 1..=3 {
        migration.round(&mut |_, _| ()).expect("memory");
        core.store(0x5008, value).expect("memory");
        assert_eq!(window.read_obj::<u64>(GuestAddress(0x5008)).ok(), Some(value), "the frame that the device sees");
        migration
            .round(&mut |address, page| {
                image.insert(address, *page);
            })
            .expect("memory");
        assert_eq!(image.get(&0x5000).map(|page| page[1]), Some(value));
    }
});

/// Numbers that look random (splitmix64).
fn random(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mixed = (*state ^ *state >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ mixed >> 31
}

on_both!(a_copy_is_equal_although_the_guest_went_on, vm, host, {
    for seed in 1..=6_u64 {
        let machine = Machine::new(vm, &[LOW]).expect("room");
        let mut image: BTreeMap<u64, Page> = BTreeMap::new();
        let (is_paused, nr_stores, has_stopped) = (AtomicBool::new(false), AtomicU64::new(0), AtomicBool::new(false));
        std::thread::scope(|scope| {
            scope.spawn(|| {
                host.attach(|| {
                    let (core, mut state) = (Core::new(&machine), seed);
                    while !is_paused.load(Ordering::Relaxed) {
                        // Most stores go to a few pages.
                        let pages = if random(&mut state).is_multiple_of(8) { 512 } else { 16 };
                        let address = random(&mut state) % (pages * 512) * 8;
                        core.store(address, random(&mut state)).expect("memory");
                        nr_stores.fetch_add(1, Ordering::Relaxed);
                        if random(&mut state).is_multiple_of(64) {
                            let window = Window::new(&machine);
                            let address = GuestAddress(random(&mut state) % (512 * 512) * 8);
                            window.write_obj(random(&mut state), address).expect("memory");
                        }
                    }
                    has_stopped.store(true, Ordering::Release);
                });
            });
            while nr_stores.load(Ordering::Relaxed) < 1000 {
                std::thread::yield_now();
            }
            let migration = Migration::begin(&machine);
            let pause = || {
                is_paused.store(true, Ordering::Relaxed);
                while !has_stopped.load(Ordering::Acquire) {
                    std::thread::yield_now();
                }
            };
            let mut send = |address: u64, page: &Page| {
                image.insert(address, *page);
            };
            let nr_rounds = migration.finish(4, 20, pause, &mut send).expect("memory");
            assert!(nr_rounds >= 1, "the guest stored to more than a few pages");
        });
        let core = Core::new(&machine);
        for address in LOW.step_by(8) {
            let copy = image.get(&(address / PAGE * PAGE)).map_or(0, |page| page[(address % PAGE) as usize / 8]);
            assert_eq!(core.load(address), Ok(copy), "seed {seed}, {address:#x}");
        }
        assert!(image.len() <= 512, "pages that nobody stored to are not sent");
    }
});

#[test]
fn the_format_without_bits_keeps_its_obligations() {
    check_format::<EptWithoutBits>(&[Pfn::new(1), Pfn::new(0xfff_ffff)]);
}
