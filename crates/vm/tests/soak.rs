//! Threads that fault, map, unmap, protect, move, advise and fork at random, with the invariants checked each round.
//!
//! # What each thread knows
//! * Its own region, which nobody else changes: every page's value and rights, so that each access has one right answer.
//! * A counter page, which it alone writes, upwards: a child forked by anybody sees a value between the one before and
//!   the one after the fork, and the parent never goes back (bug fb49c455323f).
//! * A region that all threads map, unmap and write: a load sees 0 or a value that names its page.
//! * An object that all threads truncate, extend, punch, read, store to, and map into children that live until the round's
//!   invariants are checked: what was cut off never comes back, and a thread's own word holds what it stored last, or zeros if
//!   anybody has begun to remove something since. Each round has a new object; its source asks to be asked again, and fails.
//!
//! `FAULTLESS_SOAK_SECONDS` sets the time for each design (2 by default); `FAULTLESS_SEED` the seed. A failure prints it.

mod world;

use faultless_phys::Kind;
use faultless_platform::native::{HostRegion, Machine, Native};
use faultless_platform::{PAGE_BYTES, Processor, Threads};
use faultless_sync::Barrier;
use faultless_vm::{
    AccessError, Advice, AreaFlags, Backing, CallError, Event, FetchError, Guest, MapRequest, ObjectHandle, ObjectSpec,
    PAGE, PageSource, Placement, Populate, RemapPlacement, RemapRequest, SpaceRef, WriteNotice,
};
use std::sync::RwLock;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use world::{RW, Tested, World, anonymous};

const NR_THREADS: usize = 4;
const NR_CPUS: usize = 3;
const OPS_PER_ROUND: usize = 400;
/// Pages of a thread's own region; it spans two page tables.
const OWN_PAGES: u64 = 48;
const OWN_BASE: u64 = 0x10_0000_0000;
const SHARED_BASE: u64 = 0x20_0000_0000 - 8 * PAGE;
const SHARED_PAGES: u64 = 16;
const COUNTERS: u64 = 0x30_0000_0000;
const FILE_SHARED: u64 = 0x40_0000_0000;
const FILE_PRIVATE: u64 = 0x50_0000_0000;
const FILE_PAGES: u64 = 8;
/// Word of a page that the source gives.
const CONTENT: u64 = 0x4242_4242_4242_4242;
const MARK: u64 = 0xfa17_0000_0000_0000;

fn setting(name: &str, default: u64) -> u64 {
    std::env::var(name).ok().and_then(|value| value.parse().ok()).unwrap_or(default)
}

/// A small generator (xorshift64*): the same seed gives the same choices.
struct Random(u64);

impl Random {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 33) % limit
    }
}

/// What a thread knows of one of its pages.
#[derive(Clone, Copy, PartialEq, Debug)]
struct Page {
    rights: Option<AreaFlags>,
    value: u64,
}

/// Content that is zero nowhere, now and then at the second attempt, and never for the last page.
struct Content;

impl PageSource for Content {
    fn fetch(&self, _: u64, page_index: u64, page: &mut [u8; PAGE_BYTES]) -> Result<(), FetchError> {
        static NR_FETCHES: AtomicU64 = AtomicU64::new(0);
        match NR_FETCHES.fetch_add(1, Ordering::Relaxed) % 3 {
            0 => Err(FetchError::Retry),
            _ if page_index == FILE_PAGES - 1 => Err(FetchError::Failed),
            _ => {
                page.fill(CONTENT as u8);
                Ok(())
            }
        }
    }
}

/// The round's object, and what is known of it.
struct File<'vm> {
    object: ObjectHandle<'vm, Native>,
    /// Pages of which a removal is over.
    is_cut: [AtomicBool; FILE_PAGES as usize],
    /// Removals that have begun.
    nr_begun: AtomicU64,
    /// Removals that are over: those under way may still take what is stored now.
    nr_ended: AtomicU64,
}

