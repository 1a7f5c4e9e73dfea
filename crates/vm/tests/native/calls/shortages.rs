//! Calls and faults when frames run out.

use super::{BASE, file, with_world};
use crate::world::{RW, Tested, World, anonymous, lines};
use faultless_platform::native::Native;
use faultless_vm::{
    AccessError, AddressRange, Advice, AreaFlags, Backing, CallError, Event, Guest, Limits, MapRequest, ObjectSpec,
    PAGE, RemapPlacement, RemapRequest, VirtAddr, WriteNotice, ZeroSource,
};

/// Takes every frame that there is, but for so many.
fn hog<'vm, D: Tested>(world: &'vm World<D>, nr_left: u64) -> Guest<'vm, Native, D> {
    let guest = Guest::new(&world.space());
    guest.space().mmap(&anonymous(Some(BASE), 2048 * PAGE)).expect("room");
    let is_refused = (0..2048).any(|page| guest.store(VirtAddr::new(BASE + page * PAGE), 1).is_err());
    assert!(is_refused, "there are more frames than this test takes");
    if nr_left != 0 {
        guest
            .space()
            .madvise(AddressRange::new(VirtAddr::new(BASE), nr_left * PAGE), Advice::DontNeed)
            .expect("mapped");
    }
    guest
}

for_each_design!(a_shortage_is_an_error_and_what_waits_for_readers_comes_back, D, {
    World::<D>::run(2, 4 << 20, |world| {
        let space = world.space();
        // Two users, so that faults are tried without the semaphore.
        let (guest, _other) = (Guest::new(&space), Guest::new(&space));
        let far = |round: u64| BASE + round * (1 << 30);
        let touch = |start: u64, nr_pages: u64| {
            space.mmap(&anonymous(Some(start), 2048 * PAGE)).expect("room");
            (0..nr_pages).try_for_each(|page| guest.store(VirtAddr::new(start + page * PAGE), page).map(drop))
        };
        // More than there is.
        let refused = touch(far(0), 2048);
        assert!(matches!(refused, Err(AccessError::OutOfFrames(_))), "{refused:?}");
        space.munmap(AddressRange::new(VirtAddr::new(far(0)), 2048 * PAGE)).expect("valid");
        // Each round leaves tables behind that wait for a grace period, until nothing else is left.
        for round in 1..200 {
            touch(far(round), 400).unwrap_or_else(|error| panic!("round {round}: {error}"));
            space.munmap(AddressRange::new(VirtAddr::new(far(round)), 2048 * PAGE)).expect("valid");
        }
        assert_eq!(world.vm.events().total(Event::Spf) > 0, D::NAME != "mmap-sem");
    });
});

for_each_design!(running_out_of_frames_changes_nothing, D, {
    use faultless_phys::Failing;
    with_world::<D>(|world| {
        let space = world.space();
        let guest = Guest::new(&space);
        for part in 0..40 {
            space.mmap(&anonymous(Some(BASE + part * 8 * PAGE), 6 * PAGE)).expect("room");
            guest.store(VirtAddr::new(BASE + part * 8 * PAGE + 2 * PAGE), part).expect("mapped");
        }
        let before = lines(&space);
        let target = BASE + 0x8000_0000;
        for nth in 0..200 {
            world.vm.memory().set_failing(Failing::Once(nth));
            let moved = space.mremap(&RemapRequest {
                old: AddressRange::new(VirtAddr::new(BASE + PAGE), 3 * PAGE),
                new_len_bytes: 3 * PAGE,
                placement: RemapPlacement::Fixed(VirtAddr::new(target)),
                keeps_source: false,
            });
            let was_hit = world.vm.memory().failing() == Failing::Never;
            world.vm.memory().set_failing(Failing::Never);
            world.check("invariants");
            if moved.is_ok() {
                assert!(!was_hit && nth > 0, "allocation {nth}");
                assert_eq!(guest.load(VirtAddr::new(target + PAGE)).expect("moved").0, 0);
                return;
            }
            assert_eq!(lines(&space), before, "allocation {nth} failed");
            assert_eq!(guest.load(VirtAddr::new(BASE + 2 * PAGE)).expect("still there").0, 0);
        }
        panic!("mremap never succeeded");
    });
});

for_each_design!(each_call_that_finds_no_frame_frees_what_waits_and_tries_again, D, {
    const WAITING_PAGES: u64 = 30;
    let far = |call: u64| BASE + (call + 1) * (1 << 30);
    World::<D>::run(2, 4 << 20, |world| {
        let space = world.space();
        let spec = ObjectSpec { size_bytes: 1 << 40, ..file(WriteNotice::None) };
        let object = world.vm.create_object(&spec).expect("room");
        type Call<'a> = (&'static str, &'a dyn Fn(u64) -> Result<(), CallError>);
        let calls: [Call<'_>; 7] = [
            ("MADV_GUARD_INSTALL", &|at| {
                space.madvise(AddressRange::new(VirtAddr::new(at), PAGE), Advice::GuardInstall)
            }),
            ("MADV_POPULATE_WRITE", &|at| {
                space.madvise(AddressRange::new(VirtAddr::new(at), PAGE), Advice::PopulateWrite)
            }),
            ("punch", &|at| world.vm.punch(&object, at..at + PAGE)),
            ("read_object", &|at| world.vm.read_object(&object, at, &mut [0])),
            ("create_object", &|_| world.vm.create_object(&spec).map(drop).map_err(CallError::OutOfFrames)),
            ("create_space", &|_| world.vm.create_space(Limits::default()).map(drop)),
            ("fork", &|_| space.fork().map(drop)),
        ];
        let mut waiting: Vec<Guest<'_, Native, D>> = Vec::new();
        for call in 0..calls.len() as u64 {
            space.mmap(&anonymous(Some(far(call)), PAGE)).expect("room");
            let guest = Guest::new(&world.space());
            guest.space().mmap(&anonymous(Some(BASE), WAITING_PAGES * PAGE)).expect("room");
            (0..WAITING_PAGES).for_each(|page| assert!(guest.store(VirtAddr::new(BASE + page * PAGE), 1).is_ok()));
            waiting.push(guest);
        }
        let hog = hog(world, 0);
        for (number, (name, call)) in calls.into_iter().enumerate() {
            let is_refused = (0..2048).any(|page| hog.store(VirtAddr::new(BASE + page * PAGE), 1).is_err());
            assert!(is_refused, "there are frames left");
            // A thread without a CPU leaves the space to whoever needs its frames.
            let last = waiting.pop();
            std::thread::scope(|scope| drop(scope.spawn(move || drop(last))));
            assert_eq!(call(far(number as u64)), Ok(()), "{name} reports a shortage although frames wait to be freed");
        }
        drop(hog);
        world.check("when there are frames again");
    });
});

