//! What was published, and what to run for it.

/// What is nearest to the semaphore of the kernels of 2017 to 2021 whose tables name none: its writers spin beside a
/// writer that runs, and not beside readers. It stays, whatever the default is.
const THEIR_SEMAPHORE: &str = "rwsem-v8";

/// What a case measures.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Figure {
    /// Operations in a second.
    Rate,
    /// How often threads slept, for each operation.
    Sleeps,
    /// Seconds of a recorded renderer: what it computes, as recorded, and one pass over its blocks.
    RendererSeconds,
    /// The largest resident size, in KiB.
    ResidentKib,
}

impl Figure {
    /// Returns its name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Rate => "ops_per_s",
            Self::Sleeps => "sleeps_per_op",
            Self::RendererSeconds => "seconds",
            Self::ResidentKib => "resident_kib",
        }
    }
}

/// A line of a table.
#[derive(Debug)]
pub struct Case {
    /// The workload, with its flags.
    pub workload: &'static str,
    /// The workload after, where it is another one.
    pub head_workload: Option<&'static str>,
    /// The simulated machine.
    pub machine: &'static str,
    /// CPUs, and workers.
    pub cpus: usize,
    /// Whether each worker has an address space of its own.
    pub processes: bool,
    /// The design before.
    pub base: &'static str,
    /// The design after.
    pub head: &'static str,
    /// The semaphore before.
    pub base_semaphore: &'static str,
    /// The semaphore after.
    pub head_semaphore: &'static str,
    /// The published standard deviation of the change, in percent, where there is one.
    pub published_deviation: Option<f64>,
    /// What is measured.
    pub figure: Figure,
    /// How long a run is, where the usual time is too short.
    pub duration_ns: Option<u64>,
    /// The published change.
    pub published_percent: f64,
    /// As it was published.
    pub published_as: &'static str,
    /// The published figures before and after, rates of all workers together, where the source has them.
    pub published_rates: Option<[f64; 2]>,
    /// Published events, in a hundred faults.
    pub published_events: &'static [(&'static str, f64)],
}

/// A published table.
#[derive(Debug)]
pub struct Table {
    /// Its name here.
    pub name: &'static str,
    /// What it is.
    pub about: &'static str,
    /// Where it stands.
    pub source: &'static str,
    /// Its lines.
    pub cases: &'static [Case],
    /// Lines that are not run, and why.
    pub left_out: &'static [&'static str],
}

/// A line of the robot's report: operations in a second of one of 192 workers, before and after.
const fn lkp(
    workload: &'static str,
    processes: bool,
    published_percent: f64,
    each: [f64; 2],
    published_as: &'static str,
) -> Case {
    Case {
        published_rates: Some([each[0] * 192.0, each[1] * 192.0]),
        workload,
        head_workload: None,
        machine: "skylake-192",
        cpus: 192,
        processes,
        base: "mmap-sem",
        head: "spf-v9",
        figure: Figure::Rate,
        duration_ns: None,
        published_percent,
        published_as,
        published_events: &[],
        base_semaphore: THEIR_SEMAPHORE,
        head_semaphore: THEIR_SEMAPHORE,
        published_deviation: None,
    }
}

const fn ebizzy(
    workload: &'static str,
    machine: &'static str,
    cpus: usize,
    head: &'static str,
    published_percent: f64,
    published_as: &'static str,
) -> Case {
    Case {
        published_rates: None,
        workload,
        head_workload: None,
        machine,
        cpus,
        processes: false,
        base: "mmap-sem",
        head,
        figure: Figure::Rate,
        duration_ns: Some(20_000_000),
        published_percent,
        published_as,
        published_events: &[],
        base_semaphore: THEIR_SEMAPHORE,
        head_semaphore: THEIR_SEMAPHORE,
        published_deviation: None,
    }
}

const fn compile(
    cpus: usize,
    head: &'static str,
    figure: Figure,
    published_percent: f64,
    published_as: &'static str,
) -> Case {
    Case {
        figure,
        duration_ns: None,
        published_percent,
        published_as,
        ..ebizzy("compile", "x86-vm-16", cpus, head, 0.0, "")
    }
}

/// A file is read a few microseconds at a time: a short run has as many of them as a long one of other lines.
const fn reading(workload: &'static str, published_percent: f64, each: [f64; 2], published_as: &'static str) -> Case {
    Case { duration_ns: Some(500_000), ..lkp(workload, false, published_percent, each, published_as) }
}