impl<'vm> File<'vm> {
    /// Makes an object and maps it in place of the last one.
    fn new<D: Tested>(world: &'vm World<D>, space: &SpaceRef<'_, Native, D>) -> Self {
        let spec = ObjectSpec {
            identity: 1,
            size_bytes: FILE_PAGES * PAGE,
            source: &Content,
            write_notice: WriteNotice::Fault,
        };
        let object = world.vm.create_object(&spec).expect("room for an object");
        for (at, kind) in [(FILE_SHARED, AreaFlags::SHARED), (FILE_PRIVATE, AreaFlags::empty())] {
            let request = MapRequest {
                placement: Placement::Fixed(at),
                len_bytes: FILE_PAGES * PAGE,
                flags: RW | kind,
                backing: Backing::Object(&object, 0),
                populate: Populate::OnFault,
            };
            space.mmap(&request).expect("room for a mapping");
        }
        Self { object, is_cut: Default::default(), nr_begun: AtomicU64::new(0), nr_ended: AtomicU64::new(0) }
    }

    fn note_cut(&self, pages: std::ops::Range<u64>) {
        pages.for_each(|page| self.is_cut[page as usize].store(true, Ordering::SeqCst));
    }
}

/// What a thread knows of its word of a page of the object: its value, and how many removals were over before it was so.
type Known = Option<(u64, u64)>;

struct Worker<'a, 'vm, D: Tested> {
    world: &'a World<D>,
    file: &'a RwLock<File<'vm>>,
    words: [Known; FILE_PAGES as usize],
    /// A child that is there when the round's invariants are checked.
    child: Option<SpaceRef<'a, Native, D>>,
    thread: u64,
    random: Random,
    space: &'a SpaceRef<'a, Native, D>,
    guest: Guest<'a, Native, D>,
    counters: &'a [AtomicU64],
    pages: Vec<Page>,
    next_value: u64,
}

impl<'a, 'vm, D: Tested> Worker<'a, 'vm, D> {
    fn new(
        thread: usize,
        seed: u64,
        world: &'a World<D>,
        file: &'a RwLock<File<'vm>>,
        space: &'a SpaceRef<'a, Native, D>,
        counters: &'a [AtomicU64],
    ) -> Self {
        let random = Random((seed ^ (thread as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15)) | 1);
        let pages = vec![Page { rights: None, value: 0 }; OWN_PAGES as usize];
        let (guest, words, child) = (Guest::new(space), Default::default(), None);
        let thread = thread as u64;
        Self { world, file, words, child, thread, random, space, guest, counters, pages, next_value: 1 }
    }

    /// The region ends in the middle of a table and begins in the one before.
    fn address(&self, page: u64) -> u64 {
        OWN_BASE + (self.thread + 1) * (4 << 20) - OWN_PAGES / 2 * PAGE + page * PAGE
    }

    fn some_range(&mut self) -> (u64, u64) {
        let first = self.random.below(OWN_PAGES);
        (first, 1 + self.random.below((OWN_PAGES - first).min(12)))
    }

    fn step(&mut self) {
        match self.random.below(125) {
            0..=29 => self.store(),
            30..=49 => self.load(),
            50..=59 => self.map(),
            60..=66 => self.unmap(),
            67..=73 => self.protect(),
            74..=78 => self.advise(),
            79..=82 => self.remap(),
            83..=84 => self.fork(),
            85..=89 => self.count_up(),
            90..=99 => self.touch_shared(),
            100..=101 => self.visit_all(),
            _ => self.use_file(),
        }
    }

    fn store(&mut self) {
        let page = self.random.below(OWN_PAGES);
        let (address, value) = (self.address(page), MARK | self.thread << 40 | self.next_value);
        self.next_value += 1;
        let known = &mut self.pages[page as usize];
        let result = self.guest.store(address, value).map(drop);
        match known.rights {
            None => assert_eq!(result, Err(AccessError::NotMapped { address })),
            Some(rights) if rights.contains(AreaFlags::WRITE) => {
                assert_eq!(result, Ok(()));
                known.value = value;
            }
            Some(_) => assert_eq!(result, Err(AccessError::Forbidden { address })),
        }
    }

