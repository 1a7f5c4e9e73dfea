//! Any arguments: threads that call the public functions of one instance with whatever comes, and use guards as they
//! like.
//!
//! # Guarantee
//! [`run`] returns if no call panicked, hung or broke an invariant, and if every frame came back where no guard was
//! forgotten. What a call answers is not judged here: safe functions must be sound for any arguments, and that is all.
//!
//! # What threads do that programs should not
//! Addresses and lengths at every edge; objects of another instance; guests, spaces and handles that are forgotten, or
//! dropped by another thread; sources that fail, ask to be asked again, or panic; visitors that stop early or ask the
//! space that they visit.

use fastrand::Rng;
use faultless_phys::{Failing, Kind, Memory, Options};
use faultless_platform::native::{HostRegion, Machine, Native};
use faultless_platform::{PAGE_BYTES, Processor, Threads};
use faultless_vm::design::{Design, GenerationOf};
use faultless_vm::registry::{DESIGNS, DesignVisitor, Unknown, with_design};
use faultless_vm::{
    AddressRange, Advice, AreaFlags, Backing, CallError, FetchError, Guest, Limits, LockAll, MapRequest, ObjectHandle,
    ObjectSpec, PAGE, PageLock, PageSource, Pattern, Pin, PinKind, Placement, PlacementPolicy, Populate,
    ReferenceHandle, RemapPlacement, RemapRequest, SpaceRef, SyncFlags, USER_END, VirtAddr, Vm, WriteNotice, check,
};
use std::mem::forget;
use std::ops::ControlFlow;
use std::ops::Deref;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

const NR_CPUS: usize = 2;
const NR_THREADS: usize = 3;
const OPS: u32 = 120;
const MEMORY_BYTES: usize = 16 << 20;
/// Where most addresses are.
const BASE: u64 = 0x7000_0000;
const WINDOW_PAGES: u64 = 40;
/// What a source says when it panics; such a panic is the test's own.
const OWN_PANIC: &str = "a source that panics";

/// What a run did.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Abused {
    /// The design that was drawn.
    pub design: &'static str,
    /// Calls that were made.
    pub calls: u64,
}

/// Makes the calls that a seed draws, under a design that it draws.
///
/// ```
/// let abused = faultless_soak::api::run(1)?;
/// assert!(abused.calls > 0);
/// # Ok::<(), faultless_vm::registry::Unknown>(())
/// ```
///
/// # Errors
/// Never, as long as the registry knows its own names.
///
/// # Panics
/// With what was seen, if a call panics, an invariant is broken, or a frame is lost.
pub fn run(seed: u64) -> Result<Abused, Unknown> {
    let mut random = Rng::with_seed(seed);
    let design = DESIGNS[random.usize(0..DESIGNS.len())];
    let calls = with_design::<Native, _>(design, "rwsem-v8", Abuse(random))?;
    Ok(Abused { design, calls })
}

struct Abuse(Rng);

impl DesignVisitor<Native> for Abuse {
    type Output = u64;

    fn visit<D: Design<Native>>(mut self, semaphore: GenerationOf<Native, D>) -> u64 {
        let region = HostRegion::reserve(MEMORY_BYTES).expect("the host has room");
        let foreign_region = HostRegion::reserve(MEMORY_BYTES).expect("the host has room");
        let elsewhere = Machine::new(1);
        let foreign = elsewhere.attach(|| instance::<D>(&foreign_region, 1, semaphore));
        let machine = Machine::new(NR_CPUS);
        let result = catch_unwind(AssertUnwindSafe(|| {
            let object = elsewhere.attach(|| foreign.create_object(&spec(PAGE)).expect("room for an object"));
            let reference = elsewhere.attach(|| foreign.create_repeated(Pattern::Byte(1)).expect("room for a page"));
            machine.attach(|| abuse::<D>(&machine, &region, semaphore, (&object, &reference), &mut self.0))
        }));
        elsewhere.attach(move || drop(foreign));
        result.unwrap_or_else(|panic| resume_unwind(panic))
    }
}

fn instance<D: Design<Native>>(
    region: &HostRegion,
    nr_cpus: usize,
    semaphore: GenerationOf<Native, D>,
) -> impl Deref<Target = Vm<Native, D>> {
    let options = Options { poison: true, refcount_bits: 8, list_high: 4, list_batch: 2 };
    // SAFETY: the region is zeroed, ours alone, and outlives the instance: callers drop that first.
    let memory = unsafe { Memory::new(region.base(), region.len_bytes(), nr_cpus, options) }.expect("large enough");
    Vm::with_semaphore(memory, semaphore).expect("a frame for the zero page")
}

