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
//! # Invariants
//! * I1 a line with an owner has no sharers.
//! * I2 a line that one CPU alone has touched has no watchers.

/// No CPU.
pub(super) const NOBODY: u16 = u16::MAX;
/// Many CPUs.
pub(super) const MANY: u16 = u16::MAX - 1;
/// Far in the future.
pub(super) const NEVER: u64 = u64::MAX;

const LINE_BITS: u32 = 6;
const PAGE_BITS: u32 = 12;

/// Returns a line's key: 0 is none's.
#[inline(always)]
pub(super) fn line_key(address: usize) -> u64 {
    (address >> LINE_BITS) as u64 + 1
}

/// Returns a page's key: 0 is none's.
#[inline(always)]
pub(super) fn page_key(address: usize) -> u64 {
    (address >> PAGE_BITS) as u64 + 1
}

/// A line's number, by first touch.
pub(super) type LineId = u32;

/// What is known of a line; see the module.
pub(super) struct Line {
    pub(super) busy_until: u64,
    pub(super) leaves_at: u64,
    pub(super) version: u32,
    /// Where its sharers and watchers are; 0 if it never had any.
    company: u32,
    pub(super) owner: u16,
    pub(super) tail: u16,
    pub(super) user: u16,
    /// A CPU of the socket whose memory it lies in, unless lines go round the sockets: the CPU that touched it first,
    /// if it was not placed.
    home: u16,
}

// Two to a line of the host's: in a large simulation most accesses miss the host's caches here.
const _: () = assert!(size_of::<Line>() == 32);

/// In `home`: whether the line was written since its owner got it.
const WRITTEN: u16 = 1 << 15;
const _: () = assert!(faultless_platform::MAX_CPUS <= WRITTEN as usize);

/// Who shares a line, and who waits for it to be written.
struct Company {
    /// Where the sharers' words are.
    sharers: u32,
    watchers: Vec<u32>,
}

/// What is known of a page as a whole.
struct Page {
    /// Lines of the page that have a number.
    touched: u64,
    /// Who filled it last.
    filler: u16,
    /// Which of the filler's fillings it was, and which of its complex's.
    fillings: Fillings,
}

/// How many pages a CPU has filled or copied from, and its complex.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Fillings {
    pub(super) of_cpu: u64,
    pub(super) of_complex: u64,
}

/// A table from keys, which are never 0, to small numbers; keys stay.
pub(super) struct Index {
    slots: Vec<(u64, u32)>,
    len: usize,
}

impl Index {
    pub(super) fn new() -> Self {
        Self { slots: vec![(0, 0); 1 << 10], len: 0 }
    }

    #[inline(always)]
    pub(super) fn find(&self, key: u64) -> Result<u32, usize> {
        let mask = self.slots.len() - 1;
        let mut place = (key.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 24) as usize & mask;
        loop {
            let (found, value) = self.slots[place];
            if found == key {
                return Ok(value);
            }
            if found == 0 {
                return Err(place);
            }
            place = (place + 1) & mask;
        }
    }

    pub(super) fn insert(&mut self, key: u64, value: u32) {
        // Three quarters full: a smaller table misses the host's caches less, and most probes stay within one of its
        // lines.
        if self.len * 4 >= self.slots.len() * 3 {
            self.grow();
        }
        if let Err(place) = self.find(key) {
            self.slots[place] = (key, value);
            self.len += 1;
        }
    }

    fn grow(&mut self) {
        let larger = vec![(0, 0); self.slots.len() * 2];
        let old = std::mem::replace(&mut self.slots, larger);
        for (key, value) in old.into_iter().filter(|slot| slot.0 != 0) {
            if let Err(place) = self.find(key) {
                self.slots[place] = (key, value);
            }
        }
    }
}

