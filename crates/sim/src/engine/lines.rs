//! The line directory: who has which cache line, and since when it is on its way to somebody else.
//!
//! # Guarantee
//! A line is numbered when it is first touched; nothing that is computed from a line depends on its address.
//!
//! # Words first
//! `owner`: the CPU that may write without asking, or nobody; then `sharers` says who may read. `users`: the only CPU
//! that ever touched the line, or many. `busy_until`: when the last transfer that was asked for ends. `leaves_at`: from
//! then on the line is on its way, and its owner's accesses miss. `tail`: the last that asked for it alone. `version`
//! counts writes.
//!
//! # Where it is kept
//! ```text
//! address -> page's entry (64 bytes of the host: a hash table) -> block of 16 lines (16 bytes each)
//!            its lines that were touched, who filled it           owner, user, version
//!                                                                 -> company, if a second CPU ever wanted it
//! ```
//! On hundreds of CPUs most of these words are in none of the host's nearer caches when a thread's turn comes. So lines
//! that are neighbours in memory are neighbours here, and what only contended lines need stands apart.
//!
//! # Invariants
//! * I1 a line with an owner has no sharers.
//! * I2 a line that one CPU alone has touched has no watchers.

use super::table::{PAGE_BITS, Table, page_key};

/// No CPU.
pub(super) const NOBODY: u16 = u16::MAX;
/// Many CPUs.
pub(super) const MANY: u16 = u16::MAX - 1;
/// Far in the future.
pub(super) const NEVER: u64 = u64::MAX;

const LINE_BITS: u32 = 6;
const BLOCK_BITS: u32 = 10;
/// Lines of a block.
const NR_IN_BLOCK: usize = 1 << (BLOCK_BITS - LINE_BITS);
/// Blocks of a page.
const NR_BLOCKS: usize = 1 << (PAGE_BITS - BLOCK_BITS);

/// Where a line's words are. Not its number: see [`Lines::number`].
pub(super) type LineId = u32;

/// What is known of a line; see the module.
#[derive(Clone, Copy)]
pub(super) struct Line {
    pub(super) version: u32,
    /// What contended lines have besides; 0 if no second CPU ever wanted it.
    company: u32,
    pub(super) owner: u16,
    pub(super) user: u16,
    /// A CPU of the socket whose memory it lies in, unless lines go round the sockets: the CPU that touched it first,
    /// if it was not placed.
    home: u16,
    /// Whether it is on its way, or will be: when, its company says.
    is_leaving: bool,
    /// Whether its company has watchers.
    is_watched: bool,
}

// Four to a line of the host's: in a large simulation most accesses miss the host's caches here.
const _: () = assert!(size_of::<Line>() == 16);

/// In `home`: whether the line was written since its owner got it.
const WRITTEN: u16 = 1 << 15;
const _: () = assert!(faultless_platform::MAX_CPUS <= WRITTEN as usize);

/// What lines have that a second CPU has wanted: transfers, who shares it, and who waits for it to be written.
struct Company {
    busy_until: u64,
    leaves_at: u64,
    tail: u16,
    /// Where the sharers' words are.
    sharers: u32,
    watchers: Vec<u32>,
}

impl Company {
    fn new(sharers: u32) -> Self {
        Self { busy_until: 0, leaves_at: NEVER, tail: NOBODY, sharers, watchers: Vec::new() }
    }
}

/// What is known of a page as a whole.
#[derive(Clone, Copy, Debug, Default)]
struct Page {
    /// Lines of the page that have a number.
    touched: u64,
    /// Which of the filler's fillings it was, and which of its complex's.
    fillings: Fillings,
    /// Where its lines are, in fours of blocks; 0 for none.
    blocks: [u32; NR_BLOCKS],
    /// Who filled it last, counted from 1; 0 for nobody.
    filler: u16,
}

/// How many pages a CPU has filled or copied from, and its complex.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Fillings {
    pub(super) of_cpu: u64,
    pub(super) of_complex: u64,
}

impl Page {
    fn filler(&self) -> u16 {
        self.filler.wrapping_sub(1)
    }

