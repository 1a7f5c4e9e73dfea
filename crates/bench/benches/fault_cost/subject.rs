//! The instances that are measured: one for each design, on a machine of two CPUs of its own.

use crate::load::{FILE_PAGES, Load, Locked, anonymous, touch};
use faultless_phys::{Memory, Options};
use faultless_platform::native::{HostRegion, Machine, Native};
use faultless_platform::{Bulk, Platform, Processor, Threads};
use faultless_sync::Barrier;
use faultless_vm::design::{Design, GenerationOf};
use faultless_vm::registry::{DESIGNS, DesignVisitor, with_design};
use faultless_vm::{Guest, Limits, ObjectHandle, ObjectSpec, PAGE, SpaceRef, Vm, WriteNotice, ZeroSource};
use std::pin::Pin;
use std::sync::Mutex;
use std::time::{Duration, Instant};

const SEMAPHORE: &str = "rwsem-v8";
/// Two threads' mappings, twice two files' pages, and what describes them.
const MEMORY_BYTES: usize = 448 << 20;

/// How long two threads go on: some rounds of page_fault1, so that one unmaps while the other one faults, as it comes.
const WINDOW: Duration = Duration::from_millis(50);

/// Of the frames that faults get, so many tenths are to be those of the pass before; and how often that is tried.
const SAME_TENTHS: usize = 8;
const MOST_PASSES: usize = 9;

/// Nanoseconds of a fault, and of zeroing a frame.
#[derive(Clone, Copy)]
pub struct Zeroing {
    pub fault_ns: f64,
    pub zero_ns: f64,
}

/// A design under measurement; all figures are nanoseconds of an operation.
pub trait Arm {
    /// Returns the design's name.
    fn name(&self) -> &'static str;
    /// Measures so many faults, and zeroing the frames that they got.
    fn zeroing(&self, nr_pages: u64) -> Zeroing;
    /// Measures one thread.
    fn alone(&self, load: Load) -> f64;
    /// Measures one thread beside another one that touched memory of the space, and now sleeps.
    fn beside_sleeper(&self, load: Load) -> f64;
    /// Measures two threads in one space, which go on for [`WINDOW`]: one's nanoseconds of an operation, were both
    /// alike.
    fn in_one_space(&self, load: Load) -> f64;
    /// As [`Arm::in_one_space`], in a space each.
    fn in_two_spaces(&self, load: Load) -> f64;
    /// Ends the instance.
    fn end(self: Box<Self>);
}

/// All designs of the registry, and controls: `mmap-sem` in other instances.
pub struct Subjects {
    designs: Vec<Box<dyn Arm>>,
    controls: Vec<Box<dyn Arm>>,
}

impl Subjects {
    /// Makes an instance of each.
    pub fn new() -> Self {
        let make = |design: &str, more, name| match with_design::<Native, _>(design, SEMAPHORE, Make { more, name }) {
            Ok(arm) => arm,
            Err(unknown) => panic!("{design} over {SEMAPHORE}: {unknown:?}"),
        };
        let controls = [("again", Locked::default()), ("and locked", Locked::of_the_index_lock())];
        Self {
            designs: DESIGNS.iter().map(|design| make(design, Locked::default(), None)).collect(),
            controls: controls.into_iter().map(|(name, more)| make("mmap-sem", more, Some(name))).collect(),
        }
    }

    /// Returns the designs' arms; `mmap-sem` comes first.
    pub fn designs(&self) -> Vec<&dyn Arm> {
        self.designs.iter().map(|arm| &**arm).collect()
    }

    /// Returns the designs' arms, and the controls behind them: `mmap-sem` in an instance of its own, and with the
    /// locked instructions that the designs of 2018 have more.
    pub fn designs_and_controls(&self) -> Vec<&dyn Arm> {
        self.designs.iter().chain(&self.controls).map(|arm| &**arm).collect()
    }

    /// Ends them.
    pub fn end(self) {
        self.designs.into_iter().chain(self.controls).for_each(|arm| arm.end());
    }
}

struct Make {
    more: Locked,
    name: Option<&'static str>,
}

impl DesignVisitor<Native> for Make {
    type Output = Box<dyn Arm>;
    fn visit<D: Design<Native>>(self, semaphore: GenerationOf<Native, D>) -> Box<dyn Arm> {
        Box::new(Subject::<D>::new(semaphore, self.more, self.name.unwrap_or(D::NAME)))
    }
}

struct Subject<D: Design<Native>> {
    machine: Machine,
    vm: Pin<Box<Vm<Native, D>>>,
    name: &'static str,
    more: Locked,
    /// Holds the frames; dropped last.
    _region: HostRegion,
}

impl<D: Design<Native>> Subject<D> {
    fn new(semaphore: GenerationOf<Native, D>, more: Locked, name: &'static str) -> Self {
        let region = HostRegion::reserve(MEMORY_BYTES).expect("the host has room");
        // SAFETY: the region is ours alone. Touched once, so that no measured fault is the first to touch a frame on
        // the host.
        unsafe { region.base().write_bytes(0, region.len_bytes()) };
        let machine = Machine::new(2);
        // SAFETY: the region is zeroed, ours alone, and outlives the instance.
        let memory = unsafe { Memory::<Native>::new(region.base(), region.len_bytes(), 2, Options::default()) };
        let vm = machine.attach(|| Vm::with_semaphore(memory.expect("large enough"), semaphore).expect("a zero page"));
        Self { machine, vm, name, more, _region: region }
    }

