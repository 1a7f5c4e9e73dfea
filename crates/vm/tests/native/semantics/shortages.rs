//! Every call, with each of its allocations failing in turn.
//!
//! # Guarantee
//! Of each call the n-th allocation fails, for n = 1, 2, 3 and so on until it makes fewer, first alone and then with
//! all that follow. After each attempt every invariant holds, those about TLBs with translations on both CPUs. A call
//! that says that there is no memory has changed nothing that a program sees, unless its row says otherwise, and
//! succeeds when there is some.

use crate::drawing::{Scene, at};
use crate::world::{RW, Tested, World, anonymous};
use faultless_phys::{Failing, OutOfFrames};
use faultless_platform::PAGE_BYTES;
use faultless_platform::native::{HostRegion, Machine, Native};
use faultless_vm::{
    AccessError, AddressRange, Advice, AreaFlags, Backing, CallError, FetchError, Guest, Limits, LockAll, MapRequest,
    ObjectHandle, ObjectSpec, PAGE, PageLock, PageSource, PinKind, Placement, Populate, RemapPlacement, RemapRequest,
    SpaceRef, VirtAddr, WriteNotice,
};

/// A page of another table, and of another table of tables.
const FAR: u64 = 1 << 18;
/// Where the object is mapped: privately, and shared.
const PRIVATE: u64 = 32;
const SHARED: u64 = 40;
const OBJECT_PAGES: u64 = 4;
/// What is drawn at the origin.
const AREAS: &str = "wwww.w.rr.ss.ll";
const PAGES: &str = "123..4.5..6..00";

/// Content that is zero nowhere.
struct Pattern;

impl PageSource for Pattern {
    fn fetch(&self, _: u64, page_index: u64, page: &mut [u8; PAGE_BYTES]) -> Result<(), FetchError> {
        page.fill(page_index as u8 + 1);
        Ok(())
    }
}

/// Why a call did not do what it should.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Refused {
    NoMemory,
    Call(CallError),
    Access(AccessError),
    /// It says nothing but that.
    Silently,
}

impl From<CallError> for Refused {
    fn from(error: CallError) -> Self {
        match error {
            CallError::OutOfFrames(_) | CallError::OutOfFramesNow(_) => Self::NoMemory,
            other => Self::Call(other),
        }
    }
}

impl From<AccessError> for Refused {
    fn from(error: AccessError) -> Self {
        if let AccessError::OutOfFrames(_) = error { Self::NoMemory } else { Self::Access(error) }
    }
}

impl From<(usize, AccessError)> for Refused {
    fn from((_, error): (usize, AccessError)) -> Self {
        error.into()
    }
}

impl From<OutOfFrames> for Refused {
    fn from(_: OutOfFrames) -> Self {
        Self::NoMemory
    }
}

/// What a call that finds no memory may leave behind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Leaves {
    Nothing,
    /// What it has done before, and it can be made again.
    Part,
    /// Those areas of several that have moved, and it can't be made again.
    Areas,
}

use Leaves::{Areas, Nothing, Part};

/// A space with areas of many kinds, and translations of them on both CPUs.
struct Stage<'vm, D: Tested> {
    scene: Scene<'vm, D>,
    object: ObjectHandle<'vm, Native>,
    /// A child that shares the private pages.
    child: Option<SpaceRef<'vm, Native, D>>,
}

/// A call; its name says which.
type Call<D> = (&'static str, Leaves, fn(&Stage<'_, D>) -> Result<(), Refused>);

