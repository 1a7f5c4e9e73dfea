//! What the fast paths cost, counted: the figures are promises of the module docs.

use faultless_platform::Processor;
use faultless_platform::count::{Count, Figures, Machine};
use faultless_sync::{
    AtomicCpuSet, Generation, Patches, PerCpuCounter, RawSpinLock, Rcu, Rules, RwSemaphore, RwSpinLock, SEMAPHORES,
    SemaphoreVisitor, SeqCount, with_semaphore,
};

/// Returns what `act` costs on a machine of two, after `act` has run once on each slot.
fn cost(act: impl Fn() + Sync) -> Figures {
    let machine = Machine::new(2);
    machine.attach(|| {
        std::thread::scope(|scope| {
            scope.spawn(|| machine.attach(|| assert_eq!((Count::cpu(), act()), (1, ()))));
        });
        act();
        let before = machine.figures(0);
        act();
        machine.figures(0) - before
    })
}

struct Uncontended;

impl SemaphoreVisitor<Count> for Uncontended {
    type Output = (Figures, Figures);
    fn visit<S: RwSemaphore<Count>>(self, generation: S::Generation) -> (Figures, Figures) {
        let lock = S::of(generation);
        (cost(|| drop(lock.read())), cost(|| drop(lock.write())))
    }
}

#[test]
fn an_uncontended_semaphore_costs_one_read_modify_write_each_way() {
    for name in SEMAPHORES {
        let (read, write) = with_semaphore(name, Uncontended).expect("registered");
        let generation = Generation::named(name).expect("registered");
        if generation.follows(Rules::BRAVO) {
            // `cost` warms the lock up, which turns the bias on. A place of the table, whose taking is the fence, and
            // two looks; the word is not touched.
            assert_eq!((read.read_modify_writes, read.atomics, read.fences), (2, 4, 0), "{name}");
            continue;
        }
        // One whose readers may go ahead after a writer looks who was the last owner.
        let looks = u64::from(generation.follows(Rules::HANDOFF));
        assert_eq!((read.read_modify_writes, read.atomics, read.fences), (2, 2 + looks, 0), "{name}");
        // One that says who owns it writes that down beside the word.
        let notes = write.atomics - write.read_modify_writes;
        assert_eq!((write.read_modify_writes, write.fences), (2, 0), "{name}");
        let says = generation.has(Patches::OPTIMISTIC_SPIN) || generation.follows(Rules::PHASE_FAIR);
        assert!(notes == if says { 2 } else { 0 }, "{name}: {notes} notes");
    }
}

#[test]
fn spin_locks_cost_one_read_modify_write_and_a_store() {
    let (raw, rw) = (RawSpinLock::<Count>::new(), RwSpinLock::<Count>::new());
    let figures = cost(|| drop(raw.guard()));
    assert_eq!((figures.read_modify_writes, figures.atomics), (1, 2));
    let figures = cost(|| drop(rw.read()));
    assert_eq!((figures.read_modify_writes, figures.atomics), (2, 2));
}

#[test]
fn an_rcu_read_section_writes_no_line_of_others() {
    let rcu = Rcu::<Count>::new(2);
    let figures = cost(|| drop(rcu.read()));
    assert_eq!(
        figures,
        Figures { atomics: 4, read_modify_writes: 0, fences: 1, shared_writes: 0, ..Figures::default() }
    );
    let inner = {
        let machine = Machine::new(1);
        machine.attach(|| {
            let _outer = rcu.read();
            let before = machine.figures(0);
            drop(rcu.read());
            machine.figures(0) - before
        })
    };
    assert_eq!(inner.fences, 0, "an inner section needs no fence");
    assert_eq!(cost(|| rcu.poll()), Figures { atomics: 1, ..Figures::default() });
}

#[test]
fn reading_a_sequence_count_writes_nothing() {
    let count = SeqCount::<Count>::new();
    let figures = cost(|| assert!(count.is_unchanged(count.read())));
    assert_eq!(figures, Figures { atomics: 2, fences: 1, ..Figures::default() });
}

#[test]
fn counting_stays_on_the_own_line() {
    let counter = PerCpuCounter::<Count>::new(2);
    let figures = cost(|| counter.add(1));
    assert_eq!(figures, Figures { atomics: 2, ..Figures::default() });
}

#[test]
fn a_member_of_a_cpu_set_is_inserted_by_a_look() {
    let set = AtomicCpuSet::<Count>::new();
    let figures = cost(|| _ = set.insert(Count::cpu()));
    assert_eq!(figures, Figures { atomics: 1, ..Figures::default() });
    // Nor does one who is none, who is removed.
    let figures = cost(|| _ = set.remove(100 + Count::cpu()));
    assert_eq!(figures, Figures { atomics: 1, ..Figures::default() });
}
