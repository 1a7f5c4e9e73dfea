//! Kernel maps that are windows of this process: each scheme's reach their frames, and a use after release faults.

use std::os::unix::process::ExitStatusExt;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use faultless_kmap::registry::{SCHEMES, SchemeVisitor, with_scheme};
use faultless_kmap::{KernelMaps, Mapped, Scheme, Shape, Task};
use faultless_machine::windows::RealWindows;
use faultless_platform::native::{Machine, Native};
use faultless_platform::{Processor, Threads};

const NR_CPUS: usize = 3;
const SHAPE: Shape = Shape {
    nr_cpus: NR_CPUS,
    nr_frames: 64,
    nr_slots: 16,
    nr_processes: 1,
    costs: faultless_kmap::Costs { walk_ns: 0, flush_ns: 0, flush_slot_ns: 0 },
    is_metered: false,
};

/// Returns the words that a map reaches: whose they are, and how often they were counted.
fn words<'a, S: Scheme<Native>>(page: &'a Mapped<'_, Native, S>) -> &'a [AtomicU64; 2] {
    let address = page.address().expect("windows are real");
    // SAFETY: the page is mapped as long as the guard lives, and all access it by atomics.
    unsafe { address.cast().as_ref() }
}

/// Counts a frame; checks that it is the one that was asked for.
fn count<S: Scheme<Native>>(page: &Mapped<'_, Native, S>, pfn: u32) {
    let [name, counted] = words(page);
    let before = name.swap(u64::from(pfn) + 1, Ordering::Relaxed);
    assert!([0, u64::from(pfn) + 1].contains(&before), "{} reached frame {before}, not {pfn}", S::NAME);
    counted.fetch_add(1, Ordering::Relaxed);
}

/// Lets all CPUs map frames in each other's way; returns how often they counted, and how often frames were counted.
struct Count;

impl SchemeVisitor<Native> for Count {
    type Output = (u64, u64);

    fn visit<S: Scheme<Native>>(self) -> Self::Output {
        let machine = Machine::new(NR_CPUS);
        let windows = Arc::new(RealWindows::of::<Native, S>(&SHAPE).expect("the host has room"));
        let maps = machine.attach(|| KernelMaps::<Native, S>::with_holders(&SHAPE, Some(windows)));
        let counted = AtomicU64::new(0);
        Native::run(&machine, NR_CPUS, &|thread| {
            Native::enter();
            let task = Task::new(0, Native::cpu());
            let mut drawn = thread as u32 + 1;
            let mut draw = || {
                drawn = drawn.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                (drawn >> 16) % SHAPE.nr_frames as u32
            };
            for _ in 0..400 {
                let (outer, inner) = (draw(), draw());
                let first = maps.map(&task, outer);
                count(&first, outer);
                let second = maps.map(&task, inner);
                count(&second, inner);
                count(&first, outer);
                counted.fetch_add(3, Ordering::Relaxed);
            }
            Native::leave();
        });
        let mut found = 0;
        machine.attach(|| {
            let task = Task::new(0, Native::cpu());
            for pfn in 0..SHAPE.nr_frames as u32 {
                found += words(&maps.map(&task, pfn))[1].load(Ordering::Relaxed);
            }
            drop(maps);
        });
        (counted.into_inner(), found)
    }
}

#[test]
fn every_map_reaches_its_frame_by_the_hosts_own_tables() {
    for name in SCHEMES {
        let (counted, found) = with_scheme(name, Count).expect("registered");
        assert_eq!((counted, found), (1200 * NR_CPUS as u64, counted), "{name}");
    }
}

/// Where an access must fault.
static RELEASED: AtomicUsize = AtomicUsize::new(0);

/// How a process ends that faults there.
const FAULTED_THERE: i32 = 77;

extern "C" fn on_fault(_signal: i32, info: *mut libc::siginfo_t, _context: *mut libc::c_void) {
    // SAFETY: the kernel hands out a valid siginfo with an address; `_exit` may be called anywhere.
    unsafe {
        let is_there = (*info).si_addr().addr() == RELEASED.load(Ordering::Relaxed);
        libc::_exit(if is_there { FAULTED_THERE } else { 1 });
    }
}

fn exit_on_fault() {
    // SAFETY: a zeroed sigaction is valid, and so is the handler.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = on_fault as *const () as usize;
        action.sa_flags = libc::SA_SIGINFO;
        assert_eq!(libc::sigaction(libc::SIGSEGV, &action, std::ptr::null_mut()), 0);
    }
}

/// Reads a frame through its map, and again after the release.
struct UseAfterRelease;

impl SchemeVisitor<Native> for UseAfterRelease {
    type Output = ();

    fn visit<S: Scheme<Native>>(self) {
        Machine::new(NR_CPUS).attach(|| {
            let windows = Arc::new(RealWindows::of::<Native, S>(&SHAPE).expect("the host has room"));
            let maps = KernelMaps::<Native, S>::with_holders(&SHAPE, Some(windows));
            let task = Task::new(0, Native::cpu());
            let page = maps.map(&task, 7);
            count(&page, 7);
            let address = page.address().expect("windows are real");
            drop(page);
            RELEASED.store(address.as_ptr().addr(), Ordering::Relaxed);
            // SAFETY: none: it is what must fault.
            let read = unsafe { address.as_ptr().read_volatile() };
            println!("read {read} after the release");
        });
    }
}

const SCHEME: &str = "FAULTLESS_USE_AFTER_RELEASE";

#[test]
fn a_use_after_release_faults_under_every_scheme() {
    if let Ok(scheme) = std::env::var(SCHEME) {
        exit_on_fault();
        return with_scheme(&scheme, UseAfterRelease).expect("registered");
    }
    for name in SCHEMES {
        let mut command = Command::new(std::env::current_exe().expect("this program"));
        command.args(["--exact", "a_use_after_release_faults_under_every_scheme", "--nocapture"]);
        let output = command.env(SCHEME, name).output().expect("it starts");
        let (code, signal) = (output.status.code(), output.status.signal());
        assert_eq!((code, signal), (Some(FAULTED_THERE), None), "{name}: {}", String::from_utf8_lossy(&output.stdout));
    }
}