impl<'vm, D: Tested> Stage<'vm, D> {
    fn new(world: &'vm World<D>, machine: &Machine, has_child: bool) -> Self {
        let scene = world.scene(AREAS, PAGES);
        let spec = ObjectSpec {
            identity: 1,
            size_bytes: OBJECT_PAGES * PAGE,
            source: &Pattern,
            write_notice: WriteNotice::None,
        };
        let object = world.vm.create_object(&spec).expect("room");
        let stage = Self { scene, object, child: None };
        for (page, kind) in [(PRIVATE, AreaFlags::empty()), (SHARED, AreaFlags::SHARED)] {
            stage.map_object(page, kind).expect("room");
            stage.scene.put(page, 7);
            stage.scene.load(page + 1);
        }
        stage.map_one(FAR).expect("room");
        stage.scene.put(FAR, 8);
        stage.scene.space.set_heap_start(VirtAddr::new(at(2 * FAR)));
        assert_eq!(stage.scene.space.brk(VirtAddr::new(at(2 * FAR + 2))), VirtAddr::new(at(2 * FAR + 2)));
        stage.scene.put(2 * FAR + 1, 9);
        let child = has_child.then(|| stage.scene.space.fork().expect("room"));
        let stage = Self { child, ..stage };
        stage.touch_on_the_other_cpu(machine);
        stage
    }

    fn map_object(&self, page: u64, kind: AreaFlags) -> Result<u64, CallError> {
        self.scene
            .space
            .mmap(&MapRequest {
                backing: Backing::Object(&self.object, 0),
                protection: (RW | kind).protection(),
                options: (RW | kind).options(),
                ..anonymous(Some(at(page)), OBJECT_PAGES * PAGE)
            })
            .map(VirtAddr::get)
    }

    fn map_one(&self, page: u64) -> Result<u64, CallError> {
        self.scene.space.mmap(&anonymous(Some(at(page)), PAGE)).map(VirtAddr::get)
    }

    /// Lets the other CPU know the pages as this one does: those that were stored to as writable.
    fn touch_on_the_other_cpu(&self, machine: &Machine) {
        let touch = || {
            let guest = Guest::new(&self.scene.space);
            for page in [0, 1, 2, 5, 10, PRIVATE, SHARED, FAR, 2 * FAR + 1] {
                let (value, _) = guest.load(VirtAddr::new(at(page))).expect("mapped");
                // Whom a child shares the page with keeps it.
                if self.child.is_none() {
                    guest.store(VirtAddr::new(at(page)), value).expect("mapped");
                }
            }
        };
        std::thread::scope(|scope| scope.spawn(|| machine.attach(touch)).join().expect("no panic"));
    }

    /// Returns what a program sees, and what is counted.
    fn picture(&self) -> String {
        let space = &self.scene.space;
        let counts =
            [space.nr_areas(), space.mapped_bytes(), space.data_bytes(), space.locked_bytes(), space.resident_pages()];
        let far = [FAR, 2 * FAR + 1].map(|page| space.entry_at(VirtAddr::new(at(page))).holds_frame());
        format!("{:?} {counts:?} {far:?} {}", self.scene.picture(SHARED + OBJECT_PAGES), self.object.size_bytes())
    }

    fn remap(
        &self,
        page: u64,
        nr_pages: [u64; 2],
        placement: RemapPlacement,
        keeps_source: bool,
    ) -> Result<(), Refused> {
        let request = RemapRequest {
            old: AddressRange::new(VirtAddr::new(at(page)), nr_pages[0] * PAGE),
            new_len_bytes: nr_pages[1] * PAGE,
            placement,
            keeps_source,
        };
        Ok(self.scene.space.mremap(&request).map(drop)?)
    }
}

fn fixed(page: u64) -> RemapPlacement {
    RemapPlacement::Fixed(VirtAddr::new(at(page)))
}

fn mapped<D: Tested>(stage: &Stage<'_, D>, request: MapRequest<'_, Native>) -> Result<(), Refused> {
    Ok(stage.scene.space.mmap(&request).map(drop)?)
}

