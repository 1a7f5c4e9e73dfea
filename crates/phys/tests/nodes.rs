//! NUMA nodes: where frames come from, where they go back to, and that none is refused while one is free anywhere.

mod support;

use faultless_explore::{self as explore, Explore, Random, Switch};
use faultless_phys::{Memory, NoReclaim, NodeStats, Options, Pfn, Policy};
use faultless_platform::native::{Machine, Native};
use faultless_platform::{NodeSet, Nodes, PAGE_BYTES, Platform, Processor, Threads};
use std::sync::Mutex;
use support::shaky::Shaky;
use support::{Dice, World, narrow};

type NativeWorld = World<Native>;

/// CPU 0 is of node 0, CPU 1 of node 1, and so on, round and round.
fn in_turn(nr_nodes: usize) -> Nodes {
    Nodes::new(nr_nodes, |cpu| cpu % nr_nodes, |from, to| 10 * from.abs_diff(to) as u8 + 10)
}

fn bound_to(node: usize) -> Policy {
    Policy::Bind { nodes: NodeSet::of([node]) }
}

/// Takes all that a policy allows.
fn take_all_by<P: Platform>(memory: &Memory<P>, policy: Policy) -> Vec<Pfn> {
    std::iter::from_fn(|| memory.try_alloc_by(policy).ok()).collect()
}

fn nr_free<P: Platform>(memory: &Memory<P>) -> Vec<usize> {
    (0..memory.nr_nodes()).map(|node| memory.node_stats(node).nr_free).collect()
}

/// Says what is wrong of a memory of which nothing is in use: a frame is missing, or on another node than its own.
fn judge_unused<P: Platform>(memory: &Memory<P>) -> Result<(), String> {
    let audit = memory.audit();
    if !audit.is_clean() || memory.nr_free() != memory.nr_frames() {
        return Err(format!("{audit}, of {} frames", memory.nr_frames()));
    }
    for node in 0..memory.nr_nodes() {
        let (frames, NodeStats { nr_frames, .. }) = (take_all_by(memory, bound_to(node)), memory.node_stats(node));
        let nr_there = frames.iter().filter(|&&pfn| memory.node_of(pfn) == node).count();
        if (frames.len(), nr_there) != (nr_frames, nr_frames) {
            return Err(format!("node {node} gives out {}, {nr_there} its own, of {nr_frames}", frames.len()));
        }
        frames.into_iter().for_each(|pfn| free(memory, pfn));
    }
    Ok(())
}

fn free<P: Platform>(memory: &Memory<P>, pfn: Pfn) {
    // SAFETY: the tests own what they free and use it no more.
    unsafe { memory.free(pfn) };
}

#[test]
fn a_cpu_takes_from_its_own_node_and_then_from_the_nearest() {
    let (nodes, machine) = (in_turn(4), Machine::new(4));
    let world = NativeWorld::with_nodes(400, 4, &nodes, Options::default());
    machine.attach(|| {
        let order: Vec<usize> = world.take_all().into_iter().map(|pfn| world.memory.node_of(pfn)).collect();
        assert_eq!(order.len(), 400);
        assert!(order.is_sorted(), "node 0 first, node 3 last");
        let stats: Vec<_> = (0..4).map(|node| world.memory.node_stats(node)).collect();
        let counts = |node: usize| (stats[node].nr_hits, stats[node].nr_misses, stats[node].nr_foreign);
        let nr_own = stats[0].nr_frames as u64;
        assert_eq!(counts(0), (nr_own, 0, 400 - nr_own));
        assert!((1..4).all(|node| counts(node) == (0, stats[node].nr_frames as u64, 0)), "{stats:?}");
    });
}

#[test]
fn a_frame_goes_home_whoever_frees_it() {
    for options in [narrow(), Options::default()] {
        let (nodes, machine) = (in_turn(2), Machine::new(2));
        let world = NativeWorld::with_nodes(900, 2, &nodes, options);
        machine.attach(|| {
            let far = take_all_by(&world.memory, bound_to(1));
            assert_eq!(nr_free(&world.memory)[1], 0);
            world.free_all(far);
            judge_unused(&world.memory).expect("all are home");
        });
    }
}

