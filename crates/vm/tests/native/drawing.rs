//! Drawings of a space: before, call, after.
//!
//! ```text
//! scene("www..r", "12....").call(|s| s.munmap(1..2)).after("w.w..r", "1.....");
//! ```
//!
//! The first row says what area each page is in, a letter a page; the second what the page holds. A run of one letter
//! is one area; `|` tells two neighbours of one kind apart. `w(300)` is a run of 300. Page 0 is at [`ORIGIN`]; what
//! lies outside the window is not drawn.
//!
//! | area | is | page | holds |
//! |---|---|---|---|
//! | `.` | a hole | `.` | nothing |
//! | `w` `r` `x` `n` | private memory: to write, read, execute, or without rights | `1` to `9` | a frame with that number |
//! | `k` | a stack that grows down | `0` | a frame of zeros |
//! | `s` | shared zeros | `z` | the page of zeros, which nobody counts |
//! | `l` `m` `L` | locked: to write, to read, and to write when touched | `!` | a guard |
//! | `d` `o` | not for children, empty for children | | |
//! | `S` `R` | sealed: to write, to read | | |
//! | `N` | to write, and not accounted for | | |
//! | `p` `q` | of a reference page: to write, and not (mapped by hand) | `p` | a reference page, which nobody counts |
//! | | | `c` | a frame of [`PATTERN`] again and again |

use super::world::{Tested, World};
use faultless_platform::native::Native;
use faultless_vm::{
    AddressRange, Advice, AreaFlags, AreaLine, Backing, CallError, FaultsTaken, Guest, Limits, LockAll, MapRequest,
    PAGE, PageLock, Placement, Populate, RemapPlacement, RemapRequest, SpaceRef, VirtAddr,
};
use std::iter;
use std::ops::Range;

/// First byte of page 0.
pub const ORIGIN: u64 = 0x1000_0000;
/// What the reference pages of drawings repeat.
pub const PATTERN: u64 = 0xaaaa_aaaa_aaaa_aaaa;
/// Pages that are drawn.
const WINDOW: u64 = 8192;
/// Runs of at least so many pages are written with their length.
const LONG: usize = 9;

/// Loads and stores.
const RW: AreaFlags = AreaFlags::READ.union(AreaFlags::WRITE);

/// Returns the address of a page.
pub const fn at(page: u64) -> u64 {
    ORIGIN + page * PAGE
}

/// A space that is drawn.
pub struct Scene<'vm, D: Tested> {
    pub world: &'vm World<D>,
    pub space: SpaceRef<'vm, Native, D>,
    pub guest: Guest<'vm, Native, D>,
}

/// What a space counts, in pages but for the areas.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Counts {
    pub areas: u64,
    pub mapped: u64,
    pub data: u64,
    pub locked: u64,
    pub resident: u64,
}

impl<D: Tested> World<D> {
    /// Draws a space under no limits.
    pub fn scene(&self, areas: &str, pages: &str) -> Scene<'_, D> {
        self.limited(Limits::default(), areas, pages)
    }

    /// Draws a space under limits, which what is drawn keeps.
    pub fn limited(&self, limits: Limits, areas: &str, pages: &str) -> Scene<'_, D> {
        let space = self.vm.create_space(limits).expect("room for a space");
        let guest = Guest::new(&space);
        let scene = Scene { world: self, space, guest };
        scene.draw(areas, pages);
        scene.after(areas, pages)
    }
}

impl<'vm, D: Tested> Scene<'vm, D> {
    fn draw(&self, areas: &str, pages: &str) {
        let pages = expanded(pages);
        let held = |page: u64| pages.get(page as usize).copied().unwrap_or('.');
        for (kind, range) in runs(&expanded(areas)) {
            let is_filled = range.clone().any(|page| held(page).is_ascii_digit());
            // Rights that forbid stores come when the pages are filled.
            let rights = if is_filled { RW } else { rights_of(kind) };
            self.map(range.clone(), rights | kind_of(kind), backing_of(kind));
            range.clone().for_each(|page| self.fill(page, held(page)));
            if is_filled && rights_of(kind) != RW {
                self.protect(range.clone(), rights_of(kind)).expect("just mapped");
            }
            self.finish(kind, range);
        }
    }

