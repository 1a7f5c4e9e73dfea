//! A thread of a run: what it knows, and how it chooses.

use crate::file::File;
use crate::known::{FILE_PAGES, Known, MARK, OWN_PAGES, Page};
use crate::settings::{Settings, Shortages};
use crate::shortage::Patience;
use crate::world::World;
use fastrand::Rng;
use faultless_phys::Failing;
use faultless_platform::native::Native;
use faultless_vm::design::Design;
use faultless_vm::{Guest, Pin, ReferenceHandle, SpaceRef};
use std::sync::RwLock;
use std::sync::atomic::AtomicU64;

/// What the threads of a run share.
pub(crate) struct Shared<'a, 'vm, D: Design<Native>> {
    pub world: &'vm World<D>,
    pub space: &'a SpaceRef<'vm, Native, D>,
    pub file: &'a RwLock<File<'vm>>,
    /// What each thread's counter page holds.
    pub counters: &'a [AtomicU64],
}

/// A thread.
pub(crate) struct Worker<'a, 'vm, D: Design<Native>> {
    pub shared: &'a Shared<'a, 'vm, D>,
    pub guest: Guest<'a, Native, D>,
    /// A child that is there when the round's invariants are checked.
    pub child: Option<SpaceRef<'vm, Native, D>>,
    pub thread: u64,
    pub random: Rng,
    pub patience: Patience,
    pub pages: Vec<Page>,
    /// A reference page, and its first word.
    pub reference: Option<(ReferenceHandle<'vm, Native>, u64)>,
    pub pins: Vec<Pin<'a, Native>>,
    pub words: [Known; FILE_PAGES as usize],
    next_value: u64,
}

impl<'a, 'vm, D: Design<Native>> Worker<'a, 'vm, D> {
    pub fn new(thread: usize, shared: &'a Shared<'a, 'vm, D>, settings: &Settings<'_>) -> Self {
        let seed = settings.seed ^ (thread as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        Self {
            shared,
            guest: Guest::new(shared.space),
            child: None,
            thread: thread as u64,
            random: Rng::with_seed(seed),
            patience: Patience { shortages: settings.shortages, nr_short: 0 },
            pages: vec![Page::UNMAPPED; OWN_PAGES as usize],
            reference: None,
            pins: Vec::new(),
            words: Default::default(),
            next_value: 1,
        }
    }

    /// Does one thing.
    pub fn step(&mut self) {
        if self.patience.shortages == Shortages::Injected && self.random.u32(0..64) == 0 {
            let nth = 1 + u64::from(self.random.u32(0..24));
            self.shared.world.vm.memory().set_failing(Failing::Once(nth));
        }
        match self.random.u32(0..130) {
            0..=29 => self.store(),
            30..=49 => self.load(),
            50..=59 => self.map(),
            60..=66 => self.unmap(),
            67..=73 => self.protect(),
            74..=78 => self.advise(),
            79..=82 => self.remap(),
            83..=84 => self.fork(),
            85..=89 => self.count_up(),
            90..=99 => self.touch_shared(),
            100..=101 => self.visit_all(),
            102..=124 => self.use_file(),
            _ => self.pin(),
        }
    }

    /// Returns a value that nobody has stored before.
    pub fn fresh_value(&mut self) -> u64 {
        let value = MARK | self.thread << 40 | self.next_value;
        self.next_value += 1;
        value
    }
}