    fn space(&self) -> SpaceRef<'_, Native, D> {
        self.vm.create_space(Limits::default()).expect("room")
    }

    /// Makes the file that a load maps, if it maps one.
    fn file_of(&self, load: Load) -> Option<ObjectHandle<'_, Native>> {
        load.maps_file().then(|| self.file())
    }

    /// Makes a file whose pages are all cached, as those of a file system are that wants to know of dirty pages.
    fn file(&self) -> ObjectHandle<'_, Native> {
        let (size_bytes, source) = (FILE_PAGES * PAGE, &ZeroSource);
        let spec = ObjectSpec { identity: 1, size_bytes, source, write_notice: WriteNotice::Fault };
        let file = self.vm.create_object(&spec).expect("room");
        let space = self.space();
        Load::PageFault3.run(&Guest::new(&space), Some(&file), &Locked::default());
        file
    }

    /// Runs a load on two threads at once, in `spaces`, for a while; returns twice the time in which both together do
    /// an operation.
    fn at_once(&self, load: Load, spaces: [&SpaceRef<'_, Native, D>; 2]) -> f64 {
        let files = self.machine.attach(|| [self.file_of(load), self.file_of(load)]);
        let (barrier, total) = (Barrier::<Native>::new(2), Mutex::new(0.0_f64));
        Native::run(&self.machine, 2, &|thread| {
            Native::enter();
            let guest = Guest::new(spaces[thread]);
            barrier.wait();
            let rate = load.rate(&guest, files[thread].as_ref(), WINDOW);
            *total.lock().expect("no panic") += rate;
            drop(guest);
            Native::leave();
        });
        self.machine.attach(|| {
            drop(files);
            self.flush();
        });
        2e9 / total.into_inner().expect("no panic")
    }

    /// Measures faults, then zeroing of the frames that they got, in the order of their pages; returns those sorted.
    ///
    /// Once the frames repeat, the faults find the caches as zeroing finds them: these frames were written just before,
    /// in order.
    fn fault_and_zero(&self, nr_pages: u64) -> (Zeroing, Vec<*mut u8>) {
        let space = self.space();
        let base = space.mmap(&anonymous()).expect("room");
        let guest = Guest::new(&space);
        let fault_ns = ns_of_each(nr_pages, || touch(&guest, base.get(), nr_pages));
        let memory = self.vm.memory();
        let mut frames = Vec::with_capacity(nr_pages as usize);
        let pages = (0..nr_pages).map(|page| base + page * PAGE);
        frames.extend(pages.map(|page| memory.frame(space.entry_at(page).pfn())));
        let zero_ns = ns_of_each(nr_pages, || {
            for &frame in &frames {
                // SAFETY: the frames are mapped by this space alone, and nobody accesses it meanwhile.
                unsafe { Native::bulk(frame, Bulk::Zero) };
            }
        });
        frames.sort_unstable();
        (Zeroing { fault_ns, zero_ns }, frames)
    }

    /// Frees what waits for readers: under `spf-srcu` the file behind an area, whose frames the next file shall get.
    fn flush(&self) {
        self.vm.flush();
    }

    fn on_one_thread(&self, act: impl FnOnce(&SpaceRef<'_, Native, D>) -> f64) -> f64 {
        self.machine.attach(|| {
            let result = act(&self.space());
            self.flush();
            result
        })
    }
}

/// Runs `act`; returns its nanoseconds, divided.
fn ns_of_each(nr: u64, act: impl FnOnce()) -> f64 {
    let start = Instant::now();
    act();
    start.elapsed().as_secs_f64() * 1e9 / nr as f64
}

impl<D: Design<Native>> Arm for Subject<D> {
    fn name(&self) -> &'static str {
        self.name
    }

    fn zeroing(&self, nr_pages: u64) -> Zeroing {
        self.machine.attach(|| {
            let mut before: Vec<*mut u8> = Vec::new();
            for _ in 0..MOST_PASSES {
                let (zeroing, frames) = self.fault_and_zero(nr_pages);
                let nr_again = frames.iter().filter(|frame| before.binary_search(frame).is_ok()).count();
                if nr_again * 10 >= frames.len() * SAME_TENTHS {
                    return zeroing;
                }
                before = frames;
            }
            panic!("each time the faults got other frames, in another state than zeroing finds them");
        })
    }

    fn alone(&self, load: Load) -> f64 {
        self.on_one_thread(|space| load.run(&Guest::new(space), self.file_of(load).as_ref(), &self.more))
    }

    fn beside_sleeper(&self, load: Load) -> f64 {
        let space = self.machine.attach(|| self.space());
        let (is_asleep, may_wake) =
            (faultless_sync::Completion::<Native>::new(), faultless_sync::Completion::<Native>::new());
        let time = Mutex::new(f64::NAN);
        Native::run(&self.machine, 2, &|thread| {
            Native::enter();
            let guest = Guest::new(&space);
            if thread == 0 {
                is_asleep.wait();
                *time.lock().expect("no panic") = load.run(&guest, self.file_of(load).as_ref(), &self.more);
                may_wake.set();
            } else {
                let base = space.mmap(&anonymous()).expect("room");
                touch(&guest, base.get(), 1);
                is_asleep.set();
                may_wake.wait();
            }
            drop(guest);
            Native::leave();
        });
        self.machine.attach(|| {
            drop(space);
            self.flush();
        });
        time.into_inner().expect("no panic")
    }

    fn in_one_space(&self, load: Load) -> f64 {
        let space = self.machine.attach(|| self.space());
        let time = self.at_once(load, [&space, &space]);
        self.machine.attach(|| drop(space));
        time
    }

    fn in_two_spaces(&self, load: Load) -> f64 {
        let spaces = self.machine.attach(|| [self.space(), self.space()]);
        let time = self.at_once(load, [&spaces[0], &spaces[1]]);
        self.machine.attach(|| drop(spaces));
        time
    }

    fn end(self: Box<Self>) {
        let Self { machine, vm, _region, .. } = *self;
        machine.attach(|| drop(vm));
    }
}