    /// Returns where the line of an address is, if it was touched.
    #[inline(always)]
    fn line_of(&self, address: usize) -> Option<LineId> {
        (self.touched & bit_of(address) != 0).then(|| self.place_of(address))
    }

    #[inline(always)]
    fn place_of(&self, address: usize) -> LineId {
        let block = self.blocks[address >> BLOCK_BITS & (NR_BLOCKS - 1)];
        block * NR_IN_BLOCK as u32 + (address >> LINE_BITS & (NR_IN_BLOCK - 1)) as u32
    }

    /// Returns where the lines of a page are that were touched.
    fn touched_lines(self) -> impl Iterator<Item = LineId> {
        let next = |rest: &u64| Some(rest & (rest - 1)).filter(|rest| *rest != 0);
        let first = Some(self.touched).filter(|touched| *touched != 0);
        std::iter::successors(first, next).map(move |rest| self.place_of((rest.trailing_zeros() as usize) << LINE_BITS))
    }
}

/// Returns the bit of an address's line in its page.
#[inline(always)]
fn bit_of(address: usize) -> u64 {
    1 << (address >> LINE_BITS & 63)
}

/// All lines that were touched.
pub(super) struct Lines {
    pages: Table<Page>,
    lines: Vec<Line>,
    /// The numbers of lines, place by place.
    numbers: Vec<u32>,
    nr_touched: u32,
    companies: Vec<Company>,
    sharers: Vec<u64>,
    nr_words: usize,
}

/// A page that was filled before: by whom, and when.
pub(super) struct Filled {
    pub(super) by: u16,
    pub(super) at: Fillings,
}

impl Lines {
    pub(super) fn new(nr_cpus: usize) -> Self {
        let nr_words = nr_cpus.div_ceil(64);
        // Block 0 is nobody's, and so is company 0.
        let mut lines = Self {
            pages: Table::new(),
            lines: Vec::new(),
            numbers: Vec::new(),
            nr_touched: 0,
            companies: vec![Company::new(0)],
            sharers: vec![0; nr_words],
            nr_words,
        };
        lines.add_block();
        lines
    }

    /// Returns how many lines have been touched.
    pub(super) fn len(&self) -> usize {
        self.nr_touched as usize
    }

    /// Returns a line's number, by first touch: the same in every process, unlike its place.
    pub(super) fn number(&self, id: LineId) -> u32 {
        self.numbers[id as usize]
    }

    #[inline(always)]
    pub(super) fn find(&self, address: usize) -> Option<LineId> {
        self.pages.get(page_key(address))?.line_of(address)
    }

    #[inline(always)]
    pub(super) fn get(&self, id: LineId) -> &Line {
        &self.lines[id as usize]
    }

    #[inline(always)]
    pub(super) fn get_mut(&mut self, id: LineId) -> &mut Line {
        &mut self.lines[id as usize]
    }

    /// Numbers a line that `cpu` touches first; it is the filler's if its page was filled, else nobody's. `home` is a
    /// CPU of the socket whose memory it lies in.
    pub(super) fn add(&mut self, address: usize, cpu: u16, home: u16) -> LineId {
        let place = self.pages.place(page_key(address));
        let block = address >> BLOCK_BITS & (NR_BLOCKS - 1);
        if self.pages.at(place).blocks[block] == 0 {
            let new = self.add_block();
            self.pages.at(place).blocks[block] = new;
        }
        let page = self.pages.at(place);
        page.touched |= bit_of(address);
        let (id, owner) = (page.place_of(address), page.filler());
        // Memory that was given back may have a company still, of which nothing is left but its place.
        let line = &mut self.lines[id as usize];
        line.owner = owner;
        line.user = if owner == NOBODY { cpu } else { owner };
        line.home = home | if owner == NOBODY { 0 } else { WRITTEN };
        self.numbers[id as usize] = self.nr_touched;
        self.nr_touched += 1;
        id
    }

    fn add_block(&mut self) -> u32 {
        let block = self.lines.len() / NR_IN_BLOCK;
        let none =
            Line { version: 0, company: 0, owner: NOBODY, user: NOBODY, home: 0, is_leaving: false, is_watched: false };
        self.lines.resize(self.lines.len() + NR_IN_BLOCK, none);
        self.numbers.resize(self.lines.len(), 0);
        block as u32
    }

