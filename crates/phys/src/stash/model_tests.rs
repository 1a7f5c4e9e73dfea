//! The race tables under the loom checker. Things are indices into relaxed words: what a thing means is seen whole, or
//! the model shows an old value. Each word is bumped by whoever gets the thing, so that a thing that comes out twice
//! shows.

use super::*;
use crate::reserve::{Reserve, Span};
use faultless_platform::AtomicInteger;
use faultless_platform::loom::{Bounds, Loom, explore, start};
use std::rc::Rc;
use std::vec::Vec;

type Word = <Loom as Processor>::AtomicU64;

/// A stash, and what each of four things means.
struct World {
    stashes: [Stash<Loom>; 2],
    meanings: [Word; 4],
    flag: Word,
}

/// What a thing means once its maker has made it.
const MADE: u64 = 10;

fn world(room: usize) -> World {
    let word = || Word::new(0);
    World { stashes: [Stash::new(room), Stash::new(room)], meanings: [word(), word(), word(), word()], flag: word() }
}

impl World {
    /// Makes a thing and puts it in.
    fn make(&self, thing: usize) {
        self.meanings[thing].store(MADE, Ordering::Relaxed);
        self.stashes[0].push(thing);
    }

    /// Looks at what came out, and uses it up.
    fn use_up(&self, things: impl IntoIterator<Item = usize>) {
        for thing in things {
            let meaning = self.meanings[thing].load(Ordering::Relaxed);
            assert_eq!(meaning, MADE, "thing {thing} came out twice or unmade");
            self.meanings[thing].store(MADE + 1, Ordering::Relaxed);
        }
    }

    fn pop(&self) {
        self.note_order();
        self.use_up(self.stashes[0].pop());
        self.note_order();
    }

    fn steal(&self) {
        self.note_order();
        self.use_up(self.stashes[0].steal());
        self.note_order();
    }

    /// Tells the checker that it matters who comes first: it looks for conflicts of an atomic's last two accesses
    /// alone, and would miss that of the owner's look at `top` with a thief's claim, which a look of the thief's own
    /// precedes.
    fn note_order(&self) {
        // Relaxed: it hands nothing on, so it hides no missing ordering.
        self.flag.fetch_add(1, Ordering::Relaxed);
    }

    /// Takes what is left, and counts that each of `nr_made` things came out.
    fn settle(&self, nr_made: usize) {
        self.use_up(core::iter::from_fn(|| self.stashes[0].steal()));
        let nr_used = self.meanings.iter().filter(|word| word.load(Ordering::Relaxed) == MADE + 1).count();
        assert_eq!(nr_used, nr_made, "a thing was lost");
    }
}

type Body = fn(&World);

/// Explores the owner, who first makes `nr_before` things, beside thieves.
fn race<const N: usize>(preemptions: Option<usize>, nr_before: usize, nr_made: usize, owner: Body, thieves: [Body; N]) {
    let nr_runs = explore(Bounds { nr_cpus: N + 1, max_preemptions: preemptions }, move || {
        let world = Rc::new(world(2));
        (0..nr_before).for_each(|thing| world.make(thing));
        let others: Vec<_> = thieves
            .iter()
            .map(|&thief| {
                let world = Rc::clone(&world);
                start(move || thief(&world))
            })
            .collect();
        owner(&world);
        others.into_iter().for_each(|thief| thief.join().expect("a thief failed"));
        world.settle(nr_made);
    });
    assert!(nr_runs > 10, "{nr_runs} interleavings are no race");
}

#[test]
pub fn the_last_thing_goes_to_one() {
    race(None, 1, 1, World::pop, [World::steal]);
    race(Some(2), 1, 1, World::pop, [World::steal, World::steal]);
}

/// The table's case: the owner takes without a compare-and-swap what a thief may be after.
#[test]
pub fn two_things_go_to_one_each() {
    let steal_twice: Body = |world| {
        world.steal();
        world.steal();
    };
    race(None, 2, 2, World::pop, [steal_twice]);
    race(None, 2, 2, |world| world.use_up(world.stashes[0].pop_hot()), [steal_twice]);
    race(Some(2), 2, 2, World::pop, [World::steal, World::steal]);
}

