//! What each program asks of its memory, step by step, on a model of one thread.

mod support;

use faultless_platform::native::{Machine, Native};
use faultless_workloads::{AddressSpace, Begins, PAGE, Program, Refused, Seat, Spec, WORKLOADS, Worker};
use support::Model;

/// Makes so many steps of a program; returns the operations that they counted.
fn steps(text: &str, model: &Model, nr_steps: usize) -> Result<u64, Refused> {
    let spec = Spec::parse(text).expect("a workload");
    Machine::new(1).attach(|| {
        let program: Box<dyn Program<Native> + '_> = spec.prepare(model, 1)?;
        let mut worker = program.worker(Seat { worker: 0, team: 1, global: 0 }, model)?;
        model.calls.borrow_mut().clear();
        model.faults.set(0);
        let ops = (0..nr_steps).try_fold(0, |ops, _| Ok(ops + worker.step()?.ops));
        worker.finish();
        ops
    })
}

#[test]
fn every_workload_makes_steps_and_counts_them() {
    for workload in WORKLOADS.iter().filter(|workload| !workload.is_recorded()) {
        let model = Model::new();
        let ops = steps(workload.name, &model, 30).expect(workload.name);
        assert!(ops >= 30, "{}: {ops}", workload.name);
        assert!(!workload.about.is_empty() && !workload.operation.is_empty() && !workload.source.is_empty());
    }
}

#[test]
fn page_faults_walk_the_region_and_map_it_anew() {
    for (name, backing) in [("page_fault1", "Anonymous"), ("page_fault2", "Private"), ("page_fault3", "Shared")] {
        let model = Model::new();
        assert_eq!(steps(&format!("{name} --region 64K"), &model, 40), Ok(40));
        assert_eq!((model.count("mmap"), model.count("munmap"), model.faults.get()), (3, 2, 40), "{name}");
        assert_eq!(model.mapped_bytes(), 64 << 10);
        let areas = model.areas.borrow();
        let kind = format!("{:?}", areas.values().next().expect("one area").backing);
        assert!(kind.starts_with(backing), "{name}: {kind}");
    }
}

#[test]
fn workers_that_begin_anywhere_pass_over_a_part_of_their_first_region_alone() {
    let mut spec = Spec::parse("page_fault1 --region 64K").expect("a workload");
    spec.settings.begins = Begins::Anywhere { seed: 1 };
    let stores_until_unmapped = |global| {
        let model = Model::new();
        Machine::new(1).attach(|| {
            let program: Box<dyn Program<Native> + '_> = spec.prepare(&model, 1).expect("prepared");
            let mut worker = program.worker(Seat { worker: 0, team: 1, global }, &model).expect("a worker");
            let mut nr_steps = |nr_unmapped| {
                let before = model.faults.get();
                while model.count("munmap") < nr_unmapped {
                    assert_eq!(worker.step().map(|step| step.ops), Ok(1));
                }
                // The one that unmaps stores to the next region's first page.
                model.faults.get() - before
            };
            [nr_steps(1) - 1, nr_steps(2), nr_steps(3)]
        })
    };
    let first: Vec<_> = (0..200).map(stores_until_unmapped).collect();
    assert!(first.iter().all(|&[first, second, third]| (1..=16).contains(&first) && (second, third) == (16, 16)));
    for nr_stored in 1..=16 {
        let nr_workers = first.iter().filter(|&&[first, ..]| first == nr_stored).count();
        assert!((3..=30).contains(&nr_workers), "{nr_workers} of 200 begin {nr_stored} pages before the end");
    }
}

#[test]
fn mmap_touch_stores_to_all_of_what_it_maps() {
    for (flags, nr_faults) in [("", 256), ("--mutex", 256), ("--untouched", 0), ("--mutex --region 64K", 16)] {
        let model = Model::new();
        assert_eq!(steps(&format!("mmap_touch {flags}"), &model, 2), Ok(2));
        assert_eq!((model.count("mmap"), model.count("munmap")), (2, 2), "{flags}");
        assert_eq!((model.faults.get(), model.mapped_bytes()), (2 * nr_faults, 0), "{flags}");
    }
    assert!(Spec::parse("mmap_touch --nothing").is_err() && Spec::parse("mmap_touch --region 5K").is_err());
}

#[test]
fn the_published_size_is_128_mib() {
    for (name, len) in
        [("page_fault1", 128 << 20), ("mmap1", 128 << 20), ("mmap2", 128 << 20), ("malloc1", (128 << 20) + 4096)]
    {
        let model = Model::new();
        steps(name, &model, 1).expect(name);
        assert_eq!(model.calls.borrow()[0], format!("mmap {len}"), "{name}");
    }
}

#[test]
fn mapping_pairs_touch_nothing_and_leave_nothing() {
    for name in ["mmap1", "mmap2"] {
        let model = Model::new();
        assert_eq!(steps(name, &model, 5), Ok(5));
        assert_eq!((model.count("mmap"), model.count("munmap"), model.faults.get()), (5, 5, 0), "{name}");
        assert_eq!(model.mapped_bytes(), 0);
    }
}

