//! Operations, done to a space.

use faultless_sim::explore::{Explore, stamp};
use faultless_vm::design::Design;
use faultless_vm::{
    AccessError, Advice, AreaFlags, Backing, CallError, Guest, MapRequest, PAGE, Placement, Populate, RemapPlacement,
    RemapRequest, SpaceRef,
};

use super::model::{Answer, Look, Refusal, WORDS};
use super::ops::{Op, Pages, Rights};
use super::scene::{BASE, STACK, Scene};
use super::worlds::World;

/// A forked space, and what it must look like.
struct Child<'vm, D: Design<Explore>> {
    space: SpaceRef<'vm, Explore, D>,
    looks: Vec<Look>,
}

/// A thread at its operations.
pub struct Actor<'a, 'vm, D: Design<Explore>> {
    scene: &'a Scene<'vm, D>,
    guest: &'a Guest<'vm, Explore, D>,
    thread: usize,
    children: Vec<Child<'vm, D>>,
}

/// What becomes of the place that a page moves away from.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Source {
    Goes,
    Stays,
}

fn address(page: usize) -> u64 {
    BASE + page as u64 * PAGE
}

fn len(pages: Pages) -> u64 {
    (pages.last - pages.first + 1) as u64 * PAGE
}

/// Returns what a program sees of all pages.
pub fn look<D: Design<Explore>>(guest: &Guest<'_, Explore, D>, world: &World) -> Vec<Look> {
    let word = |page, word| match guest.load(address(page) + word as u64 * 8) {
        Ok((value, _)) => Ok(value),
        Err(error) => Err(refusal(error)),
    };
    let page = |page| {
        let mut words = [0; WORDS];
        for (place, value) in words.iter_mut().enumerate() {
            *value = word(page, place)?;
        }
        Ok(words)
    };
    (0..world.nr_pages).map(page).collect()
}

fn refusal(error: AccessError) -> Refusal {
    match error {
        AccessError::NotMapped { .. } => Refusal::NotMapped,
        AccessError::Forbidden { .. } | AccessError::ForbiddenByKey { .. } => Refusal::Forbidden,
        AccessError::TooManyReferences => Refusal::Saturated,
        other => panic!("{other}"),
    }
}

fn accessed<T>(result: Result<T, AccessError>, answer: impl FnOnce(T) -> Answer) -> Answer {
    result.map_or_else(|error| Answer::Refused(refusal(error)), answer)
}

fn called<T>(result: Result<T, CallError>) -> Answer {
    match result {
        Ok(_) => Answer::Done,
        Err(CallError::TooManyReferences) => Answer::Refused(Refusal::Saturated),
        Err(CallError::OutOfFrames(cause)) => panic!("the world is too small: {cause}"),
        Err(error) => Answer::Refused(Refusal::Errno(error.errno())),
    }
}

impl<'a, 'vm, D: Design<Explore>> Actor<'a, 'vm, D> {
    /// Returns a thread without children.
    pub fn new(scene: &'a Scene<'vm, D>, guest: &'a Guest<'vm, Explore, D>, thread: usize) -> Self {
        Self { scene, guest, thread, children: Vec::new() }
    }

    /// Does an operation; returns its answer and when it ended.
    pub fn perform(&mut self, op: Op, value: u64) -> (Answer, u64) {
        if op == Op::Fork {
            return self.fork();
        }
        let answer = self.call(op, value);
        let is_strange = answer == Answer::Refused(Refusal::Saturated) && !self.may_saturate(op);
        assert!(!is_strange, "{op} is refused because a frame is mapped too often");
        (answer, stamp())
    }

    /// Says whether an operation may find no room in a count: one that takes a reference, in a world where they are few.
    fn may_saturate(&self, op: Op) -> bool {
        self.scene.world.refcount_bits < 31
            && matches!(op, Op::Load(..) | Op::Store(..) | Op::Fork)
            && op != Op::Load(13, 0)
    }