/// Calls that change areas.
fn map_calls<D: Tested>() -> Vec<Call<D>> {
    vec![
        ("mmap anywhere", Nothing, |s| mapped(s, anonymous(None, 3 * PAGE))),
        ("mmap over the middle of an area", Nothing, |s| mapped(s, anonymous(Some(at(1)), 2 * PAGE))),
        ("mmap over several areas", Nothing, |s| mapped(s, anonymous(Some(at(1)), 10 * PAGE))),
        ("mmap at a hint", Nothing, |s| {
            mapped(s, MapRequest { placement: Placement::Hint(VirtAddr::new(at(3 * FAR))), ..anonymous(None, PAGE) })
        }),
        ("mmap where nothing is", Nothing, |s| {
            mapped(
                s,
                MapRequest {
                    placement: Placement::FixedNoReplace(VirtAddr::new(at(3 * FAR))),
                    ..anonymous(None, PAGE)
                },
            )
        }),
        ("mmap of shared zeros", Nothing, |s| {
            let flags = RW | AreaFlags::SHARED;
            mapped(
                s,
                MapRequest {
                    protection: flags.protection(),
                    options: flags.options(),
                    backing: Backing::SharedZeros,
                    ..anonymous(None, PAGE)
                },
            )
        }),
        ("mmap of an object", Nothing, |s| Ok(s.map_object(2, AreaFlags::empty()).map(drop)?)),
        ("mmap with its pages", Part, |s| {
            mapped(s, MapRequest { populate: Populate::Now, ..anonymous(Some(at(3 * FAR)), 3 * PAGE) })
        }),
        ("mmap of locked memory", Part, |s| {
            mapped(
                s,
                MapRequest {
                    protection: (RW | AreaFlags::LOCKED).protection(),
                    options: (RW | AreaFlags::LOCKED).options(),
                    ..anonymous(Some(at(2)), 2 * PAGE)
                },
            )
        }),
        ("munmap of the middle of an area", Nothing, |s| Ok(s.scene.munmap(1..2)?)),
        ("munmap of several areas", Nothing, |s| Ok(s.scene.munmap(2..11)?)),
        ("munmap of an area with its tables", Nothing, |s| Ok(s.scene.munmap(FAR..FAR + 1)?)),
        ("mprotect of the middle of an area", Nothing, |s| Ok(s.scene.protect(1..2, AreaFlags::READ)?)),
        ("mprotect that makes pages", Part, |s| Ok(s.scene.protect(13..14, AreaFlags::READ)?)),
        ("mprotect of a part and what follows", Nothing, |s| Ok(s.scene.protect(2..4, AreaFlags::empty())?)),
        ("mseal of a part", Nothing, |s| Ok(s.scene.seal(1..2)?)),
        ("remap_file_pages", Nothing, |s| {
            Ok(s.scene.space.remap_file_pages(
                AddressRange::new(VirtAddr::new(at(SHARED + 1)), PAGE),
                3,
                Populate::OnFault,
            )?)
        }),
        ("brk that grows", Nothing, |s| brk(s, 2 * FAR + 600)),
        ("brk that shrinks", Nothing, |s| brk(s, 2 * FAR + 1)),
    ]
}

fn brk<D: Tested>(stage: &Stage<'_, D>, page: u64) -> Result<(), Refused> {
    if stage.scene.space.brk(VirtAddr::new(at(page))) == VirtAddr::new(at(page)) {
        Ok(())
    } else {
        Err(Refused::Silently)
    }
}

fn move_calls<D: Tested>() -> Vec<Call<D>> {
    use RemapPlacement::{Hint, InPlace, MayMove, MoveTo};
    vec![
        ("mremap that shrinks", Nothing, |s| s.remap(0, [4, 2], InPlace, false)),
        ("mremap that grows in place", Nothing, |s| s.remap(5, [1, 2], InPlace, false)),
        ("mremap that grows elsewhere", Nothing, |s| s.remap(0, [4, 8], MayMove, false)),
        ("mremap of locked memory that grows", Part, |s| s.remap(13, [2, 6], MayMove, false)),
        ("mremap to a free place", Nothing, |s| s.remap(1, [2, 2], fixed(3 * FAR), false)),
        ("mremap over another area", Nothing, |s| s.remap(0, [2, 2], fixed(7), false)),
        ("mremap to another length", Nothing, |s| s.remap(0, [4, 2], fixed(3 * FAR), false)),
        ("mremap that keeps its source", Nothing, |s| s.remap(0, [4, 4], fixed(3 * FAR), true)),
        ("mremap that keeps its source, at a hint", Nothing, |s| {
            s.remap(0, [4, 4], Hint(VirtAddr::new(at(3 * FAR))), true)
        }),
        ("mremap to a recorded place", Nothing, |s| s.remap(1, [1, 3], MoveTo(VirtAddr::new(at(3 * FAR))), false)),
        ("mremap that maps shared memory twice", Nothing, |s| s.remap(SHARED, [0, 2], MayMove, false)),
        ("mremap of several areas", Areas, |s| s.remap(0, [9, 9], fixed(3 * FAR), false)),
    ]
}