/// Two variants of a workload on our own machine, simulated.
const fn refpage(
    workload: &'static str,
    head_workload: &'static str,
    figure: Figure,
    levels: [f64; 2],
    published_as: &'static str,
) -> Case {
    Case {
        published_rates: Some(levels),
        workload,
        head_workload: Some(head_workload),
        machine: "here",
        cpus: 1,
        processes: false,
        base: "mmap-sem",
        head: "mmap-sem",
        figure,
        duration_ns: None,
        published_percent: (levels[1] / levels[0] - 1.0) * 100.0,
        published_as,
        published_events: &[],
        base_semaphore: THEIR_SEMAPHORE,
        head_semaphore: THEIR_SEMAPHORE,
        published_deviation: None,
    }
}

/// Rounds of version 5's program.
const ROUNDS: f64 = 1000.0;

/// A row of version 5's table: filled by the program against a reference page, seconds as rates.
const fn refpage_rate(
    workload: &'static str,
    head_workload: &'static str,
    [before, after]: [f64; 2],
    published_as: &'static str,
) -> Case {
    // The program's faults enter a kernel, which those of `here` don't.
    let case = refpage(workload, head_workload, Figure::Rate, [ROUNDS / before, ROUNDS / after], published_as);
    Case { machine: "skylake-192", ..case }
}

/// A row of version 3's table: plain memory against another variant. A pass is the program's whole run.
const fn renderer(head_workload: &'static str, figure: Figure, levels: [f64; 2], published_as: &'static str) -> Case {
    let plain = "refpage --variant anon --touch renderer";
    Case { duration_ns: Some(1), ..refpage(plain, head_workload, figure, levels, published_as) }
}

/// A line of the rwsem series: workload and the one after, semaphores before and after, the change and its deviation.
const fn rwsem(
    cpus: usize,
    (workload, head_workload): (&'static str, Option<&'static str>),
    (base_semaphore, head_semaphore): (&'static str, &'static str),
    (published_percent, published_deviation): (f64, Option<f64>),
    column: &'static str,
) -> Case {
    Case {
        published_rates: None,
        workload,
        head_workload,
        machine: "xeon-40",
        cpus,
        processes: false,
        base: "mmap-sem",
        head: "mmap-sem",
        base_semaphore,
        head_semaphore,
        published_deviation,
        figure: Figure::Rate,
        duration_ns: Some(RWSEM_NS),
        published_percent,
        published_as: column,
        published_events: &[],
    }
}

/// How long a run of the rwsem series is: some twenty operations of each thread.
const RWSEM_NS: u64 = 20_000_000;

