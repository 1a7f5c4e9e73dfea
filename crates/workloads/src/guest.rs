//! A program's view of a virtual memory of this project.
//!
//! # Guarantee
//! Each view is one thread's: it runs as a [`Guest`] of the space. Files are memory objects of zeros, one for each
//! name, that live in the page cache only, as on tmpfs.

use crate::PAGE;
use crate::heap::{Heap, HeapPolicy};
use crate::space::{AddressSpace, Backing, Content, FileId, FileName, MapCall, Refused, Rights, Start};
use alloc::vec::Vec;
use core::cell::{Cell, RefCell};
use core::ops::Range;
use faultless_platform::{KernelEntry, Platform, Usual};
use faultless_sync::SpinMutex;
use faultless_vm::design::Design;
use faultless_vm::{
    AccessError, AddressRange, Advice, AreaFlags, CallError, Event, Guest, MapOptions, MapRequest, ObjectHandle,
    ObjectSpec, Pattern, Placement, Populate, Protection, ReferenceHandle, SpaceRef, VirtAddr, Vm, WriteNotice,
    ZeroSource,
};

/// What the views of an instance share: files, by name, and what they did aside.
pub struct Files<'vm, P: Platform<Embedding = Usual>, D: Design<P>> {
    vm: &'vm Vm<P, D>,
    made: SpinMutex<P, Vec<(FileName, ObjectHandle<'vm, P>)>>,
    /// What happened aside, by event.
    aside: SpinMutex<P, Counts>,
}

/// How often each event happened.
pub type Counts = [u64; Event::ALL.len()];

impl<'vm, P: Platform<Embedding = Usual>, D: Design<P>> Files<'vm, P, D> {
    /// Returns no files, with room for the names of `nr_workers` workers.
    pub fn new(vm: &'vm Vm<P, D>, nr_workers: usize) -> Self {
        let made = SpinMutex::new(Vec::with_capacity(nr_workers + 1));
        Self { vm, made, aside: SpinMutex::new([0; Event::ALL.len()]) }
    }

    /// Returns how often each event happened in what the workers did aside.
    pub fn happened_aside(&self) -> Counts {
        *self.aside.lock()
    }

    fn open(&self, name: FileName, size_bytes: u64) -> Result<ObjectHandle<'vm, P>, Refused> {
        let mut made = self.made.lock();
        if let Some((_, object)) = made.iter().find(|(other, _)| *other == name) {
            return Ok(object.clone());
        }
        let spec = ObjectSpec {
            identity: made.len() as u64,
            size_bytes,
            source: &ZeroSource,
            write_notice: WriteNotice::None,
        };
        let object = self.vm.create_object(&spec).map_err(|_| Refused::OutOfFrames)?;
        made.push((name, object.clone()));
        Ok(object)
    }
}

struct OpenFile<'vm, P: Platform<Embedding = Usual>> {
    object: ObjectHandle<'vm, P>,
    position: Cell<u64>,
}

/// A thread's view of a space.
pub struct VmSpace<'f, 'vm, P: Platform<Embedding = Usual>, D: Design<P>> {
    guest: Guest<'vm, P, D>,
    files: &'f Files<'vm, P, D>,
    open: RefCell<Vec<OpenFile<'vm, P>>>,
    /// The reference page of `map_starting_as`, and what it repeats.
    reference: RefCell<Option<(u8, ReferenceHandle<'vm, P>)>>,
    heap: Heap,
}

/// Files that a program of this crate opens at once, at most.
const OPEN_FILES: usize = 4;

impl<'f, 'vm, P: Platform<Embedding = Usual>, D: Design<P>> VmSpace<'f, 'vm, P, D> {
    /// Returns a thread's view of `space`.
    pub fn new(space: &SpaceRef<'vm, P, D>, files: &'f Files<'vm, P, D>) -> Self {
        let open = RefCell::new(Vec::with_capacity(OPEN_FILES));
        Self { guest: Guest::new(space), files, open, reference: RefCell::new(None), heap: Heap::default() }
    }

    /// Returns the reference page that repeats a byte, made when it is first asked for.
    fn reference(&self, byte: u8) -> Result<ReferenceHandle<'vm, P>, Refused> {
        let mut made = self.reference.borrow_mut();
        if let Some((_, handle)) = made.as_ref().filter(|(of, _)| *of == byte) {
            return Ok(handle.clone());
        }
        let handle = self.files.vm.create_repeated(Pattern::Byte(byte)).map_err(|_| Refused::OutOfFrames)?;
        *made = Some((byte, handle.clone()));
        Ok(handle)
    }

