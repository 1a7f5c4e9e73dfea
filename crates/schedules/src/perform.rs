//! Operations, done to a space.

use faultless_explore::{Explore, stamp};
use faultless_vm::design::Design;
use faultless_vm::{
    AccessError, AddressRange, Advice, AreaFlags, Backing, CallError, Guest, MapRequest, PAGE, Pattern, PinKind,
    Placement, Populate, RemapPlacement, RemapRequest, SpaceRef, VirtAddr,
};

use super::execution::{BASE, Execution, STACK};
use super::model::{Answer, Look, Refusal, WORDS};
use super::ops::{Op, Pages, Rights, Start};
use super::owner::Stay;
use super::worlds::World;

/// A forked space, and what it must look like, unless that changes.
struct Child<'vm, D: Design<Explore>> {
    space: SpaceRef<'vm, Explore, D>,
    looks: Option<Vec<Look>>,
}

/// A thread at its operations.
pub struct Worker<'a, 'vm, D: Design<Explore>> {
    execution: &'a Execution<'vm, D>,
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

fn range(pages: Pages) -> AddressRange {
    AddressRange::new(VirtAddr::new(address(pages.first)), len(pages))
}

fn len(pages: Pages) -> u64 {
    (pages.last - pages.first + 1) as u64 * PAGE
}

/// Returns an offset in the object.
fn bytes(pages: usize, words: usize) -> u64 {
    pages as u64 * PAGE + words as u64 * 8
}

/// Returns what a program sees of all pages.
pub fn look<D: Design<Explore>>(guest: &Guest<'_, Explore, D>, world: &World) -> Vec<Look> {
    let word = |page, word| match guest.load(VirtAddr::new(address(page) + word as u64 * 8)) {
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

fn request(
    placement: Placement,
    len_bytes: u64,
    flags: AreaFlags,
    backing: Backing<'_, Explore>,
) -> MapRequest<'_, Explore> {
    let (protection, options) = (flags.protection(), flags.options());
    MapRequest { placement, len_bytes, protection, options, backing, populate: Populate::OnFault }
}

fn refusal(error: AccessError) -> Refusal {
    match error {
        AccessError::NotMapped { .. } => Refusal::NotMapped,
        AccessError::Forbidden { .. } | AccessError::ForbiddenByKey { .. } => Refusal::Forbidden,
        AccessError::NoPage { .. } => Refusal::NoPage,
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

impl<'a, 'vm, D: Design<Explore>> Worker<'a, 'vm, D> {
    /// Returns a thread without children.
    pub fn new(execution: &'a Execution<'vm, D>, guest: &'a Guest<'vm, Explore, D>, thread: usize) -> Self {
        Self { execution, guest, thread, children: Vec::new() }
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

    /// Says whether an operation may find no room in a count: one that takes a reference, in a world where they are
    /// few.
    fn may_saturate(&self, op: Op) -> bool {
        self.execution.world.refcount_bits < 31 && matches!(op, Op::Store(0, _) | Op::Pin(0) | Op::Fork)
    }

    fn call(&mut self, op: Op, value: u64) -> Answer {
        let space = &self.execution.space;
        match op {
            Op::Load(page, word) => {
                let loaded = self.guest.load(VirtAddr::new(address(page) + word as u64 * 8));
                accessed(loaded, |(value, _)| Answer::Value(value))
            }
            Op::Store(page, word) => {
                accessed(self.guest.store(VirtAddr::new(address(page) + word as u64 * 8), value), |_| Answer::Done)
            }
            Op::Grow(depth) => {
                accessed(self.guest.store(VirtAddr::new(STACK - depth as u64 * PAGE), value), |_| Answer::Done)
            }
            Op::Map(pages) => self.map(pages, flags(Rights::Write), Backing::Anonymous),
            Op::MapHinted(page) => self.map_hinted(page),
            Op::MapStarting(pages, start) => self.map_starting(pages, start),
            Op::Renew => {
                self.execution.renew();
                Answer::Done
            }
            Op::Pin(page) => self.pin(page),
            Op::MapPrivate(page) => self.map_object(page, flags(Rights::Write)),
            Op::MapShared(page) => self.map_object(page, flags(Rights::Read) | AreaFlags::SHARED),
            Op::MapWritable(page) => self.map_object(page, flags(Rights::Write) | AreaFlags::SHARED),
            Op::Resize(pages, words) => called(space.vm().truncate(&self.execution.object, bytes(pages, words))),
            Op::Punch(pages) => {
                called(space.vm().punch(&self.execution.object, bytes(pages.first, 0)..bytes(pages.last + 1, 0)))
            }
            Op::Read(page, word) => self.read(page, word),
            Op::Free(pages) => called(space.madvise(range(pages), Advice::Free)),
            Op::PageOut(pages) => called(space.madvise(range(pages), Advice::PageOut)),
            Op::Unmap(pages) => called(space.munmap(range(pages))),
            Op::Protect(pages, rights) => called(space.mprotect(range(pages), flags(rights).protection())),
            Op::DontNeed(pages) => called(space.madvise(range(pages), Advice::DontNeed)),
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
                drop(self.execution.take_second(self.thread));
                Answer::Done
            }
            Op::List => self.list(),
            Op::Own | Op::OwnOff | Op::Share | Op::OwnOffAndShare => self.own(op),
            Op::Fork | Op::Look => Answer::Done,
        }
    }

    fn move_page(&self, from: usize, to: usize, source: Source) -> Answer {
        called(self.execution.space.mremap(&RemapRequest {
            old: AddressRange::new(VirtAddr::new(address(from)), PAGE),
            new_len_bytes: PAGE,
            placement: RemapPlacement::Fixed(VirtAddr::new(address(to))),
            keeps_source: source == Source::Stays,
        }))
    }

    fn map_object(&self, page: usize, flags: AreaFlags) -> Answer {
        let offset = (page % self.execution.world.object_pages) as u64 * PAGE;
        self.map(Pages { first: page, last: page }, flags, Backing::Object(&self.execution.object, offset))
    }

    /// What was mapped elsewhere, goes again: above all windows, where nobody looks.
    fn map_hinted(&self, page: usize) -> Answer {
        let (space, hint) = (&self.execution.space, VirtAddr::new(address(page)));
        match space.mmap(&request(Placement::Hint(hint), PAGE, flags(Rights::Write), Backing::Anonymous)) {
            Ok(place) if place == hint => Answer::Done,
            Ok(place) => match space.munmap(AddressRange::new(place, PAGE)) {
                Ok(()) => Answer::Refused(Refusal::Errno(17)),
                Err(error) => called::<()>(Err(error)),
            },
            Err(error) => called::<()>(Err(error)),
        }
    }

    /// Neighbours continue each other, so that they may be joined.
    fn map_starting(&self, pages: Pages, start: Start) -> Answer {
        let handle = self.execution.reference(start);
        let backing = match &handle {
            Some(handle) => Backing::Reference(handle, bytes(pages.first, 0)),
            None => Backing::Pattern(Pattern::Double(start.word())),
        };
        self.map(pages, flags(Rights::Write), backing)
    }

    fn pin(&self, page: usize) -> Answer {
        match self.execution.space.pin(VirtAddr::new(address(page)), PinKind::Read) {
            Ok(pin) => {
                let mut word = [0];
                pin.read(0, &mut word);
                self.execution.keep_pin(pin);
                Answer::Value(word[0])
            }
            Err(error) => called::<()>(Err(error)),
        }
    }

    fn map(&self, pages: Pages, flags: AreaFlags, backing: Backing<'_, Explore>) -> Answer {
        let placement = Placement::Fixed(VirtAddr::new(address(pages.first)));
        called(self.execution.space.mmap(&request(placement, len(pages), flags, backing)))
    }

    fn read(&self, page: usize, word: usize) -> Answer {
        let mut words = [0];
        let read = self.execution.space.vm().read_object(&self.execution.object, bytes(page, word), &mut words);
        read.map_or_else(|error| called::<()>(Err(error)), |()| Answer::Value(words[0]))
    }

    /// Goes along all spaces, which are whole while they are listed.
    fn list(&self) -> Answer {
        self.execution.space.vm().for_each_space(|space| {
            let (mut nr_areas, mut end) = (0, VirtAddr::new(0));
            space.for_each_area(|area| {
                let range = area.range;
                let is_good = end <= range.start() && range.start() < range.end();
                assert!(is_good, "a listed space has a bad area: {area:?}");
                (nr_areas, end) = (nr_areas + 1, range.end());
            });
            if let Some(expected) = self.execution.world.nr_areas {
                assert_eq!(nr_areas, expected, "areas of a space that is listed");
            }
        });
        Answer::Done
    }

    /// Takes the semaphore that stands by itself.
    fn own(&self, op: Op) -> Answer {
        let owned = &self.execution.owned;
        match op {
            Op::Own => owned.write(Stay::On),
            Op::OwnOff => owned.write(Stay::Off),
            Op::OwnOffAndShare => owned.write_and_downgrade(Stay::Off),
            _ => owned.read(),
        }
        Answer::Done
    }

    fn fork(&mut self) -> (Answer, u64) {
        let result = self.execution.space.fork();
        let end = stamp();
        match result {
            Ok(space) => {
                let seen = look(&Guest::new(&space), self.execution.world);
                let looks = (!self.execution.has_changing_children).then_some(seen);
                self.children.push(Child { space, looks: looks.clone() });
                (looks.map_or(Answer::Done, Answer::Seen), end)
            }
            Err(error) => (called::<()>(Err(error)), end),
        }
    }

    fn child_store(&mut self, page: usize, value: u64) -> Answer {
        let Some(child) = self.children.last_mut() else { return Answer::Done };
        let answer = accessed(Guest::new(&child.space).store(VirtAddr::new(address(page)), value), |_| Answer::Done);
        match (child.looks.as_mut().map(|looks| &mut looks[page]), &answer) {
            (Some(Ok(words)), Answer::Done) => words[0] = value,
            (Some(Err(_)), Answer::Done) => panic!("a child stored to page {page}, which it could not see"),
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
        let seen = look(&Guest::new(&child.space), self.execution.world);
        let expected = child.looks.as_ref().unwrap_or(&seen);
        assert_eq!(&seen, expected, "a child of thread {} is not as it was", self.thread);
    }

    /// Ends all children.
    pub fn end_children(&mut self) {
        while !self.children.is_empty() {
            self.child_end();
        }
    }

    /// Lets the children live on, unseen.
    pub fn keep_children(mut self) {
        self.execution.adopt(self.children.drain(..).map(|child| child.space).collect());
    }
}

fn flags(rights: Rights) -> AreaFlags {
    match rights {
        Rights::None => AreaFlags::empty(),
        Rights::Read => AreaFlags::READ,
        Rights::Write => AreaFlags::READ | AreaFlags::WRITE,
    }
}