#[test]
fn a_large_block_is_a_mapping_of_which_one_page_is_touched() {
    let model = Model::new();
    assert_eq!(steps("malloc1", &model, 4), Ok(4));
    assert_eq!((model.count("mmap"), model.count("munmap"), model.faults.get()), (4, 4, 4));
}

#[test]
fn a_small_block_costs_no_call_once_there_is_one() {
    let model = Model::new();
    steps("malloc2", &model, 1).expect("a block");
    model.calls.borrow_mut().clear();
    let first = model.allocate(1024).expect("a block");
    model.release(first).expect("ours");
    let calls = model.calls.borrow().len();
    for _ in 0..100 {
        assert_eq!(model.allocate(1024), Ok(first));
        model.release(first).expect("ours");
    }
    assert_eq!(model.calls.borrow().len(), calls);
}

#[test]
fn the_heap_moves_up_and_back() {
    for name in ["brk1", "brk2"] {
        let model = Model::new();
        assert_eq!(steps(name, &model, 3), Ok(6));
        let page = PAGE.cast_signed();
        let expected: Vec<String> = [page, -page].iter().cycle().take(6).map(|by| format!("brk {by}")).collect();
        assert_eq!(*model.calls.borrow(), expected, "{name}");
    }
}

#[test]
fn flushes_discard_each_page_and_look_at_what_is_left() {
    for name in ["tlb_flush1", "tlb_flush2", "tlb_flush3"] {
        let model = Model::new();
        assert_eq!(steps(name, &model, 10), Ok(10));
        assert_eq!((model.count("madvise"), model.faults.get()), (10, 20), "{name}");
    }
}

#[test]
fn a_kernel_that_discards_copies_and_forks_wrongly_is_noticed() {
    let stepped = |name: &str| {
        let spec = Spec::parse(name).expect("a workload");
        let stale = Model::new();
        stale.is_broken.set(true);
        let program: Box<dyn Program<Native> + '_> = spec.prepare(&stale, 1)?;
        let mut worker = program.worker(Seat { worker: 0, team: 1, global: 0 }, &stale)?;
        worker.step().map(|_| ())
    };
    for name in ["tlb_flush1", "tlb_flush2", "fork", "ebizzy"] {
        assert!(matches!(stepped(name), Err(Refused::Wrong { .. })), "{name}");
    }
}

#[test]
fn reading_ends_rewinds_and_counts_all_reads() {
    for (name, file) in [("read1", "Own(0)"), ("read2", "Common")] {
        let spec = Spec::parse(name).expect("a workload");
        let model = Model::new();
        let program: Box<dyn Program<Native> + '_> = spec.prepare(&model, 1).expect("prepared");
        let mut worker = program.worker(Seat { worker: 0, team: 1, global: 0 }, &model).expect("a worker");
        assert!(model.calls.borrow()[0].contains(file), "{name}");
        (0..257).for_each(|_| assert_eq!(worker.step().expect("a read").ops, 1));
        assert_eq!((model.count("read"), model.count("lseek")), (257, 1), "{name}");
    }
}

#[test]
fn read_byte_reads_one_byte_and_seeks_back() {
    for (text, file) in [("read-byte", "Own(0)"), ("read-byte --own", "Own(0)"), ("read-byte --shared", "Common")] {
        let spec = Spec::parse(text).expect("a workload");
        let model = Model::new();
        let program: Box<dyn Program<Native> + '_> = spec.prepare(&model, 1).expect("prepared");
        let mut worker = program.worker(Seat { worker: 0, team: 1, global: 0 }, &model).expect("a worker");
        assert!(model.calls.borrow()[0].contains(file), "{text}");
        (0..10).for_each(|_| assert_eq!(worker.step().expect("a read").ops, 1));
        assert_eq!((model.count("read"), model.count("lseek")), (10, 10), "{text}");
    }
    assert!(Spec::parse("read-byte --both").is_err());
}

#[test]
fn pagefaults_accesses_memory_in_a_pattern() {
    // Pages that are accessed, and maps and unmaps, in two rounds and a step more over 16 pages.
    for (flags, each_round, pages) in [
        ("", 16, 16),
        ("--pattern random", 16, 16),
        ("--pattern stride=2K --access write", 32, 16),
        ("--pattern stride=12K", 6, 6),
    ] {
        let (model, text) = (Model::new(), format!("pagefaults --region 64K {flags}"));
        assert_eq!(
            steps(&text, &model, 2 * each_round + 1),
            Ok(2 * u64::try_from(each_round).expect("small") + 1),
            "{text}"
        );
        assert_eq!((model.count("mmap"), model.count("munmap")), (3, 2), "{text}");
        assert_eq!(model.faults.get(), 2 * pages + 1, "{text}");
    }
    let spec = Spec::parse("pagefaults --region 64K --mapping shared --access read").expect("a workload");
    let model = Model::new();
    let program: Box<dyn Program<Native> + '_> = spec.prepare(&model, 1).expect("prepared");
    let mut worker = program.worker(Seat { worker: 0, team: 1, global: 0 }, &model).expect("a worker");
    assert!(model.calls.borrow()[0].contains("Own(0)"), "{:?}", model.calls.borrow());
    assert_eq!(worker.step().map(|step| step.ops), Ok(1));
}