    fn map(&self, pages: Range<u64>, flags: AreaFlags, backing: Backing<'_, Native>) {
        let request = MapRequest {
            placement: Placement::FixedNoReplace(VirtAddr::new(at(pages.start))),
            len_bytes: (pages.end - pages.start) * PAGE,
            protection: flags.protection(),
            options: flags.options(),
            backing,
            populate: Populate::OnFault,
        };
        self.space.mmap(&request).expect("what is drawn keeps the limits");
    }

    fn fill(&self, page: u64, held: char) {
        match held.to_digit(10) {
            Some(value) => self.put(page, u64::from(value)),
            None if held == 'z' => assert_eq!(self.load(page), 0),
            None if held == '!' => self.advise(page..page + 1, Advice::GuardInstall).expect("just mapped"),
            None => {}
        }
    }

    fn finish(&self, kind: char, pages: Range<u64>) {
        match kind {
            'l' | 'm' => self.lock(pages, PageLock::Lock).expect("just mapped"),
            'L' => self.lock(pages, PageLock::LockOnFault).expect("just mapped"),
            'd' => self.advise(pages, Advice::DontFork).expect("just mapped"),
            'o' => self.advise(pages, Advice::WipeOnFork).expect("just mapped"),
            'S' | 'R' => self.seal(pages).expect("just mapped"),
            _ => {}
        }
    }

    /// Makes a call that succeeds.
    #[track_caller]
    pub fn call<T>(self, act: impl FnOnce(&Self) -> Result<T, CallError>) -> Self {
        granted(act(&self).err());
        self
    }

    /// Makes a call that fails so.
    #[track_caller]
    pub fn refuse<T>(self, act: impl FnOnce(&Self) -> Result<T, CallError>, error: CallError) -> Self {
        refused(act(&self).err(), error);
        self
    }

    /// Does something else.
    pub fn also(self, act: impl FnOnce(&Self)) -> Self {
        act(&self);
        self
    }

    /// Compares the space with a drawing, and checks the invariants.
    #[track_caller]
    pub fn after(self, areas: &str, pages: &str) -> Self {
        let tidy = |row: &str| compressed(expanded_with_bars(row));
        assert_eq!((self.areas(), self.pages()), (tidy(areas), tidy(pages)));
        self.world.check("after the call");
        self
    }

    /// Returns the areas and the first pages.
    pub fn picture(&self, nr_pages: u64) -> (String, String) {
        (self.areas(), compressed((0..nr_pages).map(|page| self.held(page)).collect()))
    }

    /// Compares what the space counts.
    #[track_caller]
    pub fn counts(self, [areas, mapped, data, locked, resident]: [u64; 5]) -> Self {
        let expected = Counts { areas, mapped, data, locked, resident };
        let space = &self.space;
        let found = Counts {
            areas: space.nr_areas(),
            mapped: space.mapped_bytes() / PAGE,
            data: space.data_bytes() / PAGE,
            locked: space.locked_bytes() / PAGE,
            resident: space.resident_pages(),
        };
        assert_eq!(found, expected);
        self
    }

    /// Returns a child of the space.
    #[track_caller]
    pub fn fork(&self) -> Self {
        let space = self.space.fork().expect("room for a child");
        Self { world: self.world, guest: Guest::new(&space), space }
    }

    pub fn mmap(&self, pages: Range<u64>, kind: char) -> Result<u64, CallError> {
        self.mmap_at(Placement::Fixed(VirtAddr::new(at(pages.start))), pages.end - pages.start, kind)
    }

    pub fn mmap_at(&self, placement: Placement, nr_pages: u64, kind: char) -> Result<u64, CallError> {
        let locked = if kind == 'l' { AreaFlags::LOCKED } else { AreaFlags::empty() };
        self.space
            .mmap(&MapRequest {
                placement,
                len_bytes: nr_pages * PAGE,
                protection: (rights_of(kind) | kind_of(kind) | locked).protection(),
                options: (rights_of(kind) | kind_of(kind) | locked).options(),
                backing: backing_of(kind),
                populate: Populate::OnFault,
            })
            .map(VirtAddr::get)
    }

    pub fn munmap(&self, pages: Range<u64>) -> Result<(), CallError> {
        self.space.munmap(AddressRange::new(VirtAddr::new(at(pages.start)), len(&pages)))
    }

