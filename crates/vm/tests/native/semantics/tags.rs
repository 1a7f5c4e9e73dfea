//! Memory tags of the pages that the library makes.

use crate::drawing::at;
use crate::world::{RW, Tested, World, anonymous};
use faultless_platform::native::{HostRegion, Machine, Native};
use faultless_vm::{
    AddressRange, Backing, GRANULES, Guest, MapRequest, MemoryTags, PAGE, Pattern, ReferenceHandle, SoftwareTags,
    SpaceRef, VirtAddr,
};
use std::sync::Arc;

/// A space of an instance with tags.
struct Tagged<'vm, D: Tested> {
    tags: Arc<SoftwareTags<Native>>,
    space: SpaceRef<'vm, Native, D>,
    guest: Guest<'vm, Native, D>,
}

fn with_tags<D: Tested>(test: impl FnOnce(&World<D>, &Tagged<'_, D>)) {
    let region = HostRegion::reserve(16 << 20).expect("the host has room");
    Machine::new(1).attach(|| {
        let mut world = World::<D>::new(&region, 1);
        let tags = Arc::new(SoftwareTags::new(world.vm.memory()));
        world.vm.as_mut().set_memory_tags(tags.clone());
        let space = world.space();
        space.mmap(&anonymous(Some(at(0)), 4 * PAGE)).expect("room");
        let tagged = Tagged { tags, guest: Guest::new(&space), space };
        test(&world, &tagged);
        drop(tagged);
        world.check("at the end");
    });
}

impl<'vm, D: Tested> Tagged<'vm, D> {
    /// Gives the granules of a page these tags, again and again, as a program does.
    fn tag(&self, page: u64, tags: &[u8]) {
        self.guest.store(VirtAddr::new(at(page)), 1).expect("mapped");
        let frame = self.space.entry_at(VirtAddr::new(at(page))).pfn();
        (0..GRANULES).for_each(|granule| self.tags.set_tag(frame, granule, tags[granule % tags.len()]));
    }

    fn tags_of(&self, page: u64) -> Vec<u8> {
        let frame = self.space.entry_at(VirtAddr::new(at(page))).pfn();
        (0..GRANULES).map(|granule| self.tags.tag(frame, granule)).collect()
    }

    /// Maps a page of what a handle refers to, stores to it, and returns its tags.
    fn fresh(&self, handle: &ReferenceHandle<'_, Native>) -> Vec<u8> {
        let backing = Backing::Reference(handle, 0);
        self.space
            .mmap(&MapRequest {
                backing,
                protection: RW.protection(),
                options: RW.options(),
                ..anonymous(Some(at(8)), PAGE)
            })
            .expect("room");
        self.guest.store(VirtAddr::new(at(8)), 5).expect("mapped");
        self.tags_of(8)
    }

    fn counts(&self) -> [u64; 2] {
        [self.tags.nr_fills(), self.tags.nr_copies()]
    }
}

fn repeated(tags: &[u8]) -> Vec<u8> {
    tags.iter().copied().cycle().take(GRANULES).collect()
}

for_each_design!(a_fresh_page_takes_each_granules_tag, D, {
    with_tags::<D>(|_, tagged| {
        tagged.tag(0, &[3, 9, 14]);
        let handle = tagged.space.refpage_create(at(0), 0).expect("room");
        let [fills, copies] = tagged.counts();
        assert_eq!(tagged.fresh(&handle), repeated(&[3, 9, 14]));
        assert_eq!(tagged.counts(), [fills, copies + 1]);
    });
});

for_each_design!(one_tag_comes_by_a_fill, D, {
    with_tags::<D>(|_, tagged| {
        tagged.tag(0, &[6]);
        let handle = tagged.space.refpage_create(at(0), 0).expect("room");
        let [fills, copies] = tagged.counts();
        assert_eq!(tagged.fresh(&handle), repeated(&[6]));
        assert_eq!(tagged.counts(), [fills + 1, copies]);
    });
});

for_each_design!(tags_come_with_sizes_of_a_granule_and_more, D, {
    with_tags::<D>(|_, tagged| {
        tagged.tag(0, &[1, 2, 3, 4]);
        let made = |content: u64, size| {
            let handle = tagged.space.refpage_create_sized(content, size, 0).expect("room");
            tagged.fresh(&handle)
        };
        assert_eq!(made(at(0) + 16, 16), repeated(&[2]));
        assert_eq!(made(at(0) + 32, 32), repeated(&[3, 4]));
        assert_eq!(made(at(0), 4096), repeated(&[1, 2, 3, 4]));
        assert_eq!(made(at(0) + 16, 8), repeated(&[0]));
    });
});

for_each_design!(other_pages_have_the_tags_of_what_they_copy_or_none, D, {
    with_tags::<D>(|world, tagged| {
        tagged.tag(0, &[7, 8]);
        let child = tagged.space.fork().expect("room");
        // The parent's store copies the page.
        tagged.guest.store(VirtAddr::new(at(0)), 2).expect("mapped");
        assert!(tagged.space.entry_at(VirtAddr::new(at(0))).pfn() != child.entry_at(VirtAddr::new(at(0))).pfn());
        assert_eq!(tagged.tags_of(0), repeated(&[7, 8]));
        // Its frame comes back to plain memory, and to a pattern, without them.
        tagged.space.munmap(AddressRange::new(VirtAddr::new(at(0)), PAGE)).expect("mapped");
        drop(child);
        world.vm.flush();
        tagged.guest.store(VirtAddr::new(at(1)), 1).expect("mapped");
        assert_eq!(tagged.tags_of(1), repeated(&[0]));
        let backing = Backing::Pattern(Pattern::Byte(1));
        tagged.space.mmap(&MapRequest { backing, ..anonymous(Some(at(9)), PAGE) }).expect("room");
        tagged.guest.load(VirtAddr::new(at(9))).expect("mapped");
        assert_eq!(tagged.tags_of(9), repeated(&[0]));
    });
});