for_each_design!(frames_of_a_file_that_is_gone_are_had_when_there_are_no_others, D, {
    World::<D>::run(1, 16 << 20, |world| {
        let half = world.vm.memory().nr_free() as u64 / 2;
        let space = world.space();
        let guest = Guest::new(&space);
        // A second user, so that faults speculate.
        let _second = Guest::new(&space);
        let spec =
            ObjectSpec { identity: 1, size_bytes: half * PAGE, source: &ZeroSource, write_notice: WriteNotice::None };
        for _ in 0..3 {
            let file = world.vm.create_object(&spec).expect("room");
            let shared = MapRequest {
                protection: (RW | AreaFlags::SHARED).protection(),
                options: (RW | AreaFlags::SHARED).options(),
                backing: Backing::Object(&file, 0),
                ..anonymous(None, half * PAGE)
            };
            let base = space.mmap(&shared).expect("room");
            for page in 0..half {
                guest.store(base + page * PAGE, 1).expect("mapped");
            }
            drop(file);
            space.munmap(AddressRange::new(base, half * PAGE)).expect("valid");
        }
        let base = space.mmap(&anonymous(None, (half + half / 2) * PAGE)).expect("room");
        for page in 0..half + half / 2 {
            guest.store(base + page * PAGE, 1).expect("frames are free");
        }
        drop(guest);
        world.check("invariants");
    });
});

/// Moves four areas, each with a page table of its own, while there are so many free frames; returns how many moved.
fn move_with_few_frames<D: Tested>(nr_left: u64, keeps_source: bool) -> usize {
    const NR: usize = 4;
    const APART: u64 = 512 * PAGE;
    let (source, target) = (BASE, BASE + (1 << 30));
    let mut nr_moved = 0;
    World::<D>::run(2, 4 << 20, |world| {
        let space = world.space();
        let guest = Guest::new(&space);
        for place in 0..NR as u64 {
            space.mmap(&anonymous(Some(source + place * APART), PAGE)).expect("room");
            guest.store(VirtAddr::new(source + place * APART), place + 1).expect("mapped");
        }
        let move_from = |first: usize| {
            let at = first as u64 * APART;
            let len_bytes = (NR - first - 1) as u64 * APART + PAGE;
            space.mremap(&RemapRequest {
                old: AddressRange::new(VirtAddr::new(source + at), len_bytes),
                new_len_bytes: len_bytes,
                placement: RemapPlacement::Fixed(VirtAddr::new(target + at)),
                keeps_source,
            })
        };
        let hog = hog(world, nr_left);
        let result = move_from(0);
        let is_at = |start: u64, place: usize| {
            let address = start + place as u64 * APART;
            guest.load(VirtAddr::new(address)).map(|(value, _)| value) == Ok(place as u64 + 1)
        };
        nr_moved = (0..NR).take_while(|&place| is_at(target, place)).count();
        assert!((nr_moved..NR).all(|place| is_at(source, place)), "{nr_left} left: an area is in neither place");
        let nr_kept = if keeps_source { nr_moved } else { 0 };
        assert_eq!(space.nr_areas(), (NR + nr_kept) as u64);
        match &result {
            Ok(start) => assert_eq!((start.get(), nr_moved), (target, NR)),
            Err(error) => assert!(matches!(error, CallError::OutOfFrames(_)) && nr_moved < NR, "{error}"),
        }
        world.check("after the move");
        drop(hog);
        if nr_moved < NR {
            move_from(nr_moved).expect("there are frames now");
            assert!((0..NR).all(|place| is_at(target, place)), "what was left went on from there");
        }
        world.check("after the rest");
    });
    nr_moved
}

for_each_design!(a_move_of_several_areas_that_finds_no_frame_has_moved_those_before_whole, D, {
    let moved: Vec<usize> = (0..16).map(|nr_left| move_with_few_frames::<D>(nr_left, true)).collect();
    assert!(moved.iter().any(|nr| (1..4).contains(nr)), "none was stopped half way: {moved:?}");
    assert_eq!((moved.first(), moved.last()), (Some(&0), Some(&4)), "{moved:?}");
});

for_each_design!(a_move_of_several_areas_goes_on_with_the_tables_that_it_gave_up, D, {
    // The first area's target needs three tables; the one that it leaves behind serves the next.
    let moved: Vec<usize> = (0..8).map(|nr_left| move_with_few_frames::<D>(nr_left, false)).collect();
    assert_eq!(moved, [0, 0, 0, 4, 4, 4, 4, 4]);
});