    pub fn protect(&self, pages: Range<u64>, rights: AreaFlags) -> Result<(), CallError> {
        self.space.mprotect(AddressRange::new(VirtAddr::new(at(pages.start)), len(&pages)), rights.protection())
    }

    pub fn advise(&self, pages: Range<u64>, advice: Advice) -> Result<(), CallError> {
        self.space.madvise(AddressRange::new(VirtAddr::new(at(pages.start)), len(&pages)), advice)
    }

    pub fn lock(&self, pages: Range<u64>, lock: PageLock) -> Result<(), CallError> {
        self.space.mlock(AddressRange::new(VirtAddr::new(at(pages.start)), len(&pages)), lock)
    }

    pub fn lock_all(&self, what: LockAll) -> Result<(), CallError> {
        self.space.mlock_all(what)
    }

    pub fn seal(&self, pages: Range<u64>) -> Result<(), CallError> {
        self.space.mseal(AddressRange::new(VirtAddr::new(at(pages.start)), len(&pages)))
    }

    /// Moves pages to page `to`, in place of what is there.
    pub fn move_to(&self, pages: Range<u64>, to: u64) -> Result<u64, CallError> {
        let nr_pages = pages.end - pages.start;
        self.remap(pages, nr_pages, RemapPlacement::Fixed(VirtAddr::new(at(to))))
    }

    /// Moves what pages hold to page `to`, and leaves the area.
    pub fn empty_to(&self, pages: Range<u64>, to: u64) -> Result<u64, CallError> {
        let nr_pages = pages.end - pages.start;
        let request = self.request(pages, nr_pages, RemapPlacement::Fixed(VirtAddr::new(at(to))));
        self.space.mremap(&RemapRequest { keeps_source: true, ..request }).map(VirtAddr::get)
    }

    pub fn remap(&self, pages: Range<u64>, nr_pages: u64, placement: RemapPlacement) -> Result<u64, CallError> {
        self.space.mremap(&self.request(pages, nr_pages, placement)).map(VirtAddr::get)
    }

    fn request(&self, pages: Range<u64>, nr_pages: u64, placement: RemapPlacement) -> RemapRequest {
        RemapRequest {
            old: AddressRange::new(VirtAddr::new(at(pages.start)), len(&pages)),
            new_len_bytes: nr_pages * PAGE,
            placement,
            keeps_source: false,
        }
    }

    pub fn store(&self, page: u64, value: u64) -> Result<FaultsTaken, faultless_vm::AccessError> {
        self.guest.store(VirtAddr::new(at(page)), value)
    }

    /// Stores to a page that is mapped.
    #[track_caller]
    pub fn put(&self, page: u64, value: u64) {
        self.store(page, value).expect("mapped");
    }

    #[track_caller]
    pub fn load(&self, page: u64) -> u64 {
        self.guest.load(VirtAddr::new(at(page))).expect("mapped").0
    }

    /// Returns the first page of the first area of a kind.
    pub fn place_of(&self, kind: char) -> Option<u64> {
        let mut place = None;
        self.space.for_each_area(|area| {
            if letter(&area) == kind && area.range.start().get() >= ORIGIN {
                place = place.or(Some((area.range.start().get() - ORIGIN) / PAGE));
            }
        });
        place
    }

    fn areas(&self) -> String {
        let (mut row, mut end): (Vec<char>, u64) = (Vec::new(), ORIGIN);
        self.space.for_each_area(|area| {
            if area.range.start().get() < ORIGIN || area.range.end().get() > at(WINDOW) {
                return;
            }
            row.extend(iter::repeat_n('.', ((area.range.start().get() - end) / PAGE) as usize));
            let kind = letter(&area);
            if area.range.start().get() == end && row.last() == Some(&kind) {
                row.push('|');
            }
            row.extend(iter::repeat_n(kind, ((area.range.end().get() - area.range.start().get()) / PAGE) as usize));
            end = area.range.end().get();
        });
        compressed(row)
    }

    fn pages(&self) -> String {
        compressed((0..WINDOW).map(|page| self.held(page)).collect())
    }