/// A source that fails, hesitates or panics by the page and the number of the fetch.
struct Moody;

impl PageSource for Moody {
    fn fetch(&self, identity: u64, page_index: u64, page: &mut [u8; PAGE_BYTES]) -> Result<(), FetchError> {
        static NR_FETCHES: AtomicU64 = AtomicU64::new(0);
        // Relaxed: moods change, and nothing is read on the strength of the count.
        let mood = NR_FETCHES.fetch_add(1, Ordering::Relaxed) % 17;
        assert!(mood != 0 || identity == 0, "{OWN_PANIC}");
        match mood {
            1..4 => Err(FetchError::Retry),
            4 => Err(FetchError::Failed),
            _ => {
                page.fill(page_index as u8);
                Ok(())
            }
        }
    }
}

fn spec(size_bytes: u64) -> ObjectSpec {
    ObjectSpec { identity: u64::from(size_bytes > PAGE), size_bytes, source: &Moody, write_notice: WriteNotice::Fault }
}

/// What threads leave to each other.
#[derive(Default)]
struct Pool<'vm, D: Design<Native>> {
    spaces: Mutex<Vec<SpaceRef<'vm, Native, D>>>,
    objects: Mutex<Vec<ObjectHandle<'vm, Native>>>,
    references: Mutex<Vec<ReferenceHandle<'vm, Native>>>,
    pins: Mutex<Vec<Pin<'vm, Native>>>,
}

fn abuse<D: Design<Native>>(
    machine: &Machine,
    region: &HostRegion,
    semaphore: GenerationOf<Native, D>,
    (foreign, foreign_reference): (&ObjectHandle<'_, Native>, &ReferenceHandle<'_, Native>),
    random: &mut Rng,
) -> u64 {
    let vm = instance::<D>(region, NR_CPUS, semaphore);
    let pool = Pool {
        spaces: Mutex::default(),
        objects: Mutex::default(),
        references: Mutex::default(),
        pins: Mutex::default(),
    };
    let seeds: Vec<u64> = (0..NR_THREADS).map(|_| random.u64(..)).collect();
    let may_forget = random.u32(0..4) == 0;
    Native::leave();
    let result = catch_unwind(AssertUnwindSafe(|| {
        Native::run(machine, NR_THREADS, &|thread| {
            Native::enter();
            let random = Rng::with_seed(seeds[thread]);
            let mut thread = Thread { vm: &vm, pool: &pool, foreign, foreign_reference, random, may_forget };
            (0..OPS).for_each(|_| thread.step());
        });
    }));
    Native::enter();
    drop(pool);
    result.unwrap_or_else(|panic| resume_unwind(panic));
    vm.memory().set_failing(Failing::Never);
    vm.flush();
    // SAFETY: all threads have ended.
    unsafe { check::invariants(&vm) }.unwrap_or_else(|broken| panic!("invariants at the end: {broken}"));
    let audit = vm.memory().audit();
    let nr_left: usize = [Kind::Anonymous, Kind::Table, Kind::Reference].map(|kind| audit.nr_of(kind)).iter().sum();
    assert!(may_forget || nr_left == 0, "frames were lost: {audit}");
    u64::from(OPS) * NR_THREADS as u64
}

struct Thread<'a, 'vm, D: Design<Native>> {
    vm: &'vm Vm<Native, D>,
    pool: &'a Pool<'vm, D>,
    foreign: &'a ObjectHandle<'a, Native>,
    foreign_reference: &'a ReferenceHandle<'a, Native>,
    random: Rng,
    may_forget: bool,
}