    fn load(&mut self) {
        let page = self.random.below(OWN_PAGES);
        let (address, known) = (self.address(page), self.pages[page as usize]);
        let result = self.guest.load(address).map(|(value, _)| value);
        match known.rights {
            None => assert_eq!(result, Err(AccessError::NotMapped { address })),
            Some(rights) if rights.is_empty() => assert_eq!(result, Err(AccessError::Forbidden { address })),
            Some(_) => assert_eq!(result, Ok(known.value), "thread {} page {page}", self.thread),
        }
    }

    fn map(&mut self) {
        let (first, len) = self.some_range();
        let address = self.address(first);
        assert_eq!(self.space.mmap(&anonymous(Some(address), len * PAGE)), Ok(address));
        self.pages[first as usize..(first + len) as usize].fill(Page { rights: Some(RW), value: 0 });
    }

    fn unmap(&mut self) {
        let (first, len) = self.some_range();
        assert_eq!(self.space.munmap(self.address(first), len * PAGE), Ok(()));
        self.pages[first as usize..(first + len) as usize].fill(Page { rights: None, value: 0 });
    }

    fn protect(&mut self) {
        let (first, len) = self.some_range();
        let rights = [RW, AreaFlags::READ, AreaFlags::empty()][self.random.below(3) as usize];
        let result = self.space.mprotect(self.address(first), len * PAGE, rights);
        for page in first..first + len {
            let known = &mut self.pages[page as usize];
            if known.rights.is_none() {
                let address = self.address(page);
                assert_eq!(result, Err(CallError::Unmapped { address }));
                return;
            }
            known.rights = Some(rights);
        }
        assert_eq!(result, Ok(()));
    }

    fn advise(&mut self) {
        let (first, len) = self.some_range();
        let advice = if self.random.below(4) == 0 { Advice::Free } else { Advice::DontNeed };
        let result = self.space.madvise(self.address(first), len * PAGE, advice);
        let range = &mut self.pages[first as usize..(first + len) as usize];
        assert_eq!(result.is_ok(), range.iter().all(|page| page.rights.is_some()));
        if advice == Advice::DontNeed {
            range.iter_mut().for_each(|page| page.value = 0);
        }
    }

    /// Moves a run of pages with the same rights within the region.
    fn remap(&mut self) {
        let (from, len) = self.some_range();
        let to = self.random.below(OWN_PAGES - len + 1);
        let old: Vec<Page> = self.pages[from as usize..(from + len) as usize].to_vec();
        let result = self.space.mremap(&RemapRequest {
            old_start: self.address(from),
            old_len_bytes: len * PAGE,
            new_len_bytes: len * PAGE,
            placement: RemapPlacement::Fixed(self.address(to)),
            keeps_source: false,
        });
        if from.abs_diff(to) < len {
            assert!(result.is_err(), "an overlap was accepted");
        } else if result.is_ok() {
            // Holes do not move: what the target held there stays.
            for (page, old) in old.iter().enumerate().filter(|(_, old)| old.rights.is_some()) {
                self.pages[to as usize + page] = *old;
            }
            self.pages[from as usize..(from + len) as usize].fill(Page { rights: None, value: 0 });
        } else {
            // Holes, or areas that can't move together; what the target held may be gone only if the move happened.
            assert!(len > 1 || old[0].rights.is_none(), "{result:?}");
        }
    }

    fn count_up(&mut self) {
        let cell = &self.counters[self.thread as usize];
        let next = cell.load(Ordering::SeqCst) + 1;
        let address = COUNTERS + self.thread * PAGE;
        let before = self.guest.load(address).expect("counters stay mapped").0;
        assert_eq!(before, next - 1, "the parent's counter went back");
        self.guest.store(address, next).expect("counters stay mapped");
        cell.store(next, Ordering::SeqCst);
    }