#[test]
pub fn what_is_pushed_is_seen_whole() {
    let push_and_pop: Body = |world| {
        world.make(0);
        world.pop();
        world.make(1);
    };
    race(None, 0, 2, push_and_pop, [World::steal]);
    let push_two_and_pop: Body = |world| {
        world.make(0);
        world.make(1);
        world.pop();
    };
    race(None, 0, 2, push_two_and_pop, [World::steal]);
    race(Some(2), 0, 2, push_two_and_pop, [World::steal, World::steal]);
}

/// The ring has two entries: the third thing overwrites the first one's.
#[test]
pub fn an_entry_is_not_written_again_before_it_was_read() {
    let push_when_there_is_room: Body = |world| {
        world.note_order();
        if world.stashes[0].len() < 2 {
            world.make(2);
        } else {
            world.meanings[2].store(MADE + 1, Ordering::Relaxed);
        }
    };
    race(None, 2, 3, push_when_there_is_room, [World::steal]);
    race(Some(2), 2, 3, push_when_there_is_room, [World::steal, World::steal]);
}

#[test]
pub fn the_owner_sheds_while_others_steal() {
    let shed: Body = |world| {
        world.note_order();
        world.use_up(world.stashes[0].shed(2));
        world.note_order();
    };
    let shed_and_pop: Body = |world| {
        world.note_order();
        world.use_up(world.stashes[0].shed(1));
        world.pop();
    };
    race(None, 2, 2, shed, [World::steal]);
    race(Some(2), 2, 2, shed_and_pop, [World::steal, World::steal]);
}

/// One CPU frees a thing, and then another takes the last one elsewhere: at no instant is nothing free.
#[test]
pub fn a_search_that_fails_saw_an_instant_without_anything() {
    let nr_runs = explore(Bounds { nr_cpus: 3, max_preemptions: Some(4) }, || {
        let world = Rc::new(world(2));
        world.stashes[1].push(1);
        let (freeing, taking) = (Rc::clone(&world), Rc::clone(&world));
        let freer = start(move || {
            freeing.stashes[0].push(0);
            freeing.flag.store(1, Ordering::Release);
        });
        let taker = start(move || {
            if taking.flag.load(Ordering::Acquire) == 1 {
                taking.stashes[1].pop();
            }
        });
        let found = search(|| world.stashes.iter(), || None);
        assert!(found.is_some(), "something was free all the time");
        freer.join().expect("the freer failed");
        taker.join().expect("the taker failed");
    });
    assert!(nr_runs > 10, "{nr_runs} interleavings are no race");
}

/// A CPU with one thing, on the list or behind it.
struct Shelf {
    world: World,
    reserve: Reserve<Loom>,
}

impl Shelf {
    fn move_behind(&self) {
        let _moving = self.world.stashes[0].begin_move();
        let shed = self.world.stashes[0].shed(1).next();
        self.reserve.put(shed.map(|thing| Span { first: thing as u32, len: 1 }));
    }

    fn move_back(&self) {
        let _moving = self.world.stashes[0].begin_move();
        let mut batch = Batch::new();
        batch.fill(1, || self.reserve.take().map(|span| span.first as usize));
        self.world.stashes[0].push_batch(&batch);
    }

    fn search(&self) -> Option<usize> {
        search(|| self.world.stashes[..1].iter(), || self.reserve.take().map(|span| span.first as usize))
    }
}

/// Explores the owner, which moves its only thing, beside a searcher: the thing is somewhere all the time, and whole.
fn race_of_moves(before: fn(&Shelf), moves: fn(&Shelf)) {
    let nr_runs = explore(Bounds { nr_cpus: 2, max_preemptions: Some(3) }, move || {
        let shelf = Rc::new(Shelf { world: world(2), reserve: Reserve::new() });
        shelf.world.make(1);
        before(&shelf);
        let moving = Rc::clone(&shelf);
        let mover = start(move || moves(&moving));
        let found = shelf.search();
        assert!(found.is_some(), "something was free all the time");
        mover.join().expect("the mover failed");
        shelf.world.use_up(found);
    });
    assert!(nr_runs > 10, "{nr_runs} interleavings are no race");
}

#[test]
pub fn a_search_finds_what_is_put_behind_the_list() {
    race_of_moves(|_| (), Shelf::move_behind);
}

#[test]
pub fn a_search_finds_what_comes_back_onto_the_list() {
    race_of_moves(Shelf::move_behind, Shelf::move_back);
}