#[test]
fn a_cpu_keeps_few_frames_of_other_nodes() {
    let nodes = in_turn(8);
    let world = NativeWorld::with_nodes(80_000, 1, &nodes, Options::default());
    Machine::new(1).attach(|| {
        for _ in 0..3 {
            let frames = world.take_all();
            assert_eq!(frames.len(), 80_000);
            world.free_all(frames);
        }
        let before = nr_free(&world.memory);
        // What a CPU keeps is not in the zones; a zone that is asked for one large row after another shows what it has.
        let rows: Vec<Pfn> = std::iter::from_fn(|| {
            world.memory.alloc_order_by(8, Policy::Bind { nodes: NodeSet::of(1..8) }, &NoReclaim).ok()
        })
        .collect();
        assert!(rows.len() >= 7 * (before[1] / 256 - 1), "{} rows of 256 frames", rows.len());
        // SAFETY: taken above.
        rows.into_iter().for_each(|pfn| unsafe { world.memory.free_order(pfn, 8) });
        judge_unused(&world.memory).expect("rows go home, too");
    });
}

#[test]
fn rows_fall_back_are_bound_and_go_home() {
    let (nodes, machine) = (in_turn(2), Machine::new(1));
    let world = NativeWorld::with_nodes(512, 1, &nodes, Options::default());
    machine.attach(|| {
        let memory = &world.memory;
        let rows: Vec<Pfn> = std::iter::from_fn(|| memory.alloc_order(4).ok()).collect();
        let on = |node: usize| rows.iter().filter(|&&pfn| memory.node_of(pfn) == node).count();
        assert!(on(0) >= 14 && on(1) >= 14, "{} and {}", on(0), on(1));
        let stats = memory.node_stats(1);
        assert_eq!((stats.nr_hits, stats.nr_misses), (0, on(1) as u64));
        let refusal = memory.alloc_order_by(4, bound_to(1), &NoReclaim).expect_err("all are taken");
        assert_eq!((refusal.order(), refusal.nr_frames()), (4, stats.nr_frames));
        // SAFETY: taken above.
        rows.into_iter().for_each(|pfn| unsafe { memory.free_order(pfn, 4) });
        assert_eq!(memory.node_of(memory.alloc_order_by(4, bound_to(1), &NoReclaim).expect("free again")), 1);
    });
}

/// A row is made from frames on another CPU's list of a third node.
#[test]
fn a_row_is_made_from_what_lies_on_any_list() {
    let (nodes, machine) = (in_turn(2), Machine::new(1));
    let world = NativeWorld::with_nodes(16, 1, &nodes, Options::default());
    machine.attach(|| {
        let frames = world.take_all();
        world.free_all(frames);
        let row = world.memory.alloc_order_by(2, bound_to(1), &NoReclaim).expect("eight in a row hold an aligned four");
        assert_eq!(world.memory.node_of(row), 1);
    });
}

#[test]
fn a_bound_allocation_fails_although_another_node_has_frames() {
    let (nodes, machine) = (in_turn(2), Machine::new(2));
    let world = NativeWorld::with_nodes(100, 2, &nodes, narrow());
    machine.attach(|| {
        let far = take_all_by(&world.memory, bound_to(1));
        let refusal = world.memory.alloc_by(bound_to(1)).expect_err("node 1 is empty");
        assert_eq!(refusal.nr_frames(), far.len());
        assert!(world.memory.alloc().is_ok(), "node 0 is not");
        assert!(world.memory.alloc_by(Policy::Bind { nodes: NodeSet::default() }).is_err(), "no node at all");
        assert!(world.memory.alloc_by(bound_to(63)).is_err(), "no such node");
        world.free_all([far[0]]);
        assert_eq!(world.memory.alloc_by(bound_to(1)), Ok(far[0]));
    });
}

#[test]
fn every_place_is_one_nodes() {
    let world = NativeWorld::with_nodes(700, 2, &in_turn(3), Options::default());
    let mut places = Vec::new();
    world.memory.for_each_place(|node, start, len_bytes| places.push((start.addr(), len_bytes, node)));
    let node_at = |address: usize| {
        let holds = |&&(start, len_bytes, _): &&(usize, usize, usize)| (start..start + len_bytes).contains(&address);
        places.iter().filter(holds).map(|place| place.2).collect::<Vec<_>>()
    };
    Machine::new(1).attach(|| {
        for pfn in world.take_all() {
            let (frame, page) = (world.memory.frame(pfn).addr(), std::ptr::from_ref(world.memory.page(pfn)).addr());
            let node = world.memory.node_of(pfn);
            assert_eq!((node_at(frame + PAGE_BYTES - 1), node_at(page)), (vec![node], vec![node]), "{pfn}");
        }
    });
}