#[test]
fn ebizzys_flags_choose_where_memory_comes_from() {
    let calls = |text: &str| {
        let model = Model::new();
        assert_eq!(steps(text, &model, 20), Ok(20), "{text}");
        (model.count("mmap"), model.count("munmap"), model.count("mprotect"), model.faults.get())
    };
    // Always mappings: a pair for each record, touched page by page.
    assert_eq!(calls("ebizzy -mT -s 64K"), (20, 20, 0, 20 * 16));
    // Never: only the arena.
    let (mapped, unmapped, protected, _) = calls("ebizzy -MT -s 512K");
    assert!(mapped <= 1 && unmapped <= 2 && protected >= 1, "{mapped} {unmapped} {protected}");
    // As malloc decides: the first block is a mapping, and the border rises to its size.
    let (mapped, ..) = calls("ebizzy -T -s 512K");
    assert!(mapped <= 2, "{mapped}");
}

#[test]
fn ebizzy_makes_every_other_chunk_read_only_and_lengths_random() {
    let model = Model::new();
    steps("ebizzy -mp -n 4 -s 64K", &model, 3).expect("records are found");
    let areas = model.areas.borrow();
    let rights: Vec<_> = areas.values().map(|area| format!("{:?}", area.rights)).collect();
    assert_eq!(rights.iter().filter(|rights| *rights == "Read").count(), 2, "{rights:?}");
    let model = Model::new();
    steps("ebizzy -mR -n 2 -s 64K", &model, 30).expect("records are found");
    let mut lengths: Vec<String> =
        model.calls.borrow().iter().filter(|line| line.starts_with("mmap")).cloned().collect();
    lengths.sort();
    lengths.dedup();
    assert!(lengths.len() > 5, "{lengths:?}");
}

#[test]
fn a_child_copies_what_it_stores_to_and_the_parent_keeps_its_own() {
    let model = Model::new();
    assert_eq!(steps("fork", &model, 3), Ok(3));
    assert_eq!(model.count("fork"), 3);
    assert!(model.calls.borrow().contains(&"child faults 16".to_owned()));
}

#[test]
fn corten_rounds_act_on_every_item_once() {
    for (name, calls) in [("corten-mmap", "mmap"), ("corten-munmap", "munmap"), ("corten-munmap_virt", "munmap")] {
        let model = Model::new();
        assert_eq!(steps(name, &model, 512), Ok(512));
        // The round's own calls are one of each at most, and again when the worker finishes.
        let made = model.count(calls);
        assert!((512..=516).contains(&made), "{name}: {made}");
    }
    for text in ["corten-pf --near", "corten-pf --interleaved", "corten-pf --high", "corten-mmap_pf --high"] {
        let model = Model::new();
        assert_eq!(steps(text, &model, 1024), Ok(1024));
        assert_eq!(model.faults.get(), 1024, "{text}: each item faults once in a round");
    }
}

/// Lets both workers of a team make steps; returns the pages whose rights were changed, and where stores went.
fn protected_and_stored(text: &str) -> (Vec<u64>, Vec<u64>) {
    let spec = Spec::parse(text).expect("a workload");
    let model = Model::new();
    Machine::new(1).attach(|| {
        let program: Box<dyn Program<Native> + '_> = spec.prepare(&model, 2).expect("prepared");
        let worker = |worker| program.worker(Seat { worker, team: 2, global: worker }, &model).expect("a worker");
        let (mut protector, mut storing) = (worker(0), worker(1));
        for _ in 0..511 {
            assert_eq!(storing.step().map(|step| step.ops), Ok(1));
            assert_eq!(protector.step().map(|step| step.ops), Ok(0));
        }
    });
    (model.protected.take(), model.words.borrow().keys().copied().collect())
}

#[test]
fn a_protector_changes_pages_that_nobody_stores_to() {
    for (text, distance) in [("corten-pf --protect inside", 511), ("corten-pf --protect outside", -1)] {
        let (protected, stored) = protected_and_stored(text);
        assert_eq!((stored.len(), protected.len()), (511, 2 * 511), "{text}");
        let page = stored[0].wrapping_add_signed(distance * PAGE as i64);
        assert!(protected.iter().all(|&at| at == page), "{text}: {page:x}, not {:x}", protected[0]);
    }
}

#[test]
fn what_a_round_prepares_does_not_count_as_time() {
    let spec = Spec::parse("corten-munmap").expect("a workload");
    let model = Model::new();
    Machine::new(1).attach(|| {
        let program: Box<dyn Program<Native> + '_> = spec.prepare(&model, 1).expect("prepared");
        let mut worker: Box<dyn Worker + '_> =
            program.worker(Seat { worker: 0, team: 1, global: 0 }, &model).expect("a worker");
        assert!(worker.step().expect("a step").aside_ns > 0, "512 stores were made");
        assert_eq!(worker.step().expect("a step").aside_ns, 0);
    });
}
