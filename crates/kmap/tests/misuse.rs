//! What the types cannot forbid ends in a panic that names the rule.

use std::panic::{AssertUnwindSafe, catch_unwind};

use faultless_kmap::own::{Atomic, Local, PercpuPinned};
use faultless_kmap::pool::{CLASSES, Pool};
use faultless_kmap::{KernelMaps, NEST_MOST, Scheme, Shape, Task};
use faultless_platform::Processor;
use faultless_platform::native::{Machine, Native};

/// Returns what the panic of `misuse` says, on a machine of two CPUs.
fn said<S: Scheme<Native>>(misuse: impl Fn(&KernelMaps<Native, S>, &Task) + Sync) -> String {
    let told = std::sync::Mutex::new(String::new());
    Machine::new(2).attach(|| {
        let maps = KernelMaps::<Native, S>::new(&Shape { nr_cpus: 2, nr_frames: 16, nr_slots: 16, ..Shape::default() });
        let task = Task::new(0, Native::cpu());
        let panic = catch_unwind(AssertUnwindSafe(|| misuse(&maps, &task))).expect_err("it is misuse");
        let text = panic.downcast_ref::<String>().cloned();
        *told.lock().unwrap() = text.or_else(|| panic.downcast_ref::<&str>().map(|&text| text.into())).unwrap();
    });
    told.into_inner().unwrap()
}

#[test]
fn a_frame_is_released_twice() {
    let twice = said::<Local<Native>>(|maps, task| {
        maps.hold(task, 3);
        maps.release(task, 3);
        maps.release(task, 3);
    });
    assert_eq!(twice, "frame 3 is released by a task that holds nothing");
}

#[test]
fn maps_are_released_out_of_order() {
    let crossed = said::<Pool<Native>>(|maps, task| {
        maps.hold(task, 3);
        maps.hold(task, 4);
        maps.release(task, 3);
    });
    assert_eq!(crossed, "frame 3 is released before frame 4, which was mapped after it");
    let guards = said::<Local<Native>>(|maps, task| {
        let outer = maps.map(task, 3);
        let inner = std::mem::ManuallyDrop::new(maps.map(task, 4));
        drop(outer);
        drop(std::mem::ManuallyDrop::into_inner(inner));
    });
    assert_eq!(guards, "maps are released in the opposite order");
}

#[test]
fn an_atomic_map_is_kept_while_the_cpu_is_given_up() {
    let kept = said::<Atomic<Native>>(|maps, task| {
        maps.hold(task, 3);
        maps.suspend(task);
    });
    assert_eq!(kept, "a task gives its CPU up with 1 atomic maps");
}

#[test]
fn a_map_of_a_cpu_s_own_is_taken_to_another_cpu() {
    fn moved<S: Scheme<Native>>() -> String {
        said::<S>(|maps, task| {
            maps.hold(task, 3);
            let other = 1 - Native::cpu();
            Native::leave();
            Native::prefer(other);
            Native::enter();
            assert!(Native::cpu() == other && !maps.may_go_on(task));
            maps.release(task, 3);
        })
    }
    for told in [moved::<Local<Native>>(), moved::<PercpuPinned<Native>>(), moved::<Atomic<Native>>()] {
        assert!(told.starts_with("a task left CPU ") && told.ends_with("with maps of the former"), "{told}");
    }
}

#[test]
fn too_many_maps_are_held() {
    let own = said::<Local<Native>>(|maps, task| (0..=NEST_MOST as u32).for_each(|pfn| maps.hold(task, pfn)));
    assert_eq!(own, format!("a task holds at most {NEST_MOST} maps"));
    let pool = said::<Pool<Native>>(|maps, task| (0..=CLASSES as u32).for_each(|pfn| maps.hold(task, pfn)));
    assert_eq!(pool, format!("a task holds at most {CLASSES} maps of a pool at a time"));
}