/// What a random policy, and what is known of each node, should come to.
fn random_policy(dice: &mut Dice, nr_nodes: usize) -> Policy {
    let nodes = NodeSet::of((0..nr_nodes).filter(|_| dice.roll(2) == 0));
    match dice.roll(3) {
        0 => Policy::Local,
        1 => Policy::Interleave { nodes, turn: dice.roll(100) as u64 },
        _ => Policy::Bind { nodes },
    }
}

/// A node's counts, as a plain model has them.
#[derive(Clone, Copy, Default, PartialEq, Debug)]
struct Counts {
    hits: u64,
    misses: u64,
    foreign: u64,
}

/// The node that a policy wants, on a CPU of node 0 to which node 1 is nearer than node 2.
fn wanted(policy: Policy) -> Option<usize> {
    match policy {
        Policy::Local => Some(0),
        Policy::Interleave { nodes, turn } => {
            let nodes: Vec<usize> = nodes.iter().collect();
            Some(if nodes.is_empty() { 0 } else { nodes[turn as usize % nodes.len()] })
        }
        Policy::Bind { nodes } => nodes.iter().next(),
    }
}

#[test]
fn counts_and_policies_hold_whatever_is_asked() {
    let (nodes, machine) = (in_turn(3), Machine::new(1));
    for seed in 0..if cfg!(miri) { 1 } else { 30 } {
        let mut dice = Dice(seed);
        let options = if seed % 2 == 0 { narrow() } else { Options::default() };
        let world = NativeWorld::with_nodes(90, 1, &nodes, options);
        let memory = &world.memory;
        let (mut held, mut counts) = (Vec::new(), [Counts::default(); 3]);
        machine.attach(|| {
            for _ in 0..600 {
                if dice.roll(5) < 2 && !held.is_empty() {
                    free(memory, held.swap_remove(dice.roll(held.len())));
                    continue;
                }
                let policy = random_policy(&mut dice, 3);
                let before = nr_free(memory);
                let allowed = |node: usize| !matches!(policy, Policy::Bind { nodes } if !nodes.contains(node));
                let Ok(pfn) = memory.try_alloc_by(policy) else {
                    assert!((0..3).all(|node| !allowed(node) || before[node] == 0), "{policy:?} of {before:?}");
                    continue;
                };
                let (got, want) = (memory.node_of(pfn), wanted(policy).expect("it was served"));
                assert!(allowed(got), "{policy:?} got node {got}");
                assert!(got == want || before[want] == 0, "{policy:?} got node {got} of {before:?}");
                counts[got].hits += u64::from(got == want);
                counts[got].misses += u64::from(got != want);
                counts[want].foreign += u64::from(got != want);
                held.push(pfn);
            }
            for (node, expected) in counts.into_iter().enumerate() {
                let NodeStats { nr_hits, nr_misses, nr_foreign, .. } = memory.node_stats(node);
                assert_eq!(Counts { hits: nr_hits, misses: nr_misses, foreign: nr_foreign }, expected, "node {node}");
            }
            world.free_all(held);
            judge_unused(memory).expect("everything was given back");
        });
    }
}

const EACH: usize = 5;

/// Threads that each take at most their share, from anywhere; so nobody may ever be refused. Each frees what it has
/// got from another.
fn nobody_is_refused<P: Threads>(machine: &P::Machine, nr_threads: usize, options: Options, rounds: usize) {
    let world = World::<P>::with_nodes(nr_threads * EACH, 2, &in_turn(2), options);
    let hands: Vec<Mutex<Vec<Pfn>>> = (0..nr_threads).map(|_| Mutex::default()).collect();
    P::run(machine, nr_threads, &|thread| {
        let mut dice = Dice(thread as u64);
        for round in 0..if cfg!(miri) { 25 } else { rounds } {
            P::enter();
            let mine = |act: &mut dyn FnMut(&mut Vec<Pfn>)| act(&mut hands[thread].lock().expect("no panic"));
            let takes = dice.roll(3) != 0;
            mine(&mut |held| {
                if held.len() < EACH && takes {
                    let turn = round as u64;
                    held.push(
                        world.memory.try_alloc_by(Policy::Interleave { nodes: NodeSet::ALL, turn }).expect("free"),
                    );
                } else if let Some(pfn) = held.pop() {
                    free(&world.memory, pfn);
                }
            });
            P::leave();
        }
        P::enter();
        hands[thread].lock().expect("no panic").drain(..).for_each(|pfn| free(&world.memory, pfn));
        P::leave();
    });
    P::run(machine, 1, &|_| {
        P::enter();
        judge_unused(&world.memory).expect("everything was given back");
        P::leave();
    });
}