    fn fork(&mut self) {
        let before: Vec<u64> = self.counters.iter().map(|cell| cell.load(Ordering::SeqCst)).collect();
        let child = self.space.fork().expect("room for a child");
        let after: Vec<u64> = self.counters.iter().map(|cell| cell.load(Ordering::SeqCst) + 1).collect();
        let guest = Guest::new(&child);
        for (thread, (before, after)) in before.iter().zip(&after).enumerate() {
            let seen = guest.load(COUNTERS + thread as u64 * PAGE).expect("counters are inherited").0;
            assert!((*before..=*after).contains(&seen), "the child sees {seen}, not {before} to {after}");
        }
        for (page, known) in self.pages.iter().enumerate().filter(|(_, page)| page.rights.is_some()) {
            let address = self.address(page as u64);
            if known.rights != Some(AreaFlags::empty()) {
                assert_eq!(guest.load(address).map(|(value, _)| value), Ok(known.value), "the child's page {page}");
            }
            if known.rights == Some(RW) && page % 3 == 0 {
                guest.store(address, MARK | 0xc1d).expect("the child's own copy");
            }
        }
    }

    fn touch_shared(&mut self) {
        let page = self.random.below(SHARED_PAGES);
        let address = SHARED_BASE + page * PAGE;
        match self.random.below(10) {
            0 => drop(self.space.munmap(address, PAGE * 2)),
            1..=2 => drop(self.space.mmap(&anonymous(Some(address), PAGE))),
            3 => drop(self.space.madvise(SHARED_BASE, SHARED_PAGES * PAGE, Advice::DontNeed)),
            4..=6 => drop(self.guest.store(address, MARK | address)),
            _ => {
                if let Ok((value, _)) = self.guest.load(address) {
                    assert!(value == 0 || value == MARK | address, "{address:#x} holds {value:#x}");
                }
            }
        }
    }
}

impl<D: Tested> Worker<'_, '_, D> {
    /// Looks at all spaces that there are, whoever made them.
    fn visit_all(&self) {
        self.world.vm.for_each_space(|space| {
            let mut has_counters = false;
            space.for_each_area(|area| has_counters |= area.start == COUNTERS);
            assert!(has_counters, "a space that is not whole is listed");
        });
    }

    fn use_file(&mut self) {
        let file = self.file.read().expect("no panic");
        let page = self.random.below(FILE_PAGES);
        match self.random.below(24) {
            0..=4 => self.remove(&file, page),
            5 => self.child = Some(self.space.fork().expect("room for a child")),
            // Private copies may go, and nobody else looks at them.
            6..=7 => drop(self.guest.store(FILE_PRIVATE + page * PAGE, MARK)),
            8..=9 => drop(self.guest.load(FILE_PRIVATE + page * PAGE)),
            10..=14 => self.store_to_file(&file, page),
            15..=19 => self.load_from_file(&file, page),
            _ => self.read_file(&file, page),
        }
    }

    /// Truncates, extends or punches.
    fn remove(&mut self, file: &File<'_>, page: u64) {
        // An extension removes, too, if another has made the object longer meanwhile.
        file.nr_begun.fetch_add(1, Ordering::SeqCst);
        match self.random.below(5) {
            0..=1 => {
                let size = page * PAGE + 8 * self.random.below(2 * NR_THREADS as u64);
                self.world.vm.truncate(&file.object, size).expect("a length");
                file.note_cut(size.div_ceil(PAGE)..FILE_PAGES);
            }
            2..=3 => {
                let size = FILE_PAGES * PAGE - self.random.below(2);
                self.world.vm.truncate(&file.object, size).expect("a length");
            }
            _ => {
                let pages = page..page + 1 + self.random.below((FILE_PAGES - page).min(3));
                self.world.vm.punch(&file.object, pages.start * PAGE..pages.end * PAGE).expect("whole pages");
                file.note_cut(pages);
            }
        }
        file.nr_ended.fetch_add(1, Ordering::SeqCst);
    }

    fn store_to_file(&mut self, file: &File<'_>, page: u64) {
        let before = file.nr_ended.load(Ordering::SeqCst);
        let value = MARK | self.thread << 40 | self.next_value;
        self.next_value += 1;
        match self.guest.store(FILE_SHARED + page * PAGE + 8 * self.thread, value) {
            Ok(_) => self.words[page as usize] = Some((value, before)),
            Err(error) => assert!(matches!(error, AccessError::NoPage { .. }), "{error}"),
        }
    }

