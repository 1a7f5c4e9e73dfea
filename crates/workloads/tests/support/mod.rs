//! An address space of maps and words, to run programs on one step at a time and to see what they asked for.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::ops::Range;

use faultless_workloads::{
    AddressSpace, Backing, Content, FileId, FileName, Heap, HeapPolicy, MapCall, PAGE, Refused, Rights,
};

/// A mapping.
#[derive(Clone, Debug)]
pub struct Mapped {
    pub end: u64,
    pub rights: Rights,
    pub backing: Backing,
}

/// The model: one thread, no kernel.
#[derive(Default)]
pub struct Model {
    pub areas: RefCell<BTreeMap<u64, Mapped>>,
    pub words: RefCell<BTreeMap<u64, u64>>,
    pub calls: RefCell<Vec<String>>,
    pub faults: Cell<u64>,
    /// Where rights were changed.
    pub protected: RefCell<Vec<u64>>,
    /// A kernel with bugs: discards and copies do nothing, and a child shares its parent's memory.
    pub is_broken: Cell<bool>,
    touched: RefCell<std::collections::BTreeSet<u64>>,
    files: RefCell<Vec<(FileName, u64, u64)>>,
    next: Cell<u64>,
    brk: Cell<u64>,
    heap: Heap,
}

impl Model {
    pub fn new() -> Self {
        let model = Self::default();
        model.next.set(0x10_0000_0000);
        model.brk.set(0x1000_0000);
        model
    }

    /// Returns how many calls of a name were made.
    pub fn count(&self, call: &str) -> usize {
        self.calls.borrow().iter().filter(|line| line.split(' ').next() == Some(call)).count()
    }

    /// Returns how many bytes are mapped.
    pub fn mapped_bytes(&self) -> u64 {
        self.areas.borrow().iter().map(|(start, area)| area.end - start).sum()
    }

    fn note(&self, line: String) {
        self.calls.borrow_mut().push(line);
    }

    fn remove(&self, range: Range<u64>) -> Vec<(u64, Mapped)> {
        let mut areas = self.areas.borrow_mut();
        let hit: Vec<(u64, Mapped)> = areas
            .iter()
            .filter(|(start, area)| **start < range.end && area.end > range.start)
            .map(|(&start, area)| (start, area.clone()))
            .collect();
        for (start, area) in &hit {
            areas.remove(start);
            if *start < range.start {
                areas.insert(*start, Mapped { end: range.start, ..area.clone() });
            }
            if area.end > range.end {
                areas.insert(range.end, area.clone());
            }
        }
        drop(areas);
        self.forget(&range);
        hit.into_iter()
            .map(|(start, area)| (start.max(range.start), Mapped { end: area.end.min(range.end), ..area }))
            .collect()
    }

    fn forget(&self, range: &Range<u64>) {
        self.words.borrow_mut().retain(|address, _| !range.contains(address));
        self.touched.borrow_mut().retain(|page| !range.contains(page));
    }

    fn touch(&self, address: u64, needs_write: bool) -> Result<Backing, Refused> {
        assert_eq!(address % 8, 0, "{address:#x}");
        let areas = self.areas.borrow();
        let area = areas.range(..=address).next_back().filter(|(_, area)| area.end > address);
        let (_, area) = area.ok_or(Refused::Access { address })?;
        let is_allowed = area.rights == Rights::ReadWrite || area.rights == Rights::Read && !needs_write;
        if !is_allowed {
            return Err(Refused::Access { address });
        }
        if self.touched.borrow_mut().insert(address / PAGE * PAGE) {
            self.faults.set(self.faults.get() + 1);
        }
        Ok(area.backing)
    }
}

impl AddressSpace for Model {
    fn aside(&self, act: &mut dyn FnMut() -> Result<(), Refused>) -> Result<(), Refused> {
        act()
    }