    fn object(&self, file: FileId) -> Result<ObjectHandle<'vm, P>, Refused> {
        let open = self.open.borrow();
        let found = open.get(file.0 as usize).map(|file| file.object.clone());
        found.ok_or(Refused::Call { call: "mmap", errno: BAD_FILE })
    }
}

/// EBADF.
const BAD_FILE: i32 = 9;

fn refused(call: &'static str) -> impl Fn(CallError) -> Refused {
    move |error| match error {
        CallError::OutOfFrames(_) => Refused::OutOfFrames,
        error => Refused::Call { call, errno: error.errno() },
    }
}

fn lost(address: u64) -> impl Fn(AccessError) -> Refused {
    move |error| match error {
        AccessError::OutOfFrames(_) => Refused::OutOfFrames,
        _ => Refused::Access { address },
    }
}

fn area_flags(rights: Rights) -> AreaFlags {
    match rights {
        Rights::None => AreaFlags::empty(),
        Rights::Read => AreaFlags::READ,
        Rights::ReadWrite => AreaFlags::READ | AreaFlags::WRITE,
    }
}

fn len(range: &Range<u64>) -> u64 {
    range.end - range.start
}

impl<P: Platform<Embedding = Usual>, D: Design<P>> AddressSpace for VmSpace<'_, '_, P, D> {
    fn aside(&self, act: &mut dyn FnMut() -> Result<(), Refused>) -> Result<(), Refused> {
        let counts = || -> Counts { core::array::from_fn(|place| self.files.vm.events().own(Event::ALL[place])) };
        let (cpu, before) = (P::cpu(), counts());
        let result = act();
        // Who waited meanwhile may have come to another CPU, whose counts are not this act's.
        if P::cpu() == cpu {
            let after = counts();
            let mut aside = self.files.aside.lock();
            (0..aside.len()).for_each(|place| aside[place] += after[place] - before[place]);
        }
        result
    }

    fn map(&self, call: &MapCall) -> Result<u64, Refused> {
        P::enter_kernel(KernelEntry::Call);
        let object = match call.backing {
            Backing::Anonymous => None,
            Backing::Private(file) | Backing::Shared(file) => Some(self.object(file)?),
        };
        let mut flags = area_flags(call.rights);
        flags.set(AreaFlags::SHARED, matches!(call.backing, Backing::Shared(_)));
        let request = MapRequest {
            placement: call.fixed.map_or(Placement::Anywhere, |start| Placement::Fixed(VirtAddr::new(start))),
            len_bytes: call.len_bytes,
            protection: flags.protection(),
            options: flags.options(),
            backing: match &object {
                None => faultless_vm::Backing::Anonymous,
                Some(object) => faultless_vm::Backing::Object(object, 0),
            },
            populate: Populate::OnFault,
        };
        self.guest.space().mmap(&request).map(VirtAddr::get).map_err(refused("mmap"))
    }

    fn map_starting_as(&self, start: Start, len_bytes: u64) -> Result<u64, Refused> {
        let handle = match start {
            Start::Reference(byte) => Some(self.reference(byte)?),
            Start::Zeros | Start::Pattern(_) => None,
        };
        let backing = match (start, &handle) {
            (Start::Pattern(byte), _) => faultless_vm::Backing::Pattern(Pattern::Byte(byte)),
            (_, Some(handle)) => faultless_vm::Backing::Reference(handle, 0),
            (_, None) => faultless_vm::Backing::Anonymous,
        };
        P::enter_kernel(KernelEntry::Call);
        let request = MapRequest {
            placement: Placement::Anywhere,
            len_bytes,
            protection: Protection::READ | Protection::WRITE,
            options: MapOptions::empty(),
            backing,
            populate: Populate::OnFault,
        };
        self.guest.space().mmap(&request).map(VirtAddr::get).map_err(refused("mmap"))
    }

    fn fill(&self, range: Range<u64>, byte: u8) -> Result<(), Refused> {
        let words = [u64::from_ne_bytes([byte; 8]); PAGE as usize / 8];
        range
            .step_by(PAGE as usize)
            .try_for_each(|page| self.guest.store_words(VirtAddr::new(page), &words).map(drop).map_err(lost(page)))
    }

    fn unmap(&self, range: Range<u64>) -> Result<(), Refused> {
        P::enter_kernel(KernelEntry::Call);
        self.guest.space().munmap(AddressRange::new(VirtAddr::new(range.start), len(&range))).map_err(refused("munmap"))
    }

