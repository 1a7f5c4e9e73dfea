//! The stack of chains under the loom checker. What a frame means is seen whole, or the model shows an old value; a
//! frame that comes out twice or never shows at the end.

use super::*;
use faultless_platform::AtomicInteger;
use faultless_platform::loom::{Bounds, Loom, explore, start};
use std::rc::Rc;

type Word = <Loom as Processor>::AtomicU64;

/// What a frame means once its owner has freed it, and once somebody has got it.
const FREED: u64 = 10;
const USED: u64 = 11;
const NR_FRAMES: usize = 4;

struct World {
    stack: ChainStack<Loom>,
    links: [[Word; 2]; NR_FRAMES],
    meanings: [Word; NR_FRAMES],
    /// Written by all: see `World::note_order`.
    order: Word,
}

impl Links<Loom> for World {
    fn links_of(&self, thing: usize) -> &[Word; 2] {
        &self.links[thing]
    }
}

impl World {
    fn new() -> Self {
        let word = |_| Word::new(0);
        Self {
            stack: ChainStack::new(),
            links: core::array::from_fn(|_| core::array::from_fn(word)),
            meanings: core::array::from_fn(word),
            order: Word::new(0),
        }
    }

    /// Frees some frames in one chain.
    fn free<const N: usize>(&self, things: [usize; N]) {
        things.iter().for_each(|&thing| self.meanings[thing].store(FREED, Ordering::Relaxed));
        let chain = self.chain(things.into_iter(), None).expect("a chain of some");
        self.note_order();
        self.stack.push(self, chain);
    }

    /// Takes a chain off, and uses its frames.
    fn take(&self) {
        self.note_order();
        let mut chain = self.stack.pop(self);
        while let Some((first, rest)) = chain.map(|chain| self.split_first(chain)) {
            self.use_up(first);
            chain = rest;
        }
    }

    /// Takes a chain off, uses its first frame, and puts the others back, as `Zone::take_reserved` does.
    fn take_one(&self) {
        self.note_order();
        let Some((first, rest)) = self.stack.pop(self).map(|chain| self.split_first(chain)) else { return };
        self.use_up(first);
        rest.into_iter().for_each(|rest| self.stack.push(self, rest));
    }

    fn use_up(&self, thing: usize) {
        let meaning = self.meanings[thing].load(Ordering::Relaxed);
        assert_eq!(meaning, FREED, "frame {thing} came out twice or before it was freed");
        self.meanings[thing].store(USED, Ordering::Relaxed);
    }

    /// Tells the checker that it matters who comes first.
    fn note_order(&self) {
        // Relaxed: it hands nothing on, so it hides no missing ordering.
        self.order.fetch_add(1, Ordering::Relaxed);
    }

    /// Takes what is left, and counts that each of `nr_freed` frames came out.
    fn settle(&self, nr_freed: usize) {
        let nr_used = || self.meanings.iter().filter(|word| word.load(Ordering::Relaxed) == USED).count();
        assert_eq!(self.stack.nr_frames() + nr_used(), nr_freed, "the stack counts its frames");
        while self.stack.nr_frames() > 0 {
            self.take();
        }
        assert_eq!(nr_used(), nr_freed, "a frame was lost");
    }
}

type Body = fn(&World);

/// Explores one who takes beside others who free.
fn race<const N: usize>(preemptions: Option<usize>, nr_freed: usize, before: Body, taker: Body, freers: [Body; N]) {
    let nr_runs = explore(Bounds { nr_cpus: N + 1, max_preemptions: preemptions }, move || {
        let world = Rc::new(World::new());
        before(&world);
        let others = freers.map(|freer| {
            let world = Rc::clone(&world);
            start(move || freer(&world))
        });
        taker(&world);
        others.into_iter().for_each(|freer| freer.join().expect("a freer failed"));
        world.settle(nr_freed);
    });
    assert!(nr_runs > 10, "{nr_runs} interleavings are no race");
}

fn take_twice(world: &World) {
    world.take();
    world.take();
}

#[test]
pub fn a_chain_that_is_taken_is_seen_whole() {
    race(None, 2, |_| (), take_twice, [|world| world.free([0, 1])]);
}

#[test]
pub fn chains_of_two_cpus_come_out_once() {
    race(Some(3), 3, |_| (), take_twice, [|world| world.free([0, 1]), |world| world.free([2])]);
    race(Some(3), 3, |world| world.free([0]), World::take, [|world| world.free([1]), |world| world.free([2])]);
}

/// The top becomes another chain and the old one again only through the one who takes.
#[test]
pub fn what_is_put_back_is_not_lost_beside_another_chain() {
    let take_one_twice: Body = |world| {
        world.take_one();
        world.take_one();
    };
    race(Some(3), 4, |world| world.free([0, 1, 2]), take_one_twice, [|world| world.free([3])]);
}