    fn map(&self, call: &MapCall) -> Result<u64, Refused> {
        assert!(call.len_bytes > 0);
        let len = call.len_bytes.next_multiple_of(PAGE);
        let start = call.fixed.unwrap_or(self.next.get());
        self.next.set(self.next.get().max(start + len + PAGE));
        self.remove(start..start + len);
        let area = Mapped { end: start + len, rights: call.rights, backing: call.backing };
        self.areas.borrow_mut().insert(start, area);
        self.note(format!("mmap {len}"));
        Ok(start)
    }

    fn unmap(&self, range: Range<u64>) -> Result<(), Refused> {
        self.note(format!("munmap {}", range.end - range.start));
        self.remove(range.start..range.end.next_multiple_of(PAGE));
        Ok(())
    }

    fn protect(&self, range: Range<u64>, rights: Rights) -> Result<(), Refused> {
        self.note(format!("mprotect {}", range.end - range.start));
        self.protected.borrow_mut().push(range.start);
        let (words, touched) = (self.words.borrow().clone(), self.touched.borrow().clone());
        let parts = self.remove(range);
        *self.words.borrow_mut() = words;
        *self.touched.borrow_mut() = touched;
        parts.into_iter().for_each(|(start, area)| {
            self.areas.borrow_mut().insert(start, Mapped { rights, ..area });
        });
        Ok(())
    }

    fn discard(&self, range: Range<u64>) -> Result<(), Refused> {
        self.note(format!("madvise {}", range.end - range.start));
        if self.is_broken.get() {
            return Ok(());
        }
        let is_shared = |address: u64| {
            let areas = self.areas.borrow();
            let area = areas.range(..=address).next_back().map(|(_, area)| area.backing);
            matches!(area, Some(Backing::Shared(_)))
        };
        let keeps = is_shared(range.start);
        let words = self.words.borrow().clone();
        self.forget(&range);
        if keeps {
            *self.words.borrow_mut() = words;
        }
        Ok(())
    }

    fn set_break(&self, end: u64) -> u64 {
        if end != 0 {
            self.note(format!("brk {}", end.wrapping_sub(self.brk.get()).cast_signed()));
            self.brk.set(end);
        }
        self.brk.get()
    }

    fn load(&self, address: u64) -> Result<u64, Refused> {
        self.touch(address, false)?;
        Ok(self.words.borrow().get(&address).copied().unwrap_or(0))
    }

    fn store(&self, address: u64, value: u64) -> Result<(), Refused> {
        self.touch(address, true)?;
        self.words.borrow_mut().insert(address, value);
        Ok(())
    }

    fn copy(&self, from: u64, to: u64, len_bytes: u64) -> Result<(), Refused> {
        let len_bytes = if self.is_broken.get() { 0 } else { len_bytes };
        (0..len_bytes).step_by(8).try_for_each(|offset| self.store(to + offset, self.load(from + offset)?))
    }

    fn open(&self, name: FileName, len_bytes: u64, _content: Content) -> Result<FileId, Refused> {
        self.note(format!("open {name:?} {len_bytes}"));
        let mut files = self.files.borrow_mut();
        files.push((name, len_bytes, 0));
        Ok(FileId(files.len() as u32 - 1))
    }

    fn read(&self, file: FileId, into: u64, len_bytes: u64) -> Result<u64, Refused> {
        self.touch(into, true)?;
        let mut files = self.files.borrow_mut();
        let (_, size, position) = &mut files[file.0 as usize];
        let len = len_bytes.min(*size - *position);
        *position += len;
        self.note(format!("read {len}"));
        Ok(len)
    }

    fn rewind(&self, file: FileId) -> Result<(), Refused> {
        self.note("lseek".into());
        self.files.borrow_mut()[file.0 as usize].2 = 0;
        Ok(())
    }

    fn fork(&self, life: &mut dyn FnMut(&dyn AddressSpace) -> Result<(), Refused>) -> Result<(), Refused> {
        self.note("fork".into());
        if self.is_broken.get() {
            return life(self);
        }
        let child = Model::new();
        *child.areas.borrow_mut() = self.areas.borrow().clone();
        *child.words.borrow_mut() = self.words.borrow().clone();
        life(&child)?;
        self.calls.borrow_mut().push(format!("child faults {}", child.faults.get()));
        Ok(())
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
