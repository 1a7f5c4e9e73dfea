//! What the checker promises to notice, broken on purpose, one thing at a time: it says so, and is content again when
//! that is mended.

use super::{holds_what_it_counts, invariants};
use crate::addr::{AddressRange, PAGE, VirtAddr};
use crate::design::names::DefaultDesign;
use crate::entry::{Entry, EntryFlags};
use crate::guest::Guest;
use crate::instance::Vm;
use crate::limits::Limits;
use crate::object::{ObjectSpec, WriteNotice, ZeroSource};
use crate::pattern::Pattern;
use crate::space::Space;
use crate::space::quantity::Quantity;
use crate::space::request::{Backing, MapRequest, Placement, Populate};
use crate::translations::frames;
use crate::translations::table::Tables;
use crate::types::Area;
use crate::view::AreaFlags;
use crate::{PinKind, SpaceRef};
use faultless_phys::{Kind, Memory, Options, Pfn};
use faultless_platform::native::{HostRegion, Machine, Native};
use faultless_platform::{Atomic, Ordering};

const RW: AreaFlags = AreaFlags::READ.union(AreaFlags::WRITE);
/// Where things are mapped; a TLB has a place for each of these pages.
const OWN: u64 = 0x1000_0000;
const CODE: u64 = OWN + 0x11_0000;
const REFERENCE: u64 = OWN + 0x22_0000;
const SHARED: u64 = OWN + 0x33_0000;

/// A space with two pages of its own, one of zeros, and one that was never used; code; a reference page; and an object
/// of which two of four pages are mapped.
struct World<'vm> {
    vm: &'vm Vm<Native>,
    space: SpaceRef<'vm, Native>,
    guest: Guest<'vm, Native>,
}

fn map(space: &Space<Native>, start: u64, nr_pages: u64, flags: AreaFlags, backing: Backing<'_, Native>) {
    let request = MapRequest {
        placement: Placement::Fixed(VirtAddr::new(start)),
        len_bytes: nr_pages * PAGE,
        protection: flags.protection(),
        options: flags.options(),
        backing,
        populate: Populate::OnFault,
    };
    space.mmap(&request).expect("room");
}

fn with_world(test: impl FnOnce(&World<'_>)) {
    let region = HostRegion::reserve(if cfg!(miri) { 1 } else { 4 } << 20).expect("the host has room");
    Machine::new(1).attach(|| {
        // SAFETY: the region is zeroed, ours alone, and outlives the instance.
        let memory = unsafe { Memory::new(region.base(), region.len_bytes(), 1, Options::default()) }.expect("room");
        let vm = Vm::<Native>::new(memory).expect("a frame for the zero page");
        let space = vm.create_space(Limits::default()).expect("room");
        let spec =
            ObjectSpec { identity: 1, size_bytes: 4 * PAGE, source: &ZeroSource, write_notice: WriteNotice::None };
        let object = vm.create_object(&spec).expect("room");
        let reference = vm.create_repeated(Pattern::Byte(7)).expect("room");
        let map = |start, nr_pages, flags, backing| map(&space, start, nr_pages, flags, backing);
        map(OWN, 4, RW, Backing::Anonymous);
        map(CODE, 1, RW | AreaFlags::EXEC, Backing::Anonymous);
        map(REFERENCE, 1, RW, Backing::Reference(&reference, 0));
        map(SHARED, 4, RW | AreaFlags::SHARED, Backing::Object(&object, 0));
        let guest = Guest::new(&space);
        for page in [OWN, OWN + PAGE, SHARED, SHARED + PAGE, CODE] {
            guest.store(VirtAddr::new(page), 1).expect("mapped");
        }
        for page in [OWN + 2 * PAGE, REFERENCE] {
            guest.load(VirtAddr::new(page)).expect("mapped");
        }
        let world = World { vm: &vm, space: space.clone(), guest };
        world.is_right();
        test(&world);
        world.is_right();
    });
}

impl World<'_> {
    fn is_right(&self) {
        // SAFETY: there is no other thread.
        unsafe { invariants(self.vm) }.unwrap_or_else(|broken| panic!("{broken}"));
    }

    /// The checker names the invariant, in these words.
    #[track_caller]
    fn is_broken(&self, invariant: u32, words: &str) {
        // SAFETY: there is no other thread.
        let found = unsafe { invariants(self.vm) };
        let broken = found.expect_err(words);
        assert_eq!((broken.invariant, broken.what.contains(words)), (invariant, true), "{words}: {broken}");
        assert_eq!(std::format!("{broken}"), std::format!("invariant {invariant} is broken: {}", broken.what));
    }

    /// Another number in this place breaks an invariant.
    #[track_caller]
    fn number<T: Copy>(&self, place: &impl Atomic<Value = T>, other: impl Fn(T) -> T, invariant: u32, words: &str) {
        let right = place.load(Ordering::Relaxed);
        place.store(other(right), Ordering::Relaxed);
        self.is_broken(invariant, words);
        place.store(right, Ordering::Relaxed);
    }

    /// Another entry of this page breaks an invariant.
    #[track_caller]
    fn entry(&self, page: u64, other: impl Fn(Entry) -> Entry, invariant: u32, words: &str) {
        let slot = self.space.tables().walk(self.vm.memory(), page).expect("there is a table").slot;
        let right = slot.load(Ordering::Relaxed);
        slot.store(other(right), Ordering::Relaxed);
        self.is_broken(invariant, words);
        slot.store(right, Ordering::Relaxed);
    }

    fn frame_of(&self, page: u64) -> Pfn {
        self.space.entry_at(VirtAddr::new(page)).pfn()
    }

    /// Other flags of the area of this page break an invariant.
    #[track_caller]
    fn flags(&self, page: u64, other: impl Fn(AreaFlags) -> AreaFlags, invariant: u32, words: &str) {
        let other = |flags| other(AreaFlags::from_bits_retain(flags)).bits();
        self.area(page, |area| self.number(&area.flags, other, invariant, words));
    }

    fn area(&self, page: u64, look: impl FnOnce(&Area<Native, DefaultDesign<Native>>)) {
        let entry = self.space.index().containing(page).expect("mapped");
        // SAFETY: nobody changes the areas meanwhile.
        look(unsafe { entry.area.as_ref() });
    }
}

