//! Threads that take, share, pass on, defer and free frames, more of them than CPUs, at the edge of memory.

mod support;

use faultless_phys::{Memory, Pfn};
use faultless_platform::native::{Machine, Native};
use faultless_platform::{PAGE_BYTES, Processor, Threads};
use std::sync::Mutex;
use support::{Dice, World, narrow};

const THREADS: usize = 4;
const FRAMES: usize = if cfg!(miri) { 300 } else { 400 };

/// Frames on their way from one thread to another, with the mark that fills them.
type Belt = Mutex<Vec<(Pfn, u8)>>;

struct Worker<'a> {
    memory: &'a Memory<Native>,
    belt: &'a Belt,
    dice: Dice,
    held: Vec<(Pfn, u8, u8)>,
    mark: u8,
    nr_refused: usize,
}

impl Worker<'_> {
    fn step(&mut self) {
        match self.dice.roll(10) {
            0..=3 => self.take(0),
            4 => {
                let order = 1 + self.dice.roll(4) as u8;
                self.take(order);
            }
            5 => self.pass_on(),
            6 => self.accept(),
            7 => self.share(),
            _ => self.free(),
        }
        if self.dice.roll(200) == 0 {
            self.memory.drain_cpu_lists();
        }
        self.memory.rcu().poll();
    }

    fn take(&mut self, order: u8) {
        let result = if order == 0 { self.memory.alloc() } else { self.memory.alloc_order(order) };
        let Ok(pfn) = result else {
            self.nr_refused += 1;
            return self.free();
        };
        self.mark = self.mark.wrapping_mul(5).wrapping_add(11);
        // SAFETY: ours.
        unsafe { self.memory.frame(pfn).write_bytes(self.mark, PAGE_BYTES << order) };
        self.held.push((pfn, order, self.mark));
    }

    fn pick(&mut self) -> Option<(Pfn, u8, u8)> {
        if self.held.is_empty() {
            return None;
        }
        let which = self.dice.roll(self.held.len());
        Some(self.held.swap_remove(which))
    }

    fn check(&self, pfn: Pfn, order: u8, mark: u8) {
        let frame = self.memory.frame(pfn);
        let is_whole = (0..PAGE_BYTES << order).step_by(64).all(|byte| {
            // SAFETY: the frame is ours, or we have a reference to it.
            unsafe { frame.add(byte).read() == mark }
        });
        assert!(is_whole, "{pfn} has two owners");
    }

    fn pass_on(&mut self) {
        match self.pick() {
            Some((pfn, 0, mark)) => self.belt.lock().expect("no panic").push((pfn, mark)),
            Some(row) => self.held.push(row),
            None => (),
        }
    }

    fn accept(&mut self) {
        let passed = self.belt.lock().expect("no panic").pop();
        self.held.extend(passed.map(|(pfn, mark)| (pfn, 0, mark)));
    }

    /// Takes a second reference, and puts both; the frame goes with the last.
    fn share(&mut self) {
        let Some((pfn, order, mark)) = self.pick() else { return };
        if order != 0 || !self.memory.page(pfn).try_get() {
            return self.held.push((pfn, order, mark));
        }
        // SAFETY: the first of two references.
        assert!(!unsafe { self.memory.put(pfn) });
        self.check(pfn, 0, mark);
        // SAFETY: the last one; not used any more.
        assert!(unsafe { self.memory.put(pfn) });
    }

    fn free(&mut self) {
        let Some((pfn, order, mark)) = self.pick() else { return };
        self.check(pfn, order, mark);
        match (order, self.dice.roll(4)) {
            // SAFETY: ours, and not used any more.
            (0, 0) => unsafe { self.memory.free_deferred(pfn) },
            // SAFETY: as above.
            _ => unsafe { self.memory.free_order(pfn, order) },
        }
    }
}

#[test]
fn frames_have_one_owner_and_none_is_lost() {
    let (world, machine, belt) = (World::<Native>::new(FRAMES, 2, narrow()), Machine::new(2), Belt::default());
    let nr_refused = Mutex::new(0);
    Native::run(&machine, THREADS, &|thread| {
        let (memory, dice) = (&world.memory, Dice(thread as u64));
        let mut worker = Worker { memory, belt: &belt, dice, held: Vec::new(), mark: thread as u8, nr_refused: 0 };
        for _ in 0..if cfg!(miri) { 60 } else { 60_000 } {
            Native::enter();
            worker.step();
            Native::leave();
        }
        Native::enter();
        (0..worker.held.len()).for_each(|_| worker.free());
        *nr_refused.lock().expect("no panic") += worker.nr_refused;
        Native::leave();
    });
    machine.attach(|| {
        world.free_all(belt.into_inner().expect("no panic").into_iter().map(|(pfn, _)| pfn));
        world.memory.rcu().flush();
        world.memory.drain_cpu_lists();
    });
    assert_eq!(world.memory.nr_free(), FRAMES);
    assert!(world.memory.audit().is_clean(), "{}", world.memory.audit());
    // Miri's few steps may take too few frames for that.
    let is_refused = nr_refused.into_inner().expect("no panic") != 0;
    assert!(is_refused || cfg!(miri), "the threads never reached the edge of memory");
}