    fn held(&self, page: u64) -> char {
        let entry = self.space.entry_at(VirtAddr::new(at(page)));
        match entry {
            _ if entry.is_vacant() => '.',
            _ if entry.is_guard() => '!',
            _ if entry.is_special() && entry.pfn() == self.world.vm.zero_page() => 'z',
            _ if entry.is_special() => 'p',
            _ => {
                // SAFETY: the space holds the frame, and nobody runs in it.
                let value = unsafe { self.world.vm.memory().frame(entry.pfn()).cast::<u64>().read() };
                match u32::try_from(value) {
                    Ok(value) => char::from_digit(value, 10).unwrap_or('?'),
                    Err(_) if value == PATTERN => 'c',
                    Err(_) => '?',
                }
            }
        }
    }
}

/// Fails where a call was refused.
#[track_caller]
fn granted(error: Option<CallError>) {
    if let Some(error) = error {
        panic!("refused: {error}");
    }
}

/// Fails where a call was not refused so.
#[track_caller]
fn refused(found: Option<CallError>, error: CallError) {
    assert_eq!(found, Some(error));
}

fn len(pages: &Range<u64>) -> u64 {
    (pages.end - pages.start) * PAGE
}

fn rights_of(kind: char) -> AreaFlags {
    match kind {
        'r' | 'R' | 'm' => AreaFlags::READ,
        'x' => AreaFlags::READ | AreaFlags::EXEC,
        'n' => AreaFlags::empty(),
        _ => RW,
    }
}

fn kind_of(kind: char) -> AreaFlags {
    match kind {
        's' => AreaFlags::SHARED,
        'k' => AreaFlags::GROWSDOWN,
        'N' => AreaFlags::NORESERVE,
        _ => AreaFlags::empty(),
    }
}

fn backing_of(kind: char) -> Backing<'static, Native> {
    if kind == 's' { Backing::SharedZeros } else { Backing::Anonymous }
}

/// Returns the letter of an area.
fn letter(area: &AreaLine) -> char {
    let is = |flags| area.flags.contains(flags);
    let is_writable = is(AreaFlags::WRITE);
    match area.flags {
        _ if is(AreaFlags::SEALED) => {
            if is_writable {
                'S'
            } else {
                'R'
            }
        }
        _ if area.is_reference && is_writable => 'p',
        _ if area.is_reference => 'q',
        _ if is(AreaFlags::LOCKS) => 'L',
        _ if is(AreaFlags::LOCKED) => {
            if is_writable {
                'l'
            } else {
                'm'
            }
        }
        _ if is(AreaFlags::DONTFORK) => 'd',
        _ if is(AreaFlags::WIPEONFORK) => 'o',
        _ if is(AreaFlags::GROWSDOWN) => 'k',
        _ if is(AreaFlags::SHARED) => 's',
        _ if is(AreaFlags::NORESERVE) => 'N',
        _ if is_writable => 'w',
        _ if is(AreaFlags::EXEC) => 'x',
        _ if is(AreaFlags::READ) => 'r',
        _ => 'n',
    }
}

/// Returns the kinds and pages of the areas of a row.
fn runs(row: &[char]) -> Vec<(char, Range<u64>)> {
    let mut runs: Vec<(char, Range<u64>)> = Vec::new();
    for (page, &kind) in (0..).zip(row) {
        match runs.last_mut() {
            Some((last, range)) if *last == kind && range.end == page => range.end += 1,
            _ => runs.push((kind, page..page + 1)),
        }
    }
    runs.retain(|(kind, _)| *kind != '.');
    runs
}

fn expanded(row: &str) -> Vec<char> {
    assert!(!row.contains('|'), "{row}: what is drawn first has no two neighbours of one kind");
    expanded_with_bars(row)
}

/// Writes a row's runs out.
fn expanded_with_bars(row: &str) -> Vec<char> {
    let mut out: Vec<char> = Vec::new();
    let mut rest = row;
    while let Some(mark) = rest.chars().next() {
        rest = &rest[1..];
        let count = rest.strip_prefix('(').and_then(|run| run.split_once(')'));
        let nr = count.map_or(1, |(number, _)| number.parse().expect("a run's length"));
        rest = count.map_or(rest, |(_, behind)| behind);
        out.extend(iter::repeat_n(mark, nr));
    }
    out
}

/// Writes long runs with their lengths, and no holes at the end.
fn compressed(mut row: Vec<char>) -> String {
    while row.last() == Some(&'.') {
        row.pop();
    }
    let same = row.chunk_by(|left, right| left == right);
    same.map(|run| match run.len() {
        nr if nr >= LONG => format!("{}({nr})", run[0]),
        _ => run.iter().collect(),
    })
    .collect()
}
