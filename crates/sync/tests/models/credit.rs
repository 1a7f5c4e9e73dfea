//! Credits: a limit is reached by whoever asks for the rest, and never passed, whatever the others hold.

use crate::{Body, race};
use faultless_platform::loom::Loom;
use faultless_platform::{Atomic, AtomicInteger, Ordering, Processor};
use faultless_sync::{Claim, Credit, Generation, Purses, RangeLock, RwSemaphore, Rwsem};

type Word = <Loom as Processor>::AtomicU64;
const NR_CPUS: usize = 2;
const LIMIT: u64 = 12;

struct Shared {
    lock: RangeLock<Loom, Rwsem<Loom>, 2>,
    words: [Word; NR_CPUS * Purses::<Loom>::WORDS_PER_CPU],
    charged: Word,
    /// What there is, counted beside.
    there: Word,
}

impl Shared {
    fn credit(&self) -> Credit<'_, Loom> {
        Purses::new(&self.words).credit(0, &self.charged)
    }

    /// Adds, if that keeps the limit: out of credits if those go so far, else having all. Says whether it did.
    fn add(&self, cpu: usize, amount: u64) -> bool {
        let start = 2 * cpu as u64;
        let (write, table) = self.lock.write_part(&mut |_| {
            let is_claimed = self.credit().claim(cpu, amount, LIMIT);
            is_claimed.then(|| Claim { start, end: start + 1, ..Claim::default() })
        });
        // Others claim, draw and give back between a claim and what it was for.
        drop(table);
        if !write.is_whole() {
            self.credit().add(cpu, amount);
            self.there.fetch_add(amount, Ordering::Relaxed);
            return true;
        }
        if self.credit().at_most(cpu) + amount > LIMIT {
            self.credit().recall();
        }
        let charged = self.charged.load(Ordering::Relaxed);
        if charged + amount > LIMIT {
            assert_eq!(self.credit().out(), 0, "refused while others hold credits");
            assert_eq!(charged, self.there.load(Ordering::Relaxed), "refused for what is not there");
            return false;
        }
        self.charged.store(charged + amount, Ordering::Relaxed);
        self.there.fetch_add(amount, Ordering::Relaxed);
        true
    }

    fn take_away(&self, cpu: usize, amount: u64) {
        let start = 2 * cpu as u64;
        let (write, table) = self.lock.write_part(&mut |_| Some(Claim { start, end: start + 1, ..Claim::default() }));
        drop(table);
        self.there.fetch_sub(amount, Ordering::Relaxed);
        if write.is_whole() {
            let charged = self.charged.load(Ordering::Relaxed);
            self.charged.store(charged - amount, Ordering::Relaxed);
        } else {
            self.credit().take_away(cpu, amount, 0, || LIMIT);
        }
    }
}

/// Each CPU has three and a credit of one, so that four are left, and a recall finds two more.
fn begun() -> Shared {
    let shared = Shared {
        lock: RangeLock::new(Rwsem::of(Generation::RWSEM_2012)),
        words: core::array::from_fn(|_| Word::new(0)),
        charged: Word::new(8),
        there: Word::new(6),
    };
    for cpu in 0..NR_CPUS {
        shared.words[cpu * Purses::<Loom>::WORDS_PER_CPU].store(1, Ordering::Relaxed);
    }
    shared.lock.write().divide();
    shared
}

fn add_two(shared: &Shared, cpu: usize) {
    assert!(shared.add(cpu, 2), "there is room for all");
}

fn add_six(shared: &Shared, cpu: usize) {
    shared.add(cpu, 6);
}

fn is(shared: &Shared, total: u64) {
    assert_eq!(shared.there.load(Ordering::Relaxed), total, "others were let in");
    assert_eq!(shared.credit().total(), total, "something was lost, or counted twice");
    assert!(shared.charged.load(Ordering::Relaxed) <= LIMIT, "more was drawn than the limit allows");
}

#[test]
pub fn what_both_draw_is_counted_once() {
    let bodies: [Body<Shared>; 2] = [|shared| add_two(shared, 0), |shared| add_two(shared, 1)];
    race(Some(3), begun, bodies, |shared| is(shared, 10));
}

#[test]
pub fn one_of_two_gets_the_last_room() {
    let bodies: [Body<Shared>; 2] = [|shared| add_six(shared, 0), |shared| add_six(shared, 1)];
    race(Some(3), begun, bodies, |shared| is(shared, LIMIT));
}

#[test]
pub fn a_recall_takes_nothing_that_was_claimed() {
    let bodies: [Body<Shared>; 2] = [|shared| _ = shared.add(0, 2), |shared| add_six(shared, 1)];
    race(Some(3), begun, bodies, |shared| {
        // Whoever is first: both do not fit.
        let total = shared.there.load(Ordering::Relaxed);
        assert!(total == 8 || total == LIMIT, "{total}");
        is(shared, total);
    });
}

#[test]
pub fn what_goes_beside_a_recall_is_counted() {
    let bodies: [Body<Shared>; 2] = [|shared| shared.take_away(0, 3), |shared| add_six(shared, 1)];
    race(Some(3), begun, bodies, |shared| is(shared, 9));
}