#[test]
fn sums_that_are_not_those_of_the_areas() {
    with_world(|world| {
        let more = |number| number + 1;
        world.number(world.space.charged(Quantity::Areas), more, 1, "areas, map_count says");
        world.number(world.space.charged(Quantity::Bytes), more, 1, "bytes mapped");
        world.number(world.space.charged(Quantity::DataBytes), more, 1, "bytes of data");
        world.number(world.space.charged(Quantity::LockedBytes), more, 1, "bytes locked");
        world.area(OWN, |area| {
            world.number(&area.start, |start| start + PAGE, 1, "index says");
            world.number(&area.end, |end| end - PAGE, 1, "index says");
        });
        world.space.translations.add_resident(1);
        world.is_broken(1, "rss says");
        world.space.translations.shrink_resident(1);
    });
}

#[test]
fn entries_that_are_stronger_than_their_area() {
    with_world(|world| {
        let stronger = "is stronger than its area";
        world.entry(OWN, |entry| entry.without(EntryFlags::NO_EXECUTE), 2, stronger);
        world.entry(OWN, |entry| entry.with(EntryFlags::EXECUTE_ONLY), 2, stronger);
        world.flags(CODE, |flags| flags | AreaFlags::EXECUTE_ONLY, 2, stronger);
        world.entry(OWN, |entry| entry.with(EntryFlags::COLLECTED), 2, "nothing was stored since the last look");
        // Without a word about the size of data.
        world.flags(SHARED, |flags| flags - AreaFlags::WRITE, 2, stronger);
        world.flags(SHARED, |flags| flags - AreaFlags::RIGHTS, 2, stronger);
    });
}

#[test]
fn guards_that_are_not_as_they_should_be() {
    with_world(|world| {
        let last = AddressRange::new(VirtAddr::new(OWN + 3 * PAGE), PAGE);
        world.space.madvise(last, crate::Advice::GuardInstall).expect("mapped");
        let page = OWN + 3 * PAGE;
        world.entry(page, |entry| entry.with(EntryFlags::WRITE), 2, "a guard with other bits");
        world.flags(OWN, |flags| flags - AreaFlags::MAYBE_GUARD, 2, "a guard in an area that does not say");
        // Of an area whose own pages would be noticed first.
        let alone = AddressRange::new(VirtAddr::new(REFERENCE - PAGE), PAGE);
        map(&world.space, alone.start.get(), 1, AreaFlags::READ, Backing::Anonymous);
        world.space.madvise(alone, crate::Advice::GuardInstall).expect("mapped");
        world.area(alone.start.get(), |area| world.number(&area.root, |_| 0, 2, "without a root"));
    });
}

#[test]
fn pages_that_nobody_owns() {
    with_world(|world| {
        let zeros = OWN + 2 * PAGE;
        world.entry(zeros, |entry| entry.with(EntryFlags::WRITE), 3, "is writable");
        let reference = world.frame_of(REFERENCE);
        let other = |entry: Entry| Entry::new(reference, entry.flags());
        world.entry(zeros, other, 3, "its area's untouched page is");
        let last = world.vm.memory().frame(world.vm.zero_page()).wrapping_add(PAGE as usize - 1);
        // SAFETY: nobody else looks at the page of zeros.
        let set = |byte| unsafe { last.write(byte) };
        set(1);
        world.is_broken(3, "the zero page is not zero");
        set(0);
    });
}