/// Returns advice about page 1, in the middle of an area.
macro_rules! advice {
    ($($leaves:ident $advice:ident),* $(,)?) => {
        vec![$((stringify!($advice), $leaves, |s| Ok(s.scene.advise(1..2, Advice::$advice)?))),*]
    };
}

fn advice_calls<D: Tested>() -> Vec<Call<D>> {
    let mut calls: Vec<Call<D>> = advice![
        Nothing Normal, Nothing Random, Nothing Sequential, Nothing WillNeed, Nothing DontNeed, Nothing DontNeedLocked,
        Nothing Free, Nothing DontFork, Nothing WipeOnFork, Nothing DontDump, Nothing Mergeable, Nothing HugePage,
        Nothing NoHugePage, Nothing Cold, Nothing PageOut, Nothing GuardInstall, Nothing GuardRemove, Nothing Ignored,
    ];
    calls.extend::<Vec<Call<D>>>(vec![
        ("MADV_GUARD_INSTALL where no table is", Nothing, |s| {
            s.scene.space.madvise(AddressRange::new(VirtAddr::new(at(2 * FAR + 1)), PAGE), Advice::DontNeed)?;
            Ok(s.scene.space.madvise(AddressRange::new(VirtAddr::new(at(FAR)), PAGE), Advice::GuardInstall)?)
        }),
        ("MADV_POPULATE_READ", Part, |s| Ok(s.scene.advise(0..4, Advice::PopulateRead)?)),
        ("MADV_POPULATE_WRITE", Part, |s| Ok(s.scene.advise(0..4, Advice::PopulateWrite)?)),
        ("MADV_REMOVE", Nothing, |s| Ok(s.scene.advise(SHARED..SHARED + 2, Advice::Remove)?)),
        ("mlock", Part, |s| Ok(s.scene.lock(1..4, PageLock::Lock)?)),
        ("mlock2 with MLOCK_ONFAULT", Nothing, |s| Ok(s.scene.lock(1..3, PageLock::LockOnFault)?)),
        ("munlock", Nothing, |s| Ok(s.scene.lock(13..14, PageLock::Unlock)?)),
        ("mlockall", Part, |s| Ok(s.scene.lock_all(LockAll::CURRENT | LockAll::FUTURE)?)),
        ("munlockall", Nothing, |s| {
            s.scene.space.munlock_all();
            Ok(())
        }),
    ]);
    calls
}