    fn protect(&self, range: Range<u64>, rights: Rights) -> Result<(), Refused> {
        P::enter_kernel(KernelEntry::Call);
        self.guest
            .space()
            .mprotect(AddressRange::new(VirtAddr::new(range.start), len(&range)), area_flags(rights).protection())
            .map_err(refused("mprotect"))
    }

    fn discard(&self, range: Range<u64>) -> Result<(), Refused> {
        P::enter_kernel(KernelEntry::Call);
        self.guest
            .space()
            .madvise(AddressRange::new(VirtAddr::new(range.start), len(&range)), Advice::DontNeed)
            .map_err(refused("madvise"))
    }

    fn set_break(&self, end: u64) -> u64 {
        P::enter_kernel(KernelEntry::Call);
        self.guest.space().brk(VirtAddr::new(end)).get()
    }

    #[inline]
    fn load(&self, address: u64) -> Result<u64, Refused> {
        self.guest.load(VirtAddr::new(address)).map(|(word, _)| word).map_err(lost(address))
    }

    #[inline]
    fn store(&self, address: u64, value: u64) -> Result<(), Refused> {
        self.guest.store(VirtAddr::new(address), value).map(|_| ()).map_err(lost(address))
    }

    fn copy(&self, from: u64, to: u64, len_bytes: u64) -> Result<(), Refused> {
        let mut words = [0; PAGE as usize / 8];
        let mut done = 0;
        while done < len_bytes {
            let (source, target) = (from + done, to + done);
            let room = (PAGE - source % PAGE).min(PAGE - target % PAGE).min(len_bytes - done);
            // Words are what is moved: of a part of one, the whole.
            let part = &mut words[..room.div_ceil(8) as usize];
            self.guest.load_words(VirtAddr::new(source), part).map_err(lost(source))?;
            self.guest.store_words(VirtAddr::new(target), part).map_err(lost(target))?;
            done += room;
        }
        Ok(())
    }

    fn open(&self, name: FileName, len_bytes: u64, content: Content) -> Result<FileId, Refused> {
        let object = self.files.open(name, len_bytes)?;
        if content == Content::Written {
            let mut word = [0; 1];
            for offset in (0..len_bytes).step_by(PAGE as usize) {
                self.files.vm.read_object(&object, offset, &mut word).map_err(refused("write"))?;
            }
        }
        let mut open = self.open.borrow_mut();
        open.push(OpenFile { object, position: Cell::new(0) });
        Ok(FileId(open.len() as u32 - 1))
    }

    fn read(&self, file: FileId, into: u64, len_bytes: u64) -> Result<u64, Refused> {
        P::enter_kernel(KernelEntry::Call);
        let open = self.open.borrow();
        let file = open.get(file.0 as usize).ok_or(Refused::Call { call: "read", errno: BAD_FILE })?;
        let position = file.position.get();
        let len_bytes = len_bytes.min(file.object.size_bytes() - position);
        let mut words = [0; PAGE as usize / 8];
        let mut done = 0;
        while done < len_bytes {
            let (source, target) = (position + done, into + done);
            let room = (PAGE - source % PAGE).min(PAGE - target % PAGE).min(len_bytes - done);
            // Words are what is moved: of a part of one, the whole.
            let part = &mut words[..room.div_ceil(8) as usize];
            self.files.vm.read_object(&file.object, source, part).map_err(refused("read"))?;
            self.guest.store_words(VirtAddr::new(target), part).map_err(lost(target))?;
            done += room;
        }
        file.position.set(position + len_bytes);
        Ok(len_bytes)
    }

    fn rewind(&self, file: FileId) -> Result<(), Refused> {
        P::enter_kernel(KernelEntry::Call);
        let open = self.open.borrow();
        let file = open.get(file.0 as usize).ok_or(Refused::Call { call: "lseek", errno: BAD_FILE })?;
        file.position.set(0);
        Ok(())
    }

    fn fork(&self, life: &mut dyn FnMut(&dyn AddressSpace) -> Result<(), Refused>) -> Result<(), Refused> {
        P::enter_kernel(KernelEntry::Call);
        let copy = self.guest.space().fork().map_err(refused("fork"))?;
        life(&VmSpace::new(&copy, self.files))
    }

    fn set_heap_policy(&self, policy: HeapPolicy) {
        self.heap.set_policy(policy);
    }

    fn allocate(&self, len_bytes: u64) -> Result<u64, Refused> {
        self.heap.allocate(self, len_bytes)
    }

    fn release(&self, address: u64) -> Result<(), Refused> {
        self.heap.release(self, address)
    }
}