    fn load_from_file(&mut self, file: &File<'_>, page: u64) {
        let before = file.nr_ended.load(Ordering::SeqCst);
        let is_cut = file.is_cut[page as usize].load(Ordering::SeqCst);
        let value = match self.guest.load(FILE_SHARED + page * PAGE + 8 * self.thread) {
            Ok((value, _)) => value,
            Err(error) => return assert!(matches!(error, AccessError::NoPage { .. }), "{error}"),
        };
        let begun = file.nr_begun.load(Ordering::SeqCst);
        let known = &mut self.words[page as usize];
        assert!(may_be(value, *known, begun, is_cut), "page {page} holds {value:#x}, known was {known:x?}");
        *known = Some(if value == 0 { (0, before) } else { known.unwrap_or((value, 0)) });
    }

    /// Reads without a mapping. While a removal is under way, a mapping may show what a read does not find any more.
    fn read_file(&mut self, file: &File<'_>, page: u64) {
        let is_cut = file.is_cut[page as usize].load(Ordering::SeqCst);
        let mut word = [0];
        let is_read = self.world.vm.read_object(&file.object, page * PAGE + 8 * self.thread, &mut word).is_ok();
        assert!(!(is_read && is_cut && word[0] == CONTENT), "page {page} holds what was cut off");
    }
}

/// Says whether a thread may find `value` in its word of the object.
fn may_be(value: u64, known: Known, nr_begun: u64, is_cut: bool) -> bool {
    let (last, before) = known.unwrap_or((CONTENT, 0));
    let is_old_content = value == CONTENT && is_cut;
    value == last && !is_old_content || value == 0 && nr_begun != before
}

/// Runs rounds until the time is over; returns the number of operations.
fn soak<D: Tested>() {
    let seed = setting("FAULTLESS_SEED", 1);
    let end = std::time::Instant::now() + std::time::Duration::from_secs(setting("FAULTLESS_SOAK_SECONDS", 2));
    println!("FAULTLESS_SEED={seed} replays the choices, not the interleaving");
    let region = HostRegion::reserve(256 << 20).expect("the host has room");
    let machine = Machine::new(NR_CPUS);
    let world = machine.attach(|| World::<D>::new(&region, NR_CPUS));
    let counters: Vec<AtomicU64> = (0..NR_THREADS).map(|_| AtomicU64::new(0)).collect();
    machine.attach(|| {
        let space = world.space();
        space.mmap(&anonymous(Some(COUNTERS), NR_THREADS as u64 * PAGE)).expect("room");
        let file = RwLock::new(File::new(&world, &space));
        let barrier = Barrier::<Native>::new(NR_THREADS as u32);
        let is_over = AtomicBool::new(false);
        Native::leave();
        Native::run(&machine, NR_THREADS, &|thread| {
            Native::enter();
            let mut worker = Worker::new(thread, seed, &world, &file, &space, &counters);
            while !is_over.load(Ordering::SeqCst) {
                (0..OPS_PER_ROUND).for_each(|_| worker.step());
                if barrier.wait() {
                    world.check("invariants at the end of a round");
                    is_over.store(std::time::Instant::now() >= end, Ordering::SeqCst);
                    *file.write().expect("no panic") = File::new(&world, &space);
                }
                barrier.wait();
                worker.words = Default::default();
            }
        });
        Native::enter();
        drop((space, file));
        world.vm.flush();
        world.check("invariants at the end");
        let audit = world.vm.memory().audit();
        assert_eq!(audit.nr_of(Kind::Anonymous) + audit.nr_of(Kind::Table), 0, "frames were lost: {audit}");
    });
    for event in [Event::Faults, Event::Spf, Event::SpfFailed, Event::Cow, Event::TlbShootdown, Event::TablesFreed] {
        println!("{:>24} {}", event.name(), world.vm.events().total(event));
    }
    machine.attach(move || drop(world));
}

for_each_design!(random_threads_keep_every_invariant, D, {
    soak::<D>();
});