/// All lines that were touched.
pub(super) struct Lines {
    index: Index,
    lines: Vec<Line>,
    pages: Index,
    page_infos: Vec<Page>,
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
        Self {
            index: Index::new(),
            lines: Vec::new(),
            pages: Index::new(),
            page_infos: Vec::new(),
            companies: vec![Company { sharers: 0, watchers: Vec::new() }],
            sharers: vec![0; nr_words],
            nr_words,
        }
    }

    /// Returns how many lines have been touched.
    pub(super) fn len(&self) -> usize {
        self.lines.len()
    }

    #[inline(always)]
    pub(super) fn find(&self, address: usize) -> Option<LineId> {
        self.index.find(line_key(address)).ok()
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
        let id = self.lines.len() as LineId;
        let page = self.page(address);
        page.touched |= 1 << (address >> LINE_BITS & 63);
        let owner = page.filler;
        self.lines.push(Line {
            busy_until: 0,
            leaves_at: NEVER,
            version: 0,
            company: 0,
            owner,
            tail: NOBODY,
            user: if owner == NOBODY { cpu } else { owner },
            home: home | if owner == NOBODY { 0 } else { WRITTEN },
        });
        self.index.insert(line_key(address), id);
        id
    }

    fn page(&mut self, address: usize) -> &mut Page {
        let key = page_key(address);
        let place = self.pages.find(key).unwrap_or_else(|_| {
            let place = self.page_infos.len() as u32;
            self.page_infos.push(Page { touched: 0, filler: NOBODY, fillings: Fillings::default() });
            self.pages.insert(key, place);
            place
        });
        &mut self.page_infos[place as usize]
    }

    /// Gives all lines of a page to `cpu`, which has just filled it; returns who filled it before.
    pub(super) fn fill_page(&mut self, address: usize, cpu: u16, fillings: Fillings) -> Filled {
        let page = self.page(address);
        let before = Filled {
            by: std::mem::replace(&mut page.filler, cpu),
            at: std::mem::replace(&mut page.fillings, fillings),
        };
        let touched = page.touched;
        self.for_each_touched(address, touched, |line| line.give_to(cpu));
        before
    }

    /// Forgets what is known of a page's lines: its memory was given back, and will be something else.
    pub(super) fn forget(&mut self, address: usize, len_bytes: usize) {
        let first = address >> LINE_BITS;
        let last = (address + len_bytes.max(1) - 1) >> LINE_BITS;
        for line in first..=last {
            if let Ok(id) = self.index.find(line_key(line << LINE_BITS)) {
                self.clear_sharers(id);
                self.lines[id as usize].give_to(NOBODY);
            }
        }
    }

    /// Returns the lines of a page that have a number.
    pub(super) fn touched_in_page(&self, address: usize) -> impl Iterator<Item = LineId> {
        let key = page_key(address);
        let touched = self.pages.find(key).map_or(0, |place| self.page_infos[place as usize].touched);
        let page = address >> PAGE_BITS << PAGE_BITS;
        let is_touched = move |line: &usize| touched & 1 << line != 0;
        (0..64).filter(is_touched).filter_map(move |line| self.find(page + (line << LINE_BITS)))
    }

    fn for_each_touched(&mut self, address: usize, touched: u64, mut act: impl FnMut(&mut Line)) {
        let page = address >> PAGE_BITS << PAGE_BITS;
        let mut rest = touched;
        while rest != 0 {
            let line = page + ((rest.trailing_zeros() as usize) << LINE_BITS);
            rest &= rest - 1;
            if let Some(id) = self.find(line) {
                self.clear_sharers(id);
                act(&mut self.lines[id as usize]);
            }
        }
    }

    fn company(&self, id: LineId) -> &Company {
        &self.companies[self.lines[id as usize].company as usize]
    }

    /// Returns a line's company, for whoever joins it.
    fn make_company(&mut self, id: LineId) -> &mut Company {
        let line = &mut self.lines[id as usize];
        if line.company == 0 {
            line.company = self.companies.len() as u32;
            self.companies.push(Company { sharers: self.sharers.len() as u32, watchers: Vec::new() });
            self.sharers.resize(self.sharers.len() + self.nr_words, 0);
        }
        &mut self.companies[line.company as usize]
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
    }

    /// Undoes [`Lines::watch`].
    pub(super) fn unwatch(&mut self, id: LineId, thread: u32) {
        self.make_company(id).watchers.retain(|&watcher| watcher != thread);
    }

    #[inline]
    pub(super) fn is_watched(&self, id: LineId) -> bool {
        !self.company(id).watchers.is_empty()
    }

    /// Takes those who watch a line; [`Lines::return_list`] gives the emptied list back.
    pub(super) fn take_watchers(&mut self, id: LineId) -> Vec<u32> {
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

    fn give_to(&mut self, cpu: u16) {
        self.owner = cpu;
        self.user = cpu;
        self.set_written(cpu != NOBODY);
        self.leaves_at = NEVER;
        self.busy_until = 0;
        self.tail = NOBODY;
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
