//! What the variants of `refpage` take: frames by the pages that are touched, and how.

use faultless_phys::{Memory, Options};
use faultless_platform::native::{HostRegion, Machine, Native};
use faultless_sync::Rwsem;
use faultless_vm::design::VmaLock;
use faultless_vm::{Limits, Vm, check};
use faultless_workloads::{Files, Program, Seat, Spec, VmSpace};

type Design = VmaLock<Rwsem<Native>>;

/// Makes three rounds; returns the pages that were resident at most.
fn peak(text: &str) -> u64 {
    let spec = Spec::parse(text).expect("a workload");
    let region = HostRegion::reserve(64 << 20).expect("the host has room");
    Machine::new(1).attach(|| {
        // SAFETY: the region is zeroed, ours alone, and outlives the instance.
        let memory = unsafe { Memory::<Native>::new(region.base(), region.len_bytes(), 1, Options::default()) };
        let vm = Vm::<Native, Design>::new(memory.expect("large enough")).expect("room");
        let files = Files::new(&vm, 1);
        let space = vm.create_space(Limits::default()).expect("room");
        let view = VmSpace::new(&space, &files);
        let program: Box<dyn Program<Native> + '_> = spec.prepare(&view, 1).expect("room");
        let mut worker = program.worker(Seat { worker: 0, team: 1, global: 0 }, &view).expect("room");
        (0..3).for_each(|_| assert_eq!(worker.step().expect(text).ops, 1));
        drop(worker);
        // SAFETY: the thread is the only one.
        unsafe { check::invariants(&vm) }.expect("whole");
        space.peak_resident_pages()
    })
}

#[test]
fn resident_size_is_that_of_the_pages_that_the_variant_makes() {
    for reuse in ["", " --reuse"] {
        let peak = |variant: &str, rest: &str| peak(&format!("refpage --variant {variant}{rest}{reuse}"));
        for (touch, touched) in [("one", 1), ("half", 512), ("all", 1024), ("10%", 102)] {
            let stored = format!(" --touch {touch}");
            assert_eq!(peak("anon", &stored), touched, "{touch}");
            assert_eq!(peak("refpage", &stored), touched, "{touch}");
            assert_eq!(peak("pattern", &stored), touched, "{touch}");
            assert_eq!(peak("memset", &stored), 1024, "{touch}");
            // Read first: only the pattern, and what was filled, has pages.
            let loaded = format!("{stored} --load");
            assert_eq!((peak("anon", &loaded), peak("refpage", &loaded)), (0, 0), "{touch}");
            assert_eq!((peak("pattern", &loaded), peak("memset", &loaded)), (touched, 1024), "{touch}");
            // Read first and then written, all variants have a page of each.
            let updated = format!("{stored} --update");
            let found = ["anon", "refpage", "pattern"].map(|variant| peak(variant, &updated));
            assert_eq!((found, peak("memset", &updated)), ([touched; 3], 1024), "{touch}");
        }
    }
}

#[test]
fn a_renderer_has_as_many_pages_with_a_reference_page_as_without() {
    let [anon, memset, refpage, pattern] = ["anon", "memset", "refpage", "pattern"]
        .map(|variant| peak(&format!("refpage --touch renderer --variant {variant}")));
    assert_eq!((refpage, pattern), (anon, anon));
    assert!(memset > anon, "{memset} against {anon}");
}