#[test]
fn frames_that_are_not_the_pages_own() {
    with_world(|world| {
        let (first, second, of_object) = (world.frame_of(OWN), world.frame_of(OWN + PAGE), world.frame_of(SHARED));
        let put = |pfn: Pfn| move |entry: Entry| Entry::new(pfn, entry.flags());
        let private = |pfn: Pfn| move |entry: Entry| Entry::new(pfn, entry.flags()).without(EntryFlags::OBJECT);
        world.entry(OWN, |entry| entry.with(EntryFlags::OBJECT), 2, "which is an object's, for itself");
        world.entry(SHARED, |entry| entry.without(EntryFlags::OBJECT), 3, "as if it held a reference");
        world.entry(OWN, put(second), 2, "the area has page");
        world.entry(OWN, put(of_object), 2, "but no object is mapped there");
        world.entry(SHARED, private(first), 2, "in a shared area");
        world.entry(SHARED + PAGE, put(of_object), 2, "which its object has not there");
        world.area(SHARED, |area| world.number(&area.first_page, |page| page - 4, 2, "behind its object's end"));
        // SAFETY: there is no other thread.
        let page = unsafe { world.vm.memory().page(first).owned() };
        world.number(page.owner(), |root| root + 1, 2, "has the root");
        world.number(page.index(), |index| index + 1, 2, "the area has page");
        world.area(OWN, |area| world.number(&area.root, |_| 0, 2, "has the root"));
        let child = world.space.fork().expect("room");
        world.entry(OWN, |entry| entry.with(EntryFlags::EXCLUSIVE), 2, "for itself, but 2");
        world.entry(OWN, |entry| entry.with(EntryFlags::OBJECT), 3, "as if an object had it");
        drop(child);
    });
}

#[test]
fn references_that_nobody_holds_and_frames_that_nobody_has() {
    with_world(|world| {
        let memory = world.vm.memory();
        for page in [OWN, SHARED] {
            let pfn = world.frame_of(page);
            assert!(memory.page(pfn).try_get());
            world.is_broken(3, "references, ");
            frames::put(memory, pfn);
        }
        let pin = world.space.pin(VirtAddr::new(OWN), PinKind::Write).expect("mapped");
        world.is_right();
        assert_eq!(memory.page(pin.frame()).nr_references(), 2);
        drop(pin);
        let table = frames::alloc_table::<Native>(memory, None).expect("room");
        world.is_broken(8, "is a page table of no tree");
        frames::put(memory, table);
        let page = frames::alloc::<Native>(memory, Kind::Reference).expect("room");
        world.is_broken(8, "is a reference page that nobody refers to");
        frames::put(memory, page);
        let area = world.vm.areas.alloc().expect("room");
        world.is_broken(8, "areas are there");
        // SAFETY: never written.
        unsafe { world.vm.areas.free(area) };
    });
}

#[test]
fn translations_that_are_stronger_than_their_entries() {
    with_world(|world| {
        let knows = |page: u64| std::format!("CPU 0 knows {page:#x} as");
        world.entry(OWN + PAGE, |entry| entry.without(EntryFlags::WRITE), 5, &knows(OWN + PAGE));
        world.guest.fetch(VirtAddr::new(CODE)).expect("mapped");
        world.entry(CODE, |entry| entry.with(EntryFlags::NO_EXECUTE), 5, &knows(CODE));
    });
}

#[test]
fn tables_that_serve_no_area() {
    with_world(|world| {
        let far = OWN + (1 << 30);
        world.space.tables().walk_or_grow(world.vm.memory(), far).expect("room");
        world.is_broken(3, "serves no area");
        map(&world.space, far, 1, AreaFlags::READ, Backing::Anonymous);
    });
}

/// As designs keep tables whose memory is promised by entries.
#[test]
fn tables_that_count_other_entries_than_they_hold() {
    with_world(|world| {
        let (memory, far) = (world.vm.memory(), OWN + (1 << 30));
        let tables = Tables::<Native>::new(memory).expect("room");
        let leaf = tables.walk_or_grow(memory, far).expect("room");
        // SAFETY: nobody else knows the table.
        let count = unsafe { memory.page(leaf.table).owned() }.index();
        let is_of_use = |nr_counted| {
            count.store(nr_counted, Ordering::Relaxed);
            holds_what_it_counts(&tables, memory, &(far..far + 8 * PAGE), leaf.table)
        };
        assert!(!is_of_use(0) && !is_of_use(1), "it is empty");
        leaf.slot.store(Entry::GUARD, Ordering::Relaxed);
        assert!(!is_of_use(0) && is_of_use(1) && !is_of_use(2));
        tables.walk(memory, far + 7 * PAGE).expect("the same table").slot.store(Entry::GUARD, Ordering::Relaxed);
        assert!(!is_of_use(1) && is_of_use(2));
        tables.free_all(memory, &mut |_| ());
    });
}