impl<'vm, D: Design<Native>> Thread<'_, 'vm, D> {
    /// Makes one call; a panic of a source ends it and nothing else.
    fn step(&mut self) {
        if self.one_in(24) {
            self.vm.memory().set_failing(Failing::Once(1 + self.random.u64(0..30)));
        }
        let Some(space) = self.some_space() else { return };
        let result = catch_unwind(AssertUnwindSafe(|| self.call(&space)));
        if let Err(panic) = result {
            let is_own = panic.downcast_ref::<String>().is_some_and(|text| text.contains(OWN_PANIC))
                || panic.downcast_ref::<&str>().is_some_and(|text| text.contains(OWN_PANIC));
            if !is_own {
                resume_unwind(panic);
            }
        }
        self.put_away(space);
    }

    fn one_in(&mut self, times: u32) -> bool {
        self.random.u32(0..times) == 0
    }

    /// Takes a space out of the pool, or makes one.
    fn some_space(&mut self) -> Option<SpaceRef<'vm, Native, D>> {
        let mut spaces = self.pool.spaces.lock().unwrap_or_else(PoisonError::into_inner);
        if spaces.is_empty() || spaces.len() < 4 && self.random.u32(0..6) == 0 {
            drop(spaces);
            return self.vm.create_space(self.limits()).ok();
        }
        let nth = self.random.usize(0..spaces.len());
        // A clone shares the space with whoever takes it next; the last one to drop it may be any thread.
        if self.random.bool() { Some(spaces[nth].clone()) } else { Some(spaces.swap_remove(nth)) }
    }

    fn put_away(&mut self, space: SpaceRef<'vm, Native, D>) {
        if self.may_forget && self.one_in(40) {
            forget(space);
        } else if !self.one_in(12) {
            self.pool.spaces.lock().unwrap_or_else(PoisonError::into_inner).push(space);
        }
    }

    fn limits(&mut self) -> Limits {
        let plain = Limits::default();
        match self.random.u32(0..5) {
            0 => Limits { max_map_count: self.random.u64(0..12), ..plain },
            1 => Limits {
                reference_extensions: true,
                address_space_bytes: self.length(),
                lock_bytes: self.length(),
                ..plain
            },
            2 => Limits { stack_bytes: self.length(), data_bytes: self.length(), commit_bytes: self.length(), ..plain },
            3 => Limits {
                placement: PlacementPolicy::ALL[self.random.usize(0..PlacementPolicy::ALL.len())],
                mmap_base: self.random.u64(1..64) << 30,
                ..plain
            },
            _ => Limits { shared_table_bytes: self.length(), ..plain },
        }
    }

    fn address(&mut self) -> u64 {
        let near = BASE + self.random.u64(0..WINDOW_PAGES) * PAGE;
        match self.random.u32(0..24) {
            0 => near + self.random.u64(1..PAGE),
            1 => [0, PAGE, USER_END - PAGE, USER_END, u64::MAX, 1 << 63, !(PAGE - 1)][self.random.usize(0..7)],
            2 => self.random.u64(..),
            _ => near,
        }
    }

    fn length(&mut self) -> u64 {
        match self.random.u32(0..24) {
            0 => self.random.u64(..),
            1 => [0, 1, PAGE - 1, PAGE + 1, USER_END, u64::MAX, 1 << 63, 1 << 40][self.random.usize(0..8)],
            _ => self.random.u64(0..WINDOW_PAGES / 2) * PAGE,
        }
    }

    fn flags(&mut self) -> AreaFlags {
        const USUAL: AreaFlags = AreaFlags::READ.union(AreaFlags::WRITE);
        match self.random.u32(0..4) {
            0 => AreaFlags::from_bits_truncate(self.random.u64(..) as _),
            1 => USUAL | AreaFlags::from_bits_truncate(1 << self.random.u32(0..24)),
            _ => USUAL,
        }
    }

    fn call(&mut self, space: &SpaceRef<'vm, Native, D>) {
        match self.random.u32(0..100) {
            0..18 => self.map(space),
            18..60 => self.access(space),
            60..76 => self.change(space),
            76..85 => self.use_object(),
            85..88 => self.refer(space),
            88..94 => self.fork(space),
            _ => self.ask(space),
        }
    }

    fn map(&mut self, space: &SpaceRef<'vm, Native, D>) {
        let (at, flags, len_bytes) = (self.address(), self.flags(), self.length());
        let placement = match self.random.u32(0..5) {
            0 => Placement::Anywhere,
            1 => Placement::Hint(VirtAddr::new(at)),
            2 => Placement::FixedNoReplace(VirtAddr::new(at)),
            3 => Placement::Low2G { hint: VirtAddr::new(at) },
            _ => Placement::Fixed(VirtAddr::new(at)),
        };
        let (object, reference) = (self.some_object(), self.some_reference());
        let backing = match (&object, self.random.u32(0..11)) {
            (Some(object), 0..3) => Backing::Object(object, self.length()),
            (_, 3) => Backing::SharedZeros,
            (_, 4) => Backing::Object(self.foreign, 0),
            (_, 5) => Backing::Refused(CallError::NotMappable),
            (_, 8) => Backing::Pattern(self.pattern()),
            (_, 9..11) => match &reference {
                Some(reference) => Backing::Reference(reference, self.length()),
                None => Backing::Reference(self.foreign_reference, 0),
            },
            _ => Backing::Anonymous,
        };
        let populate = if self.one_in(4) { Populate::Now } else { Populate::OnFault };
        let _ = space.mmap(&MapRequest {
            placement,
            len_bytes,
            protection: flags.protection(),
            options: flags.options(),
            backing,
            populate,
        });
    }

    fn access(&mut self, space: &SpaceRef<'vm, Native, D>) {
        let guest = Guest::new(space);
        for _ in 0..self.random.u32(1..8) {
            let (at, len) = (self.address(), self.random.usize(0..700));
            match self.random.u32(0..9) {
                0..2 => drop(guest.load(VirtAddr::new(at))),
                2..4 => drop(guest.store(VirtAddr::new(at), at)),
                4 => drop(guest.load_words(VirtAddr::new(at), &mut vec![0; len])),
                5 => drop(guest.store_words(VirtAddr::new(at), &vec![at; len])),
                6 => drop(guest.read_bytes(VirtAddr::new(at), &mut vec![0; len * 16])),
                7 => drop(guest.write_bytes(VirtAddr::new(at), &vec![1; len * 16])),
                _ => drop((
                    guest.fetch(VirtAddr::new(at)),
                    guest.load_byte(VirtAddr::new(at)),
                    guest.store_byte(VirtAddr::new(at), 3),
                )),
            }
        }
        if self.may_forget && self.one_in(60) {
            forget(guest);
        }
    }

    fn change(&mut self, space: &SpaceRef<'vm, Native, D>) {
        let (at, len, flags) = (self.address(), self.length(), self.flags());
        let (other, other_len) = (self.address(), self.length());
        match self.random.u32(0..12) {
            0..2 => drop(space.munmap(AddressRange::new(VirtAddr::new(at), len))),
            2 => drop(space.mprotect(AddressRange::new(VirtAddr::new(at), len), flags.protection())),
            3 => drop(space.mprotect_stack(AddressRange::new(VirtAddr::new(at), len), flags.protection())),
            4 => drop(space.madvise(AddressRange::new(VirtAddr::new(at), len), self.advice())),
            5 => drop(space.mlock(
                AddressRange::new(VirtAddr::new(at), len),
                [PageLock::Lock, PageLock::LockOnFault, PageLock::Unlock][self.random.usize(0..3)],
            )),
            6 => drop(space.mlock_all(LockAll::from_bits_truncate(self.random.u32(..)))),
            7 => space.munlock_all(),
            8 => {
                space.set_heap_start(VirtAddr::new(at));
                space.set_static_data_bytes(other_len);
                space.brk(VirtAddr::new(other));
            }
            9 if self.one_in(8) => drop(space.mseal(AddressRange::new(VirtAddr::new(at), len))),
            10 => drop(space.remap_file_pages(AddressRange::new(VirtAddr::new(at), len), other_len, Populate::Now)),
            _ => drop(space.mremap(&RemapRequest {
                old: AddressRange::new(VirtAddr::new(at), len),
                new_len_bytes: other_len,
                placement: self.remap_placement(other),
                keeps_source: self.random.bool(),
            })),
        }
    }

    fn remap_placement(&mut self, at: u64) -> RemapPlacement {
        match self.random.u32(0..5) {
            0 => RemapPlacement::InPlace,
            1 => RemapPlacement::MayMove,
            2 => RemapPlacement::Hint(VirtAddr::new(at)),
            3 => RemapPlacement::MoveTo(VirtAddr::new(at)),
            _ => RemapPlacement::Fixed(VirtAddr::new(at)),
        }
    }

    fn advice(&mut self) -> Advice {
        const ALL: [Advice; 17] = [
            Advice::Normal,
            Advice::WillNeed,
            Advice::DontNeed,
            Advice::DontNeedLocked,
            Advice::Free,
            Advice::Remove,
            Advice::PopulateRead,
            Advice::PopulateWrite,
            Advice::DontFork,
            Advice::WipeOnFork,
            Advice::KeepOnFork,
            Advice::Mergeable,
            Advice::HugePage,
            Advice::Cold,
            Advice::PageOut,
            Advice::GuardInstall,
            Advice::GuardRemove,
        ];
        ALL[self.random.usize(0..ALL.len())]
    }

    fn some_object(&mut self) -> Option<ObjectHandle<'vm, Native>> {
        let objects = self.pool.objects.lock().unwrap_or_else(PoisonError::into_inner);
        let nth = (!objects.is_empty()).then(|| self.random.usize(0..objects.len()))?;
        Some(objects[nth].reopen())
    }

    fn some_reference(&mut self) -> Option<ReferenceHandle<'vm, Native>> {
        let references = self.pool.references.lock().unwrap_or_else(PoisonError::into_inner);
        let nth = (!references.is_empty()).then(|| self.random.usize(0..references.len()))?;
        Some(references[nth].clone())
    }

    fn pattern(&mut self) -> Pattern {
        let word = self.random.u64(..);
        match word % 4 {
            0 => Pattern::Byte(word as u8),
            1 => Pattern::Half(word as u16),
            2 => Pattern::Word(word as u32),
            _ => Pattern::Double(word),
        }
    }

    /// Makes reference pages and pins, which other threads drop.
    fn refer(&mut self, space: &SpaceRef<'vm, Native, D>) {
        let (at, flags) = (self.address(), u64::from(self.one_in(8)));
        let size = 1 << self.random.u32(0..14);
        let made = match self.random.u32(0..6) {
            0 => self.vm.create_repeated(self.pattern()).ok(),
            1 => space.refpage_create(at, flags).ok(),
            2 => space.refpage_create_sized(at, if self.one_in(8) { size - 1 } else { size }, flags).ok(),
            _ => return self.pin(space, at),
        };
        let mut references = self.pool.references.lock().unwrap_or_else(PoisonError::into_inner);
        if references.len() > 3 {
            references.clear();
        }
        references.extend(made);
    }

    fn pin(&mut self, space: &SpaceRef<'vm, Native, D>, at: u64) {
        let kind = [PinKind::Read, PinKind::Write, PinKind::LongTermRead][self.random.usize(0..3)];
        let Ok(pin) = space.pin(VirtAddr::new(at), kind) else { return };
        let mut words = vec![at; self.random.usize(0..600)];
        pin.read(self.random.usize(0..5000), &mut words);
        pin.write(self.random.usize(0..5000), &words);
        if self.may_forget && self.one_in(20) {
            return forget(pin);
        }
        let mut pins = self.pool.pins.lock().unwrap_or_else(PoisonError::into_inner);
        if pins.len() > 5 {
            pins.clear();
        }
        pins.push(pin);
    }

    fn use_object(&mut self) {
        let (size, from) = (self.length(), self.length());
        let Some(object) = self.some_object().filter(|_| !self.one_in(4)) else {
            let Ok(object) = self.vm.create_object(&spec(size)) else { return };
            let mut objects = self.pool.objects.lock().unwrap_or_else(PoisonError::into_inner);
            if objects.len() > 3 {
                objects.clear();
            }
            return objects.push(object);
        };
        match self.random.u32(0..7) {
            0 => drop(self.vm.truncate(&object, size)),
            1 => drop(self.vm.punch(&object, from..size)),
            2 => drop(self.vm.truncate(self.foreign, size)),
            3 => drop(self.vm.read_object(self.foreign, from, &mut [0; 4])),
            4 => drop(self.vm.punch(self.foreign, 0..PAGE)),
            _ => drop(self.vm.read_object(&object, from, &mut vec![0; self.random.usize(0..900)])),
        }
        if self.may_forget && self.one_in(20) {
            forget(object);
        }
    }

    fn fork(&mut self, space: &SpaceRef<'vm, Native, D>) {
        let Ok(child) = space.fork() else { return };
        self.access(&child);
        self.put_away(child);
    }

    /// Looks at what is there; visitors ask what they may, and stop early.
    fn ask(&mut self, space: &SpaceRef<'vm, Native, D>) {
        let (at, len) = (self.address(), self.length());
        match self.random.u32(0..8) {
            0 => self.vm.for_each_space(|space| assert!(space.nr_areas() <= u64::MAX >> 1)),
            1 => space.for_each_area(|area| assert!(area.range.len_bytes() > 0)),
            2 => self.vm.for_each_object(|object| assert!(object.size_bytes() <= faultless_vm::MAX_OBJECT_BYTES)),
            3 => {
                let mut left = 9;
                let mut stop_soon = |_| {
                    left -= 1;
                    if left > 0 { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
                };
                let _ = space.mincore(AddressRange::new(VirtAddr::new(at), len), &mut stop_soon);
            }
            4 => {
                let how = SyncFlags::from_bits_truncate(self.random.u32(..));
                let _ = space.msync(AddressRange::new(VirtAddr::new(at), len), how);
            }
            5 => drop((space.search(len), space.search_unlocked(len))),
            6 if self.random.bool() => {
                self.vm.for_each_reference(|page| assert!(page.is_intact(self.vm.memory())));
                self.vm.for_each_pin(|pin| assert!(self.vm.memory().contains(pin.frame())));
            }
            6 => drop((space.entry_at(VirtAddr::new(at)), space.list().to_string(), space.is_used_by(at as usize))),
            _ => self.vm.flush(),
        }
    }
}