#[test]
fn nobody_is_refused_while_a_frame_is_free_on_any_node() {
    nobody_is_refused::<Native>(&Machine::new(2), 4, narrow(), 3_000);
    nobody_is_refused::<Shaky>(&Machine::new(2), 3, narrow(), 1_500);
}

/// Memory runs out under four threads, again and again, and is whole afterwards.
#[test]
fn exhaustion_and_recovery_under_four_threads() {
    let machine = Machine::new(4);
    let world = NativeWorld::with_nodes(300, 4, &in_turn(2), narrow());
    Native::run(&machine, 4, &|thread| {
        let policies = [Policy::Local, bound_to(thread % 2), bound_to(1 - thread % 2)];
        for round in 0..if cfg!(miri) { 2 } else { 60 } {
            Native::enter();
            let frames = take_all_by(&world.memory, policies[round % 3]);
            world.free_all(frames);
            Native::leave();
        }
    });
    machine.attach(|| judge_unused(&world.memory)).expect("everything was given back");
}

/// What a thread of a small world does with at most one frame at a time.
#[derive(Clone, Copy, Debug)]
enum Step {
    /// Takes a frame; there always is one.
    Take(Policy),
    /// Frees the frame.
    Free,
    /// Leaves the frame for whoever takes up the next.
    Hand,
    /// Takes a frame up that was left, if there is one.
    TakeUp,
}

const CPUS: usize = 3;

/// Three CPUs on two nodes, lists of two, and as many frames as CPUs: whoever has none can take one.
fn play(machine: &explore::Machine, programs: &[Vec<Step>; CPUS], policy: explore::Policy) -> Result<(), String> {
    let options = Options { list_high: 2, list_batch: 1, ..Options::default() };
    let world = World::<Explore>::with_nodes(CPUS, CPUS, &in_turn(2), options);
    let memory = &world.memory;
    let (left, wrong) = (Mutex::new(Vec::new()), Mutex::new(None));
    let run = machine.explore(CPUS, policy, &|cpu| {
        Explore::enter();
        let mut held = None;
        for &step in &programs[cpu] {
            match step {
                Step::Take(policy) if held.is_none() => {
                    let taken = memory.try_alloc_by(policy);
                    let Ok(pfn) = taken else {
                        wrong.lock().expect("one thread").get_or_insert(format!("CPU {cpu} is refused {policy:?}"));
                        break;
                    };
                    held = Some(pfn);
                }
                Step::Free => held.take().into_iter().for_each(|pfn| free(memory, pfn)),
                Step::Hand => left.lock().expect("one thread").extend(held.take().map(|pfn| (pfn, cpu))),
                Step::TakeUp if held.is_none() => held = left.lock().expect("one thread").pop().map(|(pfn, _)| pfn),
                Step::Take(_) | Step::TakeUp => (),
            }
        }
        held.into_iter().for_each(|pfn| free(memory, pfn));
        Explore::leave();
    });
    run.outcome.map_err(|failure| failure.message)?;
    if let Some(wrong) = wrong.into_inner().expect("one thread") {
        return Err(wrong);
    }
    let result = Mutex::new(Ok(()));
    let settled = machine.explore(1, explore::Policy::in_turn(0), &|_| {
        Explore::enter();
        left.lock().expect("one thread").drain(..).for_each(|(pfn, _)| free(memory, pfn));
        *result.lock().expect("one thread") = judge_unused(memory);
        Explore::leave();
    });
    settled.outcome.map_err(|failure| failure.message)?;
    result.into_inner().expect("one thread")
}

