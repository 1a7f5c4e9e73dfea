//! Where the time of threads goes: lines that other CPUs had, the memory bus, waits by what they are for.
//!
//! # Guarantee
//! * I1 time is counted from a thread's [`Tracepoint::WorkBegins`] to its [`Tracepoint::WorkEnds`], each part of it
//!   once: inside a wait all of it is the outermost wait's. What is left is work
//! * I2 counting takes no virtual time and draws no chance
//!
//! [`Tracepoint::WorkBegins`]: faultless_platform::Tracepoint::WorkBegins
//! [`Tracepoint::WorkEnds`]: faultless_platform::Tracepoint::WorkEnds

use super::books::{Book, Entry, LINE_BITS, LINE_BYTES, PAGE_BYTES, forget_entry};
use super::lines::LineId;
use super::pending::Kind;
use super::record::NO_CPU;
use super::state::{Borrowed, Engine, IS_BORROWED, with};
use faultless_platform::Tracepoint;

/// Takes note of what a thread tells.
pub(crate) fn note(event: Tracepoint) {
    let _ = with(|engine| match event {
        Tracepoint::WaitBegins { name } => engine.begin_wait(name),
        Tracepoint::WaitEnds { aside_ns } => engine.end_wait(aside_ns.saturating_mul(1000)),
        Tracepoint::WorkBegins => engine.begin_work(),
        Tracepoint::WorkEnds => engine.end_work(),
        Tracepoint::Named { name, address, len_bytes } => engine.name(name, address, len_bytes),
        _ => {}
    });
}

/// Runs `act`, all of whose time is a wait for what `name` says.
pub(super) fn in_wait<R>(name: &'static str, act: impl FnOnce() -> R) -> R {
    with(|engine| engine.begin_wait(name));
    let result = act();
    with(|engine| engine.end_wait(0));
    result
}

impl Engine {
    fn begin_work(&mut self) {
        let clock = self.clock;
        self.thread().book = Book { since: Some(clock), ..Book::default() };
    }

    fn end_work(&mut self) {
        let clock = self.clock;
        let book = std::mem::take(&mut self.thread().book);
        if let Some(since) = book.since {
            self.books.thread_ps += clock.saturating_sub(since).saturating_sub(book.aside);
        }
    }

    fn begin_wait(&mut self, name: &'static str) {
        let clock = self.clock;
        let book = &mut self.thread().book;
        if book.depth == 0 {
            (book.wait, book.wait_since) = (name, clock);
        }
        book.depth += 1;
    }

    /// Ends a wait, of which `aside_ps` belong to nothing that is measured.
    fn end_wait(&mut self, aside_ps: u64) {
        let clock = self.clock;
        let book = &mut self.thread().book;
        book.depth = book.depth.saturating_sub(1);
        let Book { since, depth, wait, wait_since, .. } = *book;
        if depth == 0 && since.is_some() {
            let whole = clock.saturating_sub(wait_since);
            *self.books.waits.entry(wait).or_default() += whole.saturating_sub(aside_ps);
            // Taken off what `end_work` adds.
            self.thread().book.aside += aside_ps.min(whole);
        }
    }

    /// Says whether what the running thread does now counts by itself (I1).
    #[inline]
    fn is_counted(&self) -> bool {
        let book = &self.threads[self.current as usize].book;
        self.cpu != NO_CPU && book.depth == 0 && book.since.is_some()
    }

    /// Notes that a line had to come from another CPU, which the thread waited for until now.
    #[inline]
    pub(super) fn count_transfer(&mut self, id: LineId, address: usize, kind: Kind, since: u64) {
        if self.is_counted() {
            let wait_ps = self.clock.saturating_sub(since);
            let entry = self.entry(id, address);
            self.books.entries[entry].transfers += 1;
            self.books.entries[entry].wait_ps += wait_ps;
            if kind.is_write() {
                let word = entry * self.books.nr_words + usize::from(self.cpu) / 64;
                self.books.writers[word] |= 1 << (self.cpu % 64);
            }
        }
    }

    /// Notes how long the thread waited for a store of its own that was on its way.
    #[cold]
    pub(super) fn count_drain(&mut self, wait_ps: u64) {
        // It is called inside a step, and on the short way past it.
        let _borrowed = (!IS_BORROWED.get()).then(Borrowed::new);
        if self.is_counted()
            && let Some((id, address)) = self.here().drained_line
        {
            let entry = self.entry(id, address);
            self.books.entries[entry].wait_ps += wait_ps;
        }
    }

    /// Notes how long the thread waited for a memory bus.
    pub(super) fn count_bus(&mut self, wait_ps: u64) {
        if self.is_counted() {
            self.books.bus_ps += wait_ps;
        }
    }

    /// Notes what interrupts took from the thread.
    pub(super) fn count_interrupts(&mut self, wait_ps: u64) {
        if self.is_counted() {
            self.books.interrupted_ps += wait_ps;
        }
    }

    /// Returns the place of a line's entry, which is made if there is none.
    fn entry(&mut self, id: LineId, address: usize) -> usize {
        let nr_words = self.cpus.len().div_ceil(64);
        let books = &mut self.books;
        let id = id as usize;
        if books.entry_of.len() <= id {
            books.entry_of.resize(id + 1, 0);
        }
        if books.entry_of[id] == 0 {
            let name = books.names.of(address).name;
            books.nr_words = nr_words;
            books.entries.push(Entry { name, transfers: 0, wait_ps: 0 });
            books.writers.resize(books.entries.len() * nr_words, 0);
            books.entry_of[id] = books.entries.len() as u32;
        }
        books.entry_of[id] as usize - 1
    }

    /// Gives memory a name (I3 of `books`).
    fn name(&mut self, name: &'static str, address: usize, len_bytes: usize) {
        if len_bytes == 0 {
            return;
        }
        let books = &mut self.books;
        let name = books.names.new_name(name);
        if len_bytes > PAGE_BYTES {
            books.names.name_long(address..address + len_bytes, name);
        } else if len_bytes == PAGE_BYTES && address.is_multiple_of(PAGE_BYTES) {
            if books.names.name_page(address, name) {
                let touched = self.lines.touched_in_page(address);
                touched.for_each(|id| forget_entry(&mut books.entry_of, id));
            }
        } else {
            for line in (address >> LINE_BITS..(address + len_bytes).div_ceil(LINE_BYTES)).map(|line| line << LINE_BITS)
            {
                if books.names.name_line(line, name)
                    && let Some(id) = self.lines.find(line)
                {
                    forget_entry(&mut books.entry_of, id);
                }
            }
        }
    }
}