/// All tables.
pub const TABLES: &[Table] = &[
    Table {
        name: "spf-2018-lkp-v9",
        about: "will-it-scale on 192 CPUs before and after version 9 of the 2018 series, transparent huge pages off",
        source: "seed 1: the report of the 0-day robot's team on version 9, tables 'THP disabled'",
        cases: &[
            lkp("page_fault3", false, -19.1, [10107.0, 8180.0], "10107 to 8180 per thread"),
            lkp("page_fault2", false, -17.8, [8432.0, 6931.0], "8432 to 6931 per thread"),
            lkp("brk1", false, -6.6, [939.67, 877.33], "939.67 to 877.33 per thread"),
            lkp("page_fault3", true, -4.7, [173145.0, 165064.0], "173145 to 165064 per process"),
            lkp(
                "malloc1",
                false,
                417.3,
                [90.33, 467.33],
                "90.33 to 467.33 per thread; with huge pages 66.33 to 383.67, +469.8 %",
            ),
            reading("read2", 39.2, [58934.0, 82060.0], "58934 to 82060 per thread"),
            lkp("page_fault1", false, 36.4, [8607.0, 11736.0], "8607 to 11736 per thread"),
            reading("read1", 12.7, [314063.0, 353934.0], "314063 to 353934 per thread"),
        ],
        left_out: &["context_switch1, signal1, writeseek3: they are not about the memory map"],
    },
    Table {
        name: "spf-2018-ebizzy",
        about: "ebizzy -mTt N before and after version 11 of the 2018 series",
        source: "seed 1: the cover letter of version 11",
        cases: &[
            Case {
                published_events: &[
                    ("spf", 98.14),
                    ("pagefault:spf_vma_changed", 1.79),
                    ("pagefault:spf_vma_noanon", 0.0),
                    ("pagefault:spf_vma_notsup", 0.02),
                    ("pagefault:spf_vma_access", 0.0),
                    ("pagefault:spf_pmd_changed", 0.0),
                ],
                ..ebizzy("ebizzy -mTt 16", "x86-vm-16", 16, "spf-v11", 100.69, "742.57 to 1490.24 records/s")
            },
            Case {
                published_events: &[
                    ("spf", 77.94),
                    ("pagefault:spf_vma_changed", 22.04),
                    ("pagefault:spf_vma_noanon", 0.0),
                    ("pagefault:spf_vma_notsup", 0.01),
                    ("pagefault:spf_vma_access", 0.0),
                    ("pagefault:spf_pmd_changed", 0.0),
                ],
                ..ebizzy("ebizzy -mTt 80", "power8-80", 80, "spf-v11", 84.46, "13105.4 to 24174.23 records/s")
            },
        ],
        left_out: &[],
    },
    Table {
        name: "spf-2017-ebizzy",
        about: "ebizzy -mTRp before and after the 2017 series",
        source: "seed 2: the cover letter of the series for 4.13",
        cases: &[
            ebizzy("ebizzy -mTRp", "x86-vm-16", 16, "spf-srcu", 299.8, "11455.92 to 45803.64 records/s, averages"),
            ebizzy("ebizzy -mTRp", "power8-80", 80, "spf-srcu", 87.4, "33848.76 to 63427.62 records/s, averages"),
        ],
        left_out: &[],
    },
    Table {
        name: "spf-kernbench",
        about: "a kernel's build before and after: elapsed time the same, system time 2 to 3.6 % more",
        source: "seeds 1 and 2: kernbench on the 16-CPU virtual machine. Here a recorded compile without its computing, so that all of its time is system time: 3.6 % more of it is 3.5 % less of a rate",
        cases: &[
            compile(8, "spf-v11", Figure::Rate, -2.5, "system time 900.47 to 923.28 s, -j 8"),
            compile(16, "spf-v11", Figure::Rate, -2.1, "system time 979.904 to 1001.14 s, -j 16"),
            compile(7, "spf-srcu", Figure::Rate, -3.5, "system time 202.982 to 210.364 s, -j 7"),
            compile(16, "spf-srcu", Figure::Rate, -3.3, "system time 185.46 to 191.75 s, -j 16"),
        ],
        left_out: &[
            "elapsed time: nine tenths of it are computing, which the compile here leaves out",
            "the Power8 node",
        ],
    },
    Table {
        name: "spf-2017-srcu-cost",
        about: "what SRCU costs: context switches of a kernel's build, and the 20 % that the 2018 series names",
        source: "seed 2, kernbench on the 16-CPU virtual machine, context switches; seed 1, which does not say in which test",
        cases: &[
            compile(7, "spf-srcu", Figure::Sleeps, 44.5, "46789 to 67602.4 context switches, -j 7"),
            compile(16, "spf-srcu", Figure::Sleeps, 35.4, "67423.3 to 91316.1 context switches, -j 16"),
            Case {
                head: "spf-srcu",
                published_rates: None,
                ..lkp("brk1", false, -20.0, [0.0; 2], "'hitting the performance by 20 %'; the test is guessed")
            },
        ],
        left_out: &[],
    },
    Table {
        name: "refpage-v3",
        about: "a PDF renderer whose large blocks are to hold a byte: plain memory, filled, and by a reference page",
        source: "seed 5's version 3 (2020): pdfium_test on 100 pages, Pixel 4, median of 100; ours is the recorded pdftoppm of \
                 examples/renderer.trace on 12 slides, its computing as recorded, here simulated on our machine; resident are its large \
                 blocks alone",
        cases: &[
            renderer(
                "refpage --variant memset --touch renderer",
                Figure::RendererSeconds,
                [2.237081, 2.252241],
                "2.237081 to 2.252241 s",
            ),
            renderer(
                "refpage --variant refpage --touch renderer",
                Figure::RendererSeconds,
                [2.237081, 2.243786],
                "2.237081 to 2.243786 s",
            ),
            renderer(
                "refpage --variant memset --touch renderer",
                Figure::ResidentKib,
                [107088.0, 112180.0],
                "107088 to 112180 KiB",
            ),
            renderer(
                "refpage --variant refpage --touch renderer",
                Figure::ResidentKib,
                [107088.0, 107128.0],
                "107088 to 107128 KiB",
            ),
        ],
        left_out: &[],
    },
    Table {
        name: "refpage-v5",
        about: "4 MiB that are to hold a byte: filled by the program, and by a reference page",
        source: "seed 5's version 5 (2021): seconds of 1000 rounds, as rates; measured on a machine that the text does not name, here simulated on \
                 one thread of a server of those years; published sizes are of the whole program, ours of the mapping",
        cases: &[
            refpage_rate(
                "refpage --variant memset --touch one",
                "refpage --variant refpage --touch one",
                [3.962, 0.027],
                "3.962 to 0.027 s",
            ),
            refpage_rate(
                "refpage --variant memset --touch half",
                "refpage --variant refpage --touch half",
                [3.925, 1.481],
                "3.925 to 1.481 s",
            ),
            refpage_rate(
                "refpage --variant memset --touch all",
                "refpage --variant refpage --touch all",
                [3.986, 3.385],
                "3.986 to 3.385 s",
            ),
            refpage(
                "refpage --variant memset --touch one",
                "refpage --variant refpage --touch one",
                Figure::ResidentKib,
                [6656.0, 3448.0],
                "6656 to 3448 KiB",
            ),
            refpage(
                "refpage --variant memset --touch half",
                "refpage --variant refpage --touch half",
                Figure::ResidentKib,
                [6696.0, 4580.0],
                "6696 to 4580 KiB",
            ),
            refpage(
                "refpage --variant memset --touch all",
                "refpage --variant refpage --touch all",
                Figure::ResidentKib,
                [6716.0, 6684.0],
                "6716 to 6684 KiB",
            ),
        ],
        left_out: &[],
    },
    Table {
        name: "rwsem-2013-1-mutex-untouched",
        about: "mmap and munmap of 1 MiB without a store: behind a mutex against plain, each kernel by itself",
        source: "seed 4, October 16, 2013; on a 4 socket Westmere (the author's mail of November 4), 40 cores (the cover letter)",
        cases: &[
            rwsem(
                1,
                ("mmap_touch --untouched", Some("mmap_touch --untouched --mutex")),
                ("rwsem-steal", "rwsem-steal"),
                (3.0, None),
                "vanilla",
            ),
            rwsem(
                1,
                ("mmap_touch --untouched", Some("mmap_touch --untouched --mutex")),
                ("rwsem-v8", "rwsem-v8"),
                (-1.0, None),
                "all",
            ),
            rwsem(
                1,
                ("mmap_touch --untouched", Some("mmap_touch --untouched --mutex")),
                ("rwsem-v8-no-optspin", "rwsem-v8-no-optspin"),
                (-1.7, None),
                "without optspin",
            ),
            rwsem(
                5,
                ("mmap_touch --untouched", Some("mmap_touch --untouched --mutex")),
                ("rwsem-steal", "rwsem-steal"),
                (7.2, None),
                "vanilla",
            ),
            rwsem(
                5,
                ("mmap_touch --untouched", Some("mmap_touch --untouched --mutex")),
                ("rwsem-v8", "rwsem-v8"),
                (-26.8, None),
                "all",
            ),
            rwsem(
                5,
                ("mmap_touch --untouched", Some("mmap_touch --untouched --mutex")),
                ("rwsem-v8-no-optspin", "rwsem-v8-no-optspin"),
                (5.5, None),
                "without optspin",
            ),
            rwsem(
                10,
                ("mmap_touch --untouched", Some("mmap_touch --untouched --mutex")),
                ("rwsem-steal", "rwsem-steal"),
                (5.2, None),
                "vanilla",
            ),
            rwsem(
                10,
                ("mmap_touch --untouched", Some("mmap_touch --untouched --mutex")),
                ("rwsem-v8", "rwsem-v8"),
                (-10.6, None),
                "all",
            ),
            rwsem(
                10,
                ("mmap_touch --untouched", Some("mmap_touch --untouched --mutex")),
                ("rwsem-v8-no-optspin", "rwsem-v8-no-optspin"),
                (22.1, None),
                "without optspin",
            ),
            rwsem(
                20,
                ("mmap_touch --untouched", Some("mmap_touch --untouched --mutex")),
                ("rwsem-steal", "rwsem-steal"),
                (6.8, None),
                "vanilla",
            ),
            rwsem(
                20,
                ("mmap_touch --untouched", Some("mmap_touch --untouched --mutex")),
                ("rwsem-v8", "rwsem-v8"),
                (16.4, None),
                "all",
            ),
            rwsem(
                20,
                ("mmap_touch --untouched", Some("mmap_touch --untouched --mutex")),
                ("rwsem-v8-no-optspin", "rwsem-v8-no-optspin"),
                (12.5, None),
                "without optspin",
            ),
            rwsem(
                40,
                ("mmap_touch --untouched", Some("mmap_touch --untouched --mutex")),
                ("rwsem-steal", "rwsem-steal"),
                (-0.2, None),
                "vanilla",
            ),
            rwsem(
                40,
                ("mmap_touch --untouched", Some("mmap_touch --untouched --mutex")),
                ("rwsem-v8", "rwsem-v8"),
                (32.7, None),
                "all",
            ),
            rwsem(
                40,
                ("mmap_touch --untouched", Some("mmap_touch --untouched --mutex")),
                ("rwsem-v8-no-optspin", "rwsem-v8-no-optspin"),
                (0.0, None),
                "without optspin",
            ),
        ],
        left_out: &[],
    },
    Table {
        name: "rwsem-2013-2-plain",
        about: "mmap, a store to each 8 bytes of 1 MiB, munmap: the series, and the series without spinning, against the base",
        source: "seed 4, October 16, 2013; on a 4 socket Westmere (the author's mail of November 4), 40 cores (the cover letter)",
        cases: &[
            rwsem(1, ("mmap_touch", None), ("rwsem-steal", "rwsem-v8"), (0.4, Some(0.9)), "all"),
            rwsem(1, ("mmap_touch", None), ("rwsem-steal", "rwsem-v8-no-optspin"), (-0.1, Some(0.8)), "No-optspin"),
            rwsem(2, ("mmap_touch", None), ("rwsem-steal", "rwsem-v8"), (2.0, Some(0.8)), "all"),
            rwsem(2, ("mmap_touch", None), ("rwsem-steal", "rwsem-v8-no-optspin"), (0.2, Some(1.2)), "No-optspin"),
            rwsem(3, ("mmap_touch", None), ("rwsem-steal", "rwsem-v8"), (1.1, Some(0.8)), "all"),
            rwsem(3, ("mmap_touch", None), ("rwsem-steal", "rwsem-v8-no-optspin"), (1.5, Some(0.6)), "No-optspin"),
            rwsem(4, ("mmap_touch", None), ("rwsem-steal", "rwsem-v8"), (-0.5, Some(0.9)), "all"),
            rwsem(4, ("mmap_touch", None), ("rwsem-steal", "rwsem-v8-no-optspin"), (-1.4, Some(1.1)), "No-optspin"),
            rwsem(5, ("mmap_touch", None), ("rwsem-steal", "rwsem-v8"), (-0.1, Some(1.1)), "all"),
            rwsem(5, ("mmap_touch", None), ("rwsem-steal", "rwsem-v8-no-optspin"), (-0.1, Some(1.1)), "No-optspin"),
            rwsem(10, ("mmap_touch", None), ("rwsem-steal", "rwsem-v8"), (2.2, Some(0.8)), "all"),
            rwsem(10, ("mmap_touch", None), ("rwsem-steal", "rwsem-v8-no-optspin"), (-1.2, Some(1.0)), "No-optspin"),
            rwsem(20, ("mmap_touch", None), ("rwsem-steal", "rwsem-v8"), (237.3, Some(0.7)), "all"),
            rwsem(20, ("mmap_touch", None), ("rwsem-steal", "rwsem-v8-no-optspin"), (-2.3, Some(1.3)), "No-optspin"),
            rwsem(40, ("mmap_touch", None), ("rwsem-steal", "rwsem-v8"), (548.1, Some(0.8)), "all"),
            rwsem(40, ("mmap_touch", None), ("rwsem-steal", "rwsem-v8-no-optspin"), (0.3, Some(1.2)), "No-optspin"),
        ],
        left_out: &[],
    },
    Table {
        name: "rwsem-2013-3-mutex",
        about: "the same behind a mutex of the program: against the mutex on the base",
        source: "seed 4, October 16, 2013; on a 4 socket Westmere (the author's mail of November 4), 40 cores (the cover letter)",
        cases: &[
            rwsem(1, ("mmap_touch --mutex", None), ("rwsem-steal", "rwsem-v8"), (0.8, Some(1.0)), "all"),
            rwsem(
                1,
                ("mmap_touch --mutex", None),
                ("rwsem-steal", "rwsem-v8-no-optspin"),
                (-1.2, Some(1.2)),
                "No-optspin",
            ),
            rwsem(2, ("mmap_touch --mutex", None), ("rwsem-steal", "rwsem-v8"), (1.0, Some(1.0)), "all"),
            rwsem(
                2,
                ("mmap_touch --mutex", None),
                ("rwsem-steal", "rwsem-v8-no-optspin"),
                (-0.5, Some(1.0)),
                "No-optspin",
            ),
            rwsem(3, ("mmap_touch --mutex", None), ("rwsem-steal", "rwsem-v8"), (1.8, Some(0.7)), "all"),
            rwsem(
                3,
                ("mmap_touch --mutex", None),
                ("rwsem-steal", "rwsem-v8-no-optspin"),
                (0.2, Some(0.8)),
                "No-optspin",
            ),
            rwsem(4, ("mmap_touch --mutex", None), ("rwsem-steal", "rwsem-v8"), (1.5, Some(0.8)), "all"),
            rwsem(
                4,
                ("mmap_touch --mutex", None),
                ("rwsem-steal", "rwsem-v8-no-optspin"),
                (-0.4, Some(0.7)),
                "No-optspin",
            ),
            rwsem(5, ("mmap_touch --mutex", None), ("rwsem-steal", "rwsem-v8"), (1.1, Some(1.1)), "all"),
            rwsem(
                5,
                ("mmap_touch --mutex", None),
                ("rwsem-steal", "rwsem-v8-no-optspin"),
                (0.4, Some(0.3)),
                "No-optspin",
            ),
            rwsem(10, ("mmap_touch --mutex", None), ("rwsem-steal", "rwsem-v8"), (1.5, Some(0.7)), "all"),
            rwsem(
                10,
                ("mmap_touch --mutex", None),
                ("rwsem-steal", "rwsem-v8-no-optspin"),
                (-0.3, Some(0.7)),
                "No-optspin",
            ),
            rwsem(20, ("mmap_touch --mutex", None), ("rwsem-steal", "rwsem-v8"), (1.4, Some(0.8)), "all"),
            rwsem(
                20,
                ("mmap_touch --mutex", None),
                ("rwsem-steal", "rwsem-v8-no-optspin"),
                (-0.2, Some(1.0)),
                "No-optspin",
            ),
            rwsem(40, ("mmap_touch --mutex", None), ("rwsem-steal", "rwsem-v8"), (1.3, Some(0.7)), "all"),
            rwsem(
                40,
                ("mmap_touch --mutex", None),
                ("rwsem-steal", "rwsem-v8-no-optspin"),
                (0.4, Some(0.5)),
                "No-optspin",
            ),
        ],
        left_out: &[],
    },
    Table {
        name: "rwsem-2013-4-mutex-against-plain",
        about: "the same behind a mutex, on each kernel, against plain on the base",
        source: "seed 4, October 16, 2013; on a 4 socket Westmere (the author's mail of November 4), 40 cores (the cover letter)",
        cases: &[
            rwsem(
                1,
                ("mmap_touch", Some("mmap_touch --mutex")),
                ("rwsem-steal", "rwsem-steal"),
                (0.5, Some(0.9)),
                "vanilla",
            ),
            rwsem(
                1,
                ("mmap_touch", Some("mmap_touch --mutex")),
                ("rwsem-steal", "rwsem-v8"),
                (1.4, Some(0.9)),
                "Rwsem-all",
            ),
            rwsem(
                1,
                ("mmap_touch", Some("mmap_touch --mutex")),
                ("rwsem-steal", "rwsem-v8-no-optspin"),
                (-0.7, Some(1.0)),
                "No-optspin",
            ),
            rwsem(
                2,
                ("mmap_touch", Some("mmap_touch --mutex")),
                ("rwsem-steal", "rwsem-steal"),
                (-39.3, Some(1.0)),
                "vanilla",
            ),
            rwsem(
                2,
                ("mmap_touch", Some("mmap_touch --mutex")),
                ("rwsem-steal", "rwsem-v8"),
                (-38.7, Some(1.1)),
                "Rwsem-all",
            ),
            rwsem(
                2,
                ("mmap_touch", Some("mmap_touch --mutex")),
                ("rwsem-steal", "rwsem-v8-no-optspin"),
                (-39.6, Some(1.1)),
                "No-optspin",
            ),
            rwsem(
                3,
                ("mmap_touch", Some("mmap_touch --mutex")),
                ("rwsem-steal", "rwsem-steal"),
                (-52.6, Some(1.2)),
                "vanilla",
            ),
            rwsem(
                3,
                ("mmap_touch", Some("mmap_touch --mutex")),
                ("rwsem-steal", "rwsem-v8"),
                (-51.8, Some(0.7)),
                "Rwsem-all",
            ),
            rwsem(
                3,
                ("mmap_touch", Some("mmap_touch --mutex")),
                ("rwsem-steal", "rwsem-v8-no-optspin"),
                (-52.5, Some(0.7)),
                "No-optspin",
            ),
            rwsem(
                4,
                ("mmap_touch", Some("mmap_touch --mutex")),
                ("rwsem-steal", "rwsem-steal"),
                (-59.8, Some(0.8)),
                "vanilla",
            ),
            rwsem(
                4,
                ("mmap_touch", Some("mmap_touch --mutex")),
                ("rwsem-steal", "rwsem-v8"),
                (-59.2, Some(1.0)),
                "Rwsem-all",
            ),
            rwsem(
                4,
                ("mmap_touch", Some("mmap_touch --mutex")),
                ("rwsem-steal", "rwsem-v8-no-optspin"),
                (-59.9, Some(0.9)),
                "No-optspin",
            ),
            rwsem(
                5,
                ("mmap_touch", Some("mmap_touch --mutex")),
                ("rwsem-steal", "rwsem-steal"),
                (-63.5, Some(1.4)),
                "vanilla",
            ),
            rwsem(
                5,
                ("mmap_touch", Some("mmap_touch --mutex")),
                ("rwsem-steal", "rwsem-v8"),
                (-63.1, Some(1.4)),
                "Rwsem-all",
            ),
            rwsem(
                5,
                ("mmap_touch", Some("mmap_touch --mutex")),
                ("rwsem-steal", "rwsem-v8-no-optspin"),
                (-63.4, Some(1.0)),
                "No-optspin",
            ),
            rwsem(
                10,
                ("mmap_touch", Some("mmap_touch --mutex")),
                ("rwsem-steal", "rwsem-steal"),
                (-66.1, Some(1.3)),
                "vanilla",
            ),
            rwsem(
                10,
                ("mmap_touch", Some("mmap_touch --mutex")),
                ("rwsem-steal", "rwsem-v8"),
                (-65.6, Some(1.3)),
                "Rwsem-all",
            ),
            rwsem(
                10,
                ("mmap_touch", Some("mmap_touch --mutex")),
                ("rwsem-steal", "rwsem-v8-no-optspin"),
                (-66.2, Some(1.3)),
                "No-optspin",
            ),
            rwsem(
                20,
                ("mmap_touch", Some("mmap_touch --mutex")),
                ("rwsem-steal", "rwsem-steal"),
                (178.3, Some(0.9)),
                "vanilla",
            ),
            rwsem(
                20,
                ("mmap_touch", Some("mmap_touch --mutex")),
                ("rwsem-steal", "rwsem-v8"),
                (182.3, Some(1.0)),
                "Rwsem-all",
            ),
            rwsem(
                20,
                ("mmap_touch", Some("mmap_touch --mutex")),
                ("rwsem-steal", "rwsem-v8-no-optspin"),
                (177.7, Some(1.1)),
                "No-optspin",
            ),
            rwsem(
                40,
                ("mmap_touch", Some("mmap_touch --mutex")),
                ("rwsem-steal", "rwsem-steal"),
                (604.8, Some(1.1)),
                "vanilla",
            ),
            rwsem(
                40,
                ("mmap_touch", Some("mmap_touch --mutex")),
                ("rwsem-steal", "rwsem-v8"),
                (614.0, Some(1.0)),
                "Rwsem-all",
            ),
            rwsem(
                40,
                ("mmap_touch", Some("mmap_touch --mutex")),
                ("rwsem-steal", "rwsem-v8-no-optspin"),
                (607.9, Some(0.9)),
                "No-optspin",
            ),
        ],
        left_out: &[],
    },
];