    /// Gives all lines of a page to `cpu`, which has just filled it; returns who filled it before.
    pub(super) fn fill_page(&mut self, address: usize, cpu: u16, fillings: Fillings) -> Filled {
        let place = self.pages.place(page_key(address));
        let page = self.pages.at(place);
        let before = Filled { by: page.filler(), at: std::mem::replace(&mut page.fillings, fillings) };
        page.filler = cpu + 1;
        let page = *page;
        page.touched_lines().for_each(|id| self.give_to(id, cpu));
        before
    }

    /// Forgets what is known of memory that was given back: whatever it is next, it is as if it had never been touched.
    /// Each line that had a number is told to `forgotten`.
    pub(super) fn forget(&mut self, address: usize, len_bytes: usize, mut forgotten: impl FnMut(usize, LineId)) {
        let end = address + len_bytes.max(1);
        let mut start = address >> LINE_BITS << LINE_BITS;
        while start < end {
            let page_start = start >> PAGE_BITS << PAGE_BITS;
            let page_end = page_start + (1 << PAGE_BITS);
            let lines = (start..end.min(page_end)).step_by(1 << LINE_BITS);
            if let Some(page) = self.pages.get_mut(page_key(start)) {
                if address <= page_start && page_end <= end {
                    (page.filler, page.fillings) = (0, Fillings::default());
                }
                let before = *page;
                page.touched &= !lines.clone().fold(0, |bits, line| bits | bit_of(line));
                for line in lines {
                    if let Some(id) = before.line_of(line) {
                        self.give_to(id, NOBODY);
                        forgotten(line, id);
                    }
                }
            }
            start = page_end;
        }
    }

    /// Returns the lines of a page that have a number.
    pub(super) fn touched_in_page(&self, address: usize) -> impl Iterator<Item = LineId> {
        self.pages.get(page_key(address)).copied().unwrap_or_default().touched_lines()
    }

    fn give_to(&mut self, id: LineId, cpu: u16) {
        let line = &mut self.lines[id as usize];
        line.owner = cpu;
        line.user = cpu;
        line.set_written(cpu != NOBODY);
        line.is_leaving = false;
        if line.company != 0 {
            let company = &mut self.companies[line.company as usize];
            (company.busy_until, company.leaves_at, company.tail) = (0, NEVER, NOBODY);
            self.clear_sharers(id);
        }
    }

    #[inline(always)]
    fn company(&self, id: LineId) -> &Company {
        &self.companies[self.lines[id as usize].company as usize]
    }

    /// Returns a line's company, for whoever joins it.
    fn make_company(&mut self, id: LineId) -> &mut Company {
        let line = &mut self.lines[id as usize];
        if line.company == 0 {
            line.company = self.companies.len() as u32;
            self.companies.push(Company::new(self.sharers.len() as u32));
            self.sharers.resize(self.sharers.len() + self.nr_words, 0);
        }
        &mut self.companies[line.company as usize]
    }

    /// Returns when the last transfer of a line ends that was asked for.
    #[inline]
    pub(super) fn busy_until(&self, id: LineId) -> u64 {
        self.company(id).busy_until
    }

    /// Returns from when on a line is on its way.
    #[inline]
    pub(super) fn leaves_at(&self, id: LineId) -> u64 {
        if self.get(id).is_leaving { self.company(id).leaves_at } else { NEVER }
    }

    /// Returns who asked for a line last.
    #[inline]
    pub(super) fn tail(&self, id: LineId) -> u16 {
        self.company(id).tail
    }

    /// Notes until when a line is busy with who asked for it.
    pub(super) fn set_busy_until(&mut self, id: LineId, clock: u64) {
        self.make_company(id).busy_until = clock;
    }

    /// Notes from when on a line is on its way.
    pub(super) fn set_leaves_at(&mut self, id: LineId, clock: u64) {
        self.make_company(id).leaves_at = clock;
        self.lines[id as usize].is_leaving = clock != NEVER;
    }

    /// Notes who asked for a line last.
    pub(super) fn set_tail(&mut self, id: LineId, cpu: u16) {
        self.make_company(id).tail = cpu;
    }