fn other_calls<D: Tested>() -> Vec<Call<D>> {
    vec![
        ("fork", Nothing, |s| Ok(s.scene.space.fork().map(drop)?)),
        ("create_space", Nothing, |s| Ok(s.scene.world.vm.create_space(Limits::default()).map(drop)?)),
        ("create_object", Nothing, |s| {
            let spec = ObjectSpec { identity: 2, size_bytes: PAGE, source: &Pattern, write_notice: WriteNotice::Fault };
            Ok(s.scene.world.vm.create_object(&spec).map(drop)?)
        }),
        ("truncate that shortens", Nothing, |s| Ok(s.scene.world.vm.truncate(&s.object, PAGE + 8)?)),
        ("truncate that extends", Nothing, |s| Ok(s.scene.world.vm.truncate(&s.object, 1 << 40)?)),
        ("punch", Nothing, |s| Ok(s.scene.world.vm.punch(&s.object, PAGE..3 * PAGE)?)),
        ("read_object", Nothing, |s| Ok(s.scene.world.vm.read_object(&s.object, 3 * PAGE, &mut [0])?)),
        ("load of untouched memory", Nothing, |s| Ok(s.scene.guest.load(VirtAddr::new(at(3))).map(drop)?)),
        ("store to untouched memory", Nothing, |s| Ok(s.scene.store(3, 6).map(drop)?)),
        ("store that copies", Nothing, |s| Ok(s.scene.store(0, 6).map(drop)?)),
        ("store to a page of zeros", Nothing, |s| {
            s.scene.space.madvise(AddressRange::new(VirtAddr::new(at(2)), PAGE), Advice::Free)?;
            Ok(s.scene.store(2, 6).map(drop)?)
        }),
        ("refpage_create", Nothing, |s| Ok(s.scene.space.refpage_create(at(0), 0).map(drop)?)),
        ("refpage_create of untouched memory", Part, |s| Ok(s.scene.space.refpage_create(at(3), 0).map(drop)?)),
        ("refpage_create of a word", Nothing, |s| Ok(s.scene.space.refpage_create_sized(at(0), 8, 0).map(drop)?)),
        ("mmap of a reference page", Nothing, |s| {
            let handle = s.scene.world.vm.create_reference(&[7; 512])?;
            let backing = Backing::Reference(&handle, 0);
            mapped(s, MapRequest { backing, ..anonymous(Some(at(2)), 2 * PAGE) })
        }),
        ("mmap of a pattern", Nothing, |s| {
            let backing = Backing::Pattern(faultless_vm::Pattern::Byte(7));
            mapped(s, MapRequest { backing, ..anonymous(Some(at(2)), 2 * PAGE) })
        }),
        ("mmap of a reference page, with its pages", Part, |s| {
            let handle = s.scene.world.vm.create_reference(&[7; 512])?;
            let backing = Backing::Reference(&handle, 0);
            let request = MapRequest { backing, populate: Populate::Now, ..anonymous(Some(at(3 * FAR)), 3 * PAGE) };
            mapped(s, request)
        }),
        ("store to a reference page", Part, |s| {
            let handle = s.scene.world.vm.create_reference(&[7; 512])?;
            let backing = Backing::Reference(&handle, 0);
            mapped(s, MapRequest { backing, ..anonymous(Some(at(3 * FAR)), 2 * PAGE) })?;
            s.scene.guest.load(VirtAddr::new(at(3 * FAR)))?;
            Ok(s.scene.store(3 * FAR, 6).map(drop)?)
        }),
        ("load of a pattern", Part, |s| {
            let backing = Backing::Pattern(faultless_vm::Pattern::Byte(7));
            mapped(s, MapRequest { backing, ..anonymous(Some(at(3 * FAR)), 2 * PAGE) })?;
            Ok(s.scene.guest.load(VirtAddr::new(at(3 * FAR))).map(drop)?)
        }),
        ("pin to read", Nothing, |s| Ok(s.scene.space.pin(VirtAddr::new(at(0)), PinKind::Read).map(drop)?)),
        ("pin to write", Part, |s| Ok(s.scene.space.pin(VirtAddr::new(at(3)), PinKind::Write).map(drop)?)),
        ("pin to read for long", Part, |s| {
            Ok(s.scene.space.pin(VirtAddr::new(at(5)), PinKind::LongTermRead).map(drop)?)
        }),
        ("load of an object's page", Nothing, |s| Ok(s.scene.guest.load(VirtAddr::new(at(SHARED + 3))).map(drop)?)),
        ("private store to an object's page", Nothing, |s| Ok(s.scene.store(PRIVATE + 3, 6).map(drop)?)),
        ("fetch", Nothing, |s| {
            let refused = s.scene.guest.fetch(VirtAddr::new(at(1))).map(drop);
            assert!(matches!(refused, Err(AccessError::Forbidden { .. })));
            Ok(())
        }),
        ("read_bytes", Part, |s| Ok(s.scene.guest.read_bytes(VirtAddr::new(at(2)), &mut [0; 2 * PAGE as usize])?)),
        ("write_bytes", Part, |s| Ok(s.scene.guest.write_bytes(VirtAddr::new(at(2) + 8), &[0; PAGE as usize])?)),
    ]
}