    fn call(&mut self, op: Op, value: u64) -> Answer {
        let space = &self.scene.space;
        match op {
            Op::Load(page, word) => {
                let loaded = self.guest.load(address(page) + word as u64 * 8);
                accessed(loaded, |(value, _)| Answer::Value(value))
            }
            Op::Store(page, word) => {
                accessed(self.guest.store(address(page) + word as u64 * 8, value), |_| Answer::Done)
            }
            Op::Grow(depth) => accessed(self.guest.store(STACK - depth as u64 * PAGE, value), |_| Answer::Done),
            Op::Map(pages) => self.map(pages, AreaFlags::empty(), None),
            Op::MapPrivate(page) => self.map(Pages { first: page, last: page }, AreaFlags::empty(), Some(page)),
            Op::MapShared(page) => self.map(Pages { first: page, last: page }, AreaFlags::SHARED, Some(page)),
            Op::Unmap(pages) => called(space.munmap(address(pages.first), len(pages))),
            Op::Protect(pages, rights) => called(space.mprotect(address(pages.first), len(pages), flags(rights))),
            Op::DontNeed(pages) => called(space.madvise(address(pages.first), len(pages), Advice::DontNeed)),
            Op::Move(from, to) => self.move_page(from, to, Source::Goes),
            Op::MoveContent(from, to) => self.move_page(from, to, Source::Stays),
            Op::ChildStore(page) => self.child_store(page, value),
            Op::ChildEnd => self.child_end(),
            Op::Grace => {
                // Nodes and tables first: the design's readers, whom the flush waits for, may hold none of these.
                space.memory().rcu().flush();
                space.vm().flush();
                Answer::Done
            }
            Op::Exit => {
                drop(self.scene.take_second(self.thread));
                Answer::Done
            }
            Op::Fork | Op::Look => Answer::Done,
        }
    }

    fn move_page(&self, from: usize, to: usize, source: Source) -> Answer {
        called(self.scene.space.mremap(&RemapRequest {
            old_start: address(from),
            old_len_bytes: PAGE,
            new_len_bytes: PAGE,
            placement: RemapPlacement::Fixed(address(to)),
            keeps_source: source == Source::Stays,
        }))
    }

    fn map(&self, pages: Pages, kind: AreaFlags, object_page: Option<usize>) -> Answer {
        let rights = if kind.contains(AreaFlags::SHARED) { Rights::Read } else { Rights::Write };
        let object = &self.scene.object;
        let backing = object_page.map_or(Backing::Anonymous, |page| {
            Backing::Object(object, (page % self.scene.world.object_pages) as u64 * PAGE)
        });
        called(self.scene.space.mmap(&MapRequest {
            placement: Placement::Fixed(address(pages.first)),
            len_bytes: len(pages),
            flags: flags(rights) | kind,
            backing,
            populate: Populate::OnFault,
        }))
    }

    fn fork(&mut self) -> (Answer, u64) {
        let result = self.scene.space.fork();
        let end = stamp();
        match result {
            Ok(space) => {
                let looks = look(&Guest::new(&space), self.scene.world);
                self.children.push(Child { space, looks: looks.clone() });
                (Answer::Seen(looks), end)
            }
            Err(error) => (called::<()>(Err(error)), end),
        }
    }

    fn child_store(&mut self, page: usize, value: u64) -> Answer {
        let Some(child) = self.children.last_mut() else { return Answer::Done };
        let answer = accessed(Guest::new(&child.space).store(address(page), value), |_| Answer::Done);
        match (&mut child.looks[page], &answer) {
            (Ok(words), Answer::Done) => words[0] = value,
            (Err(_), Answer::Done) => panic!("a child stored to page {page}, which it could not see"),
            _ => {}
        }
        answer
    }

    fn child_end(&mut self) -> Answer {
        if !self.children.is_empty() {
            let child = self.children.remove(0);
            self.inspect(&child);
        }
        Answer::Done
    }

    /// Checks that a child is as it was.
    fn inspect(&self, child: &Child<'vm, D>) {
        let looks = look(&Guest::new(&child.space), self.scene.world);
        assert_eq!(looks, child.looks, "a child of thread {} is not as it was", self.thread);
    }

    /// Ends all children.
    pub fn end_children(&mut self) {
        while !self.children.is_empty() {
            self.child_end();
        }
    }

    /// Lets the children live on, unseen.
    pub fn keep_children(mut self) {
        self.scene.adopt(self.children.drain(..).map(|child| child.space).collect());
    }
}

fn flags(rights: Rights) -> AreaFlags {
    match rights {
        Rights::None => AreaFlags::empty(),
        Rights::Read => AreaFlags::READ,
        Rights::Write => AreaFlags::READ | AreaFlags::WRITE,
    }
}