    pub(super) fn sharers(&self, id: LineId) -> &[u64] {
        let start = self.company(id).sharers as usize;
        &self.sharers[start..start + self.nr_words]
    }

    #[inline]
    pub(super) fn is_sharer(&self, id: LineId, cpu: u16) -> bool {
        self.sharers(id)[usize::from(cpu) / 64] & (1 << (cpu % 64)) != 0
    }

    pub(super) fn add_sharer(&mut self, id: LineId, cpu: u16) {
        let start = self.make_company(id).sharers as usize;
        self.sharers[start + usize::from(cpu) / 64] |= 1 << (cpu % 64);
    }

    pub(super) fn clear_sharers(&mut self, id: LineId) {
        let start = self.company(id).sharers as usize;
        if start != 0 {
            self.sharers[start..start + self.nr_words].fill(0);
        }
    }

    /// Notes that a thread waits for the line to be written.
    pub(super) fn watch(&mut self, id: LineId, thread: u32) {
        self.make_company(id).watchers.push(thread);
        self.lines[id as usize].is_watched = true;
    }

    /// Undoes [`Lines::watch`].
    pub(super) fn unwatch(&mut self, id: LineId, thread: u32) {
        let watchers = &mut self.make_company(id).watchers;
        watchers.retain(|&watcher| watcher != thread);
        self.lines[id as usize].is_watched = !watchers.is_empty();
    }

    #[inline]
    pub(super) fn is_watched(&self, id: LineId) -> bool {
        self.get(id).is_watched
    }

    /// Takes those who watch a line; [`Lines::return_list`] gives the emptied list back.
    pub(super) fn take_watchers(&mut self, id: LineId) -> Vec<u32> {
        self.lines[id as usize].is_watched = false;
        std::mem::take(&mut self.make_company(id).watchers)
    }

    pub(super) fn return_list(&mut self, id: LineId, mut list: Vec<u32>) {
        list.clear();
        self.make_company(id).watchers = list;
    }
}

impl Line {
    /// Returns a CPU of the socket whose memory the line lies in.
    pub(super) fn home(&self) -> u16 {
        self.home & !WRITTEN
    }

    /// Says whether the line was written since its owner got it.
    #[inline(always)]
    pub(super) fn is_written(&self) -> bool {
        self.home & WRITTEN != 0
    }

    /// Notes whether the line was written since its owner got it.
    #[inline(always)]
    pub(super) fn set_written(&mut self, is_written: bool) {
        self.home = self.home & !WRITTEN | if is_written { WRITTEN } else { 0 };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_found_again_by_any_address_in_them() {
        let mut lines = Lines::new(70);
        let ids: Vec<LineId> = (1..5000_usize).map(|line| lines.add(line << 6, 3, 3)).collect();
        for (line, id) in (1..5000_usize).zip(ids) {
            assert_eq!(lines.find((line << 6) + 63), Some(id));
        }
        assert_eq!(lines.find(5000 << 6), None);
    }

    #[test]
    fn a_filled_page_belongs_to_the_filler_wherever_its_lines_were() {
        let mut lines = Lines::new(70);
        let line = lines.add(0x5040, 1, 1);
        lines.add_sharer(line, 69);
        assert!(lines.is_sharer(line, 69));
        let at = |of_cpu| Fillings { of_cpu, of_complex: 2 * of_cpu };
        assert_eq!(lines.fill_page(0x5000, 7, at(1)).by, NOBODY);
        assert_eq!((lines.get(line).owner, lines.is_sharer(line, 69)), (7, false));
        let fresh = lines.add(0x5fc0, 2, 2);
        assert_eq!(lines.get(fresh).owner, 7);
        let before = lines.fill_page(0x5000, 2, at(9));
        assert_eq!((before.by, before.at), (7, at(1)));
    }

    #[test]
    fn watchers_are_taken_once() {
        let mut lines = Lines::new(2);
        let line = lines.add(0x40, 0, 0);
        assert!(!lines.is_watched(line));
        lines.watch(line, 4);
        lines.watch(line, 5);
        lines.unwatch(line, 4);
        let list = lines.take_watchers(line);
        assert_eq!(list, [5]);
        lines.return_list(line, list);
        assert!(!lines.is_watched(line));
    }
}