/// Runs `test` with two CPUs, of which the calling thread has one.
fn with_machine<D: Tested>(test: impl FnOnce(&World<D>, &Machine)) {
    let region = HostRegion::reserve(64 << 20).expect("the host has room");
    let machine = Machine::new(2);
    machine.attach(|| {
        let world = World::<D>::new(&region, 2);
        test(&world, &machine);
        world.check("at the end");
    });
}

/// Makes a call once with allocations that fail; says whether it has come to the only one.
fn attempt<D: Tested>(stage: &Stage<'_, D>, (name, leaves, act): Call<D>, failing: Failing) -> bool {
    let (world, before) = (stage.scene.world, stage.picture());
    world.vm.memory().set_failing(failing);
    let result = act(stage);
    let was_hit = world.vm.memory().failing() == Failing::Never;
    world.vm.memory().set_failing(Failing::Never);
    let place = format!("{name}, {failing:?}: {result:?}");
    world.check(&place);
    match result {
        Ok(()) => {}
        Err(Refused::NoMemory | Refused::Silently) => {
            if leaves == Nothing {
                assert_eq!(stage.picture(), before, "{place}");
            }
            if leaves != Areas {
                assert_eq!(act(stage), Ok(()), "{place}, and then there is memory");
            }
            world.check(&format!("{place}, and then there is memory"));
        }
        Err(other) => panic!("{place}: {other:?}"),
    }
    was_hit
}

/// Makes calls with each allocation failing; returns how many allocations each makes.
fn with_each_failing<D: Tested>(calls: Vec<Call<D>>, has_child: bool) -> Vec<(&'static str, u64)> {
    let mut counts = Vec::new();
    with_machine::<D>(|world, machine| {
        for call in calls {
            let is_hit = |nth: &u64| attempt(&Stage::new(world, machine, has_child), call, Failing::Once(*nth));
            let nr_allocations = (1..).take_while(is_hit).count() as u64;
            for nth in 1..=nr_allocations {
                attempt(&Stage::new(world, machine, has_child), call, Failing::From(nth));
            }
            counts.push((call.0, nr_allocations));
        }
    });
    counts
}

fn all<D: Tested>() -> Vec<Call<D>> {
    [map_calls::<D>(), move_calls(), advice_calls(), other_calls()].concat()
}

for_each_design!(every_call_that_finds_no_memory_leaves_all_in_order, D, {
    let counts = with_each_failing::<D>(all::<D>(), false);
    let of = |name: &str| counts.iter().find(|(other, _)| *other == name).expect("one of them").1;
    // Those that make areas, tables or pages.
    for name in ["fork", "create_space", "mremap to a free place"] {
        assert!(of(name) >= 2, "{name} makes {} allocations", of(name));
    }
    // The index's node may be the one that the edit before has replaced.
    for name in ["mmap anywhere", "munmap of the middle of an area"] {
        assert!(of(name) >= 1, "{name} makes no allocation");
    }
    assert!(of("fork") > 20, "a fork makes {} allocations", of("fork"));
});

for_each_design!(every_call_on_pages_that_a_child_shares_leaves_all_in_order, D, {
    with_each_failing::<D>(all::<D>(), true);
});

for_each_design!(a_fork_that_fails_takes_the_right_to_write_from_every_cpu, D, {
    with_machine::<D>(|world, machine| {
        let nr_failed = (1..).find(|&nth| {
            let stage = Stage::new(world, machine, false);
            world.vm.memory().set_failing(Failing::Once(nth));
            let child = stage.scene.space.fork();
            world.vm.memory().set_failing(Failing::Never);
            world.check("after the fork");
            // What was write-protected is written again, on both CPUs, and a later child sees it.
            stage.scene.put(0, 4);
            stage.touch_on_the_other_cpu(machine);
            let late = stage.scene.fork();
            assert_eq!((late.load(0), late.load(1)), (4, 2));
            stage.scene.put(0, 5);
            assert_eq!(late.load(0), 4, "the child shares a page that its parent may write");
            child.is_ok()
        });
        assert!(nr_failed > Some(20), "{nr_failed:?} attempts");
    });
});