/// Draws what each CPU does: takes, frees, and frames that go from hand to hand, so that others free them.
fn draw(random: &mut Random) -> [Vec<Step>; CPUS] {
    let interleaved = Policy::Interleave { nodes: NodeSet::ALL, turn: random.below(2) };
    let kinds = [
        Step::Take(Policy::Local),
        Step::Take(interleaved),
        Step::Take(Policy::Local),
        Step::Free,
        Step::Free,
        Step::Hand,
        Step::TakeUp,
    ];
    std::array::from_fn(|_| (0..8).map(|_| *random.one_of(&kinds)).collect())
}

/// A frame that was handed on and not taken up is nobody's: a CPU more may have taken one meanwhile than there are
/// frames.
fn is_fair(programs: &[Vec<Step>; CPUS]) -> bool {
    !programs.iter().flatten().any(|step| matches!(step, Step::Hand))
}

#[test]
fn small_worlds_of_two_nodes_and_lists_of_two() {
    let machine = explore::Machine::new(CPUS);
    let mut nr_fair = 0;
    for seed in 0..6000_u64 {
        let mut random = Random::new(seed);
        let mut programs = draw(&mut random);
        if seed % 2 == 0 {
            programs.iter_mut().flatten().for_each(|step| {
                if matches!(step, Step::Hand) {
                    *step = Step::Free;
                }
            });
        }
        let fair = is_fair(&programs);
        nr_fair += usize::from(fair);
        let policy = if random.one_in(2) {
            explore::Policy::Random { seed, period: 1 + random.below(8) }
        } else {
            let mut order: Vec<usize> = (0..CPUS).collect();
            order.rotate_left(random.below(CPUS as u64) as usize);
            let drops = (0..3).map(|_| (random.below(CPUS as u64) as usize, random.below(400))).collect();
            explore::Policy::Priorities { order, drops }
        };
        match play(&machine, &programs, policy.clone()) {
            Err(wrong) if fair || !wrong.contains("is refused") => {
                panic!("seed {seed}: {wrong}\n{policy:?}\n{programs:?}")
            }
            _ => (),
        }
    }
    assert!(nr_fair >= 3000, "{nr_fair} worlds in which nobody may be refused");
}

/// The table of `phys::zones`: while CPU 0 looks for a frame, CPU 1 frees one of `freed_on`, and then CPU 2 takes the
/// last of the other node, wherever CPU 0 has come to.
fn searched_beside_a_free_and_a_take(freed_on: usize) {
    let machine = explore::Machine::new(CPUS);
    let options = Options { list_high: 2, list_batch: 1, ..Options::default() };
    let mut step = 1;
    loop {
        let world = World::<Explore>::with_nodes(4, CPUS, &in_turn(2), options);
        let memory = &world.memory;
        let (hands, found): ([Mutex<Option<Pfn>>; 2], _) = (Default::default(), Mutex::new(None));
        // CPU 2 has the last free frame on its list, CPU 1 the one that it will free in its hand.
        let prepared = machine.explore(CPUS, explore::Policy::in_turn(0), &|cpu| {
            Explore::enter();
            if cpu == 0 {
                *hands[0].lock().expect("one thread") = take_all_by(memory, bound_to(freed_on)).pop();
                *hands[1].lock().expect("one thread") = take_all_by(memory, bound_to(1 - freed_on)).pop();
            } else if cpu == 2 {
                free(memory, hands[1].lock().expect("one thread").take().expect("each node has frames"));
            }
            Explore::leave();
        });
        prepared.outcome.unwrap_or_else(|failure| panic!("{}", failure.message));
        let switches = vec![Switch { from: 0, step, to: 1 }];
        let run = machine.explore(CPUS, explore::Policy::Replay { first: 0, switches }, &|cpu| {
            Explore::enter();
            match cpu {
                0 => *found.lock().expect("one thread") = memory.try_alloc().ok(),
                1 => free(memory, hands[0].lock().expect("one thread").take().expect("put there")),
                _ => drop(memory.try_alloc_by(bound_to(1 - freed_on))),
            }
            Explore::leave();
        });
        run.outcome.unwrap_or_else(|failure| panic!("step {step}: {}", failure.message));
        assert!(found.into_inner().expect("one thread").is_some(), "step {step}: a frame was free all the time");
        step += 1;
        if step > run.steps[0] {
            break;
        }
    }
    assert!(step > 100, "{step} steps are no search");
}

#[test]
fn a_frame_that_is_freed_on_a_node_that_was_searched_already_is_found() {
    searched_beside_a_free_and_a_take(0);
    searched_beside_a_free_and_a_take(1);
}
