//! The invariants, checked.
//!
//! # Guarantee
//! [`invariants`] looks at every space, table, frame and TLB of an instance and names the first invariant that is
//! broken, with the address. It empties inboxes and ends what was dropped by threads without a CPU; it changes
//! nothing else. Nobody may use the instance meanwhile.
//!
//! # What is checked
//! Numbers are those of the project's list of invariants.
//! * 1 areas sorted, disjoint, aligned, inside user memory and not too low; their count, within the limit, and the sums
//!   of their sizes, of data and of locked memory are those that the space keeps; no CPU holds credits that a recall
//!   would miss; pieces of an area say so of each other, and have one root or none
//! * 2 every entry that is not empty lies in an area and is no stronger than it; a writable or exclusive entry of a
//!   private area maps a frame that nobody else maps; a private frame lies in an area with its reverse-map root, at its
//!   page offset, and one of an object is what the object has there; nothing is mapped, and nothing kept, behind an
//!   object's end
//! * 3 a frame's references are the entries, objects and pins that hold it; entries hold none of an object's pages; the
//!   zero page is never writable, and zero; a reference page is never counted and never writable, holds what it was
//!   made with, and is there as long as a handle, an area or a pin refers to it; an area maps no page that nobody owns
//!   but its own; a shared table has as many references as spaces have it, and holds each frame once
//! * 4, 5 no TLB knows a translation stronger than the tables, of a space that is gone, or of a page whose shootdown
//!   does not ask its CPU
//! * 8 every frame is free or somebody's, and every area some space's, unless the design keeps it for readers
//!
//! # Cost
//! A pass over the areas, the tables in use, and the frames that were ever given out; cheap enough to follow each call
//! of a test.

use crate::addr::{PAGE, USER_END, VirtAddr, is_page_aligned};
use crate::area::{AreaFlags, AreaView};
use crate::content::Content;
use crate::design::Design;
use crate::entry::{Entry, EntryFlags};
use crate::instance::Vm;
use crate::limits::Privileges;
use crate::object::Object;
use crate::pin::Pinned;
use crate::pool::Pool;
use crate::reference::Reference;
use crate::system::System;
use crate::translations::Instance;
use crate::translations::counted::counted_entries;
use crate::translations::sharer::for_each_spare;
use crate::translations::table::{Tables, is_shared};
use crate::translations::tlb::{SpaceId, Translation};
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;
use core::ops::Range;
use faultless_phys::{FrameSource, Kind, Pfn};
use faultless_platform::{Atomic, Ordering, PAGE_BYTES};
use seen::{SeenSpace, Sums};

/// An invariant that doesn't hold.
/// [`invariants`] returns it; a soak prints it and stops.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Broken {
    /// Its number.
    pub invariant: u32,
    /// What was found.
    pub what: String,
}

impl fmt::Display for Broken {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "invariant {} is broken: {}", self.invariant, self.what)
    }
}

impl core::error::Error for Broken {}

macro_rules! ensure {
    ($invariant:literal, $holds:expr, $($what:tt)+) => {
        if !$holds {
            return Err(Broken { invariant: $invariant, what: alloc::format!($($what)+) });
        }
    };
}

/// What the spaces hold, collected on the way.
struct Census {
    /// References that entries and objects hold to each frame, by its number.
    holds: Vec<u32>,
    /// References that pins hold to each frame.
    pins: Vec<u32>,
    /// Which frames are somebody's.
    in_use: Vec<bool>,
    /// Reference pages, and frames that pins hold without a count.
    uncounted: Vec<(Pfn, Uncounted)>,
    /// Which frames are page tables of a tree, or put aside for one.
    tables: Vec<bool>,
    /// How many spaces have each table that is shared.
    sharers: Vec<u32>,
    /// Frames that private mappings may write, or have for themselves, and where.
    exclusive: Vec<(Pfn, u64)>,
    /// Areas of all spaces.
    nr_areas: u64,
}

/// Why a frame must be there although nobody counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Uncounted {
    /// It is a reference page.
    Reference,
    /// A pin holds it.
    Pinned,
}

impl Census {
    fn new<P: System>(memory: &P::Frames) -> Self {
        let end = memory.end() as usize;
        Self {
            holds: alloc::vec![0; end],
            pins: alloc::vec![0; end],
            in_use: alloc::vec![false; end],
            uncounted: Vec::new(),
            tables: alloc::vec![false; end],
            sharers: alloc::vec![0; end],
            exclusive: Vec::new(),
            nr_areas: 0,
        }
    }

    fn hold(&mut self, pfn: Pfn) {
        if let Some(count) = self.holds.get_mut(pfn.index()) {
            *count += 1;
        }
    }

    fn holds(&self, pfn: Pfn) -> u32 {
        self.holds.get(pfn.index()).copied().unwrap_or(0)
    }

    fn pin(&mut self, pfn: Pfn) {
        if let Some(count) = self.pins.get_mut(pfn.index()) {
            *count += 1;
        }
    }

    fn is_reference(&self, pfn: Pfn) -> bool {
        self.uncounted.contains(&(pfn, Uncounted::Reference))
    }

    /// Notes a table that others may have, too; says whether it is the first time. Its spares are tables as well.
    fn note_shared<P: System>(&mut self, memory: &P::Frames, table: Pfn) -> bool {
        let Some(nr_sharers) = self.sharers.get_mut(table.index()) else { return true };
        *nr_sharers += 1;
        if *nr_sharers != 1 {
            return false;
        }
        for_each_spare::<P>(memory, table, &mut |spare| {
            self.note_table(spare);
        });
        true
    }

    /// Notes a table; says whether it was none before.
    fn note_table(&mut self, table: Pfn) -> bool {
        self.tables.get_mut(table.index()).is_some_and(|known| !core::mem::replace(known, true))
    }
}

/// Checks everything; see the module.
///
/// # Safety
/// No other thread uses the instance, its spaces or objects meanwhile.
///
/// ```
/// use faultless_vm::check::{Broken, invariants};
/// # use faultless_phys::{Memory, Options};
/// # use faultless_platform::native::{HostRegion, Machine, Native};
/// # let region = HostRegion::reserve(64 << 20)?;
/// # Machine::new(2).attach(|| {
/// #     // SAFETY: the region is zeroed, ours alone, and outlives the instance.
/// #     let memory = unsafe { Memory::<Native>::new(region.base(), region.len_bytes(), 2, Options::default()) }?;
/// #     let vm = faultless_vm::Vm::<Native>::new(memory)?;
/// #     let space = vm.create_space(faultless_vm::Limits::default())?;
/// #     let guest = faultless_vm::Guest::new(&space);
/// let result: Result<(), Broken> = {
///     // SAFETY: no other thread uses the instance.
///     unsafe { invariants(&vm) }
/// };
/// result?;
/// #     Ok::<(), Box<dyn std::error::Error>>(())
/// # })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub unsafe fn invariants<P: System, D: Design<P>>(vm: &Vm<P, D>) -> Result<(), Broken> {
    vm.end_orphans();
    vm.memory().rcu().flush();
    let mut census = Census::new::<P>(vm.memory());
    let mut result = Ok(());
    vm.for_each_space(|space| {
        if result.is_ok() {
            result = check_space(space, &mut census);
        }
    });
    result?;
    check_objects(vm.objects(), vm.memory(), &mut census)?;
    check_references(vm.references(), vm.memory(), &mut census)?;
    count_pins(vm.pins(), &mut census);
    check_frames(&vm.instance, &mut census)?;
    let nr_kept = (vm.areas.nr_live() - vm.areas.nr_deferred()) as u64;
    let is_kept = nr_kept == census.nr_areas || D::has_deferred(vm);
    ensure!(8, is_kept, "{nr_kept} areas are there, spaces have {}", census.nr_areas);
    let fact_of = |cpu, id, address| {
        let mut fact = None;
        vm.for_each_space(|space| {
            if space.id() == id {
                let entry = space.translations.read(address);
                fact = Some(Fact { entry, is_asked: space.lanes().reach(cpu, address) });
            }
        });
        fact
    };
    // SAFETY: the caller's promise.
    unsafe { check_tlbs(&vm.instance, &fact_of) }
}

/// Notes what the objects hold, and checks that they keep nothing behind their ends.
fn check_objects<P: System>(
    objects: &Pool<P, Object<P>>,
    memory: &P::Frames,
    census: &mut Census,
) -> Result<(), Broken> {
    let mut behind = None;
    objects.for_each_listed(|object| {
        object.for_each_table(memory, &mut |table| {
            census.note_table(table);
        });
        object.for_each_frame(memory, &mut |pfn| census.hold(pfn));
        behind = behind.or(object.page_behind_end(memory));
    });
    ensure!(2, behind.is_none(), "an object keeps a page at {behind:x?}, behind its end");
    Ok(())
}

/// Checks that the index says what its areas say.
fn check_index<P: System>(space: &dyn SeenSpace<P>) -> Result<u64, Broken> {
    let (mut nr_areas, mut wrong, mut bad_seam) = (0, None, None);
    let mut below: Option<AreaView<P>> = None;
    space.for_each_indexed(&mut |start, end, view| {
        if (view.start, view.end) != (VirtAddr::new(start), VirtAddr::new(end)) {
            wrong = wrong.or(Some((start, end, view.start, view.end)));
        }
        if !is_seam_whole(below.as_ref(), Some(&view)) {
            bad_seam = bad_seam.or(Some(start));
        }
        below = Some(view);
        nr_areas += 1;
    });
    if let Some((start, end, own_start, own_end)) = wrong {
        ensure!(1, false, "index says {start:#x}-{end:#x}, the area {own_start:#x}-{own_end:#x}");
    }
    if !is_seam_whole(below.as_ref(), None) {
        bad_seam = bad_seam.or(below.map(|last| last.end.get()));
    }
    if let Some(bound) = bad_seam {
        ensure!(
            1,
            false,
            "what lies at {bound:#x} is left open, or says that it is cut from a neighbour that is another area"
        );
    }
    Ok(nr_areas)
}

/// Says whether two neighbours in the index agree that they are one area which is cut there, or that they aren't; where
/// they are, they would be joined, have one root or none, and nothing is left open (S2 of `space::seams`).
fn is_seam_whole<P: System>(lower: Option<&AreaView<P>>, upper: Option<&AreaView<P>>) -> bool {
    let says = |side: Option<&AreaView<P>>, flag| side.is_some_and(|side| side.flags.contains(flag));
    let are_one = lower
        .zip(upper)
        .is_some_and(|(lower, upper)| lower.end == upper.start && lower.joins(upper) && lower.root == upper.root);
    let [lower_says, upper_says] = [says(lower, AreaFlags::SEAM_ABOVE), says(upper, AreaFlags::SEAM_BELOW)];
    lower_says == upper_says && (are_one || !lower_says) && !says(upper, AreaFlags::SEAM_OPEN)
}

fn check_space<P: System>(space: &dyn SeenSpace<P>, census: &mut Census) -> Result<(), Broken> {
    census.nr_areas += check_index(space)?;
    let mut areas = Vec::new();
    space.for_each_area(&mut |area| areas.push((area.range, area.flags)));
    let lowest = areas.first().map_or(u64::MAX, |area| area.0.start().get());
    let (mut position, mut nr_areas) = (0, 0);
    let [mut bytes, mut data, mut locked] = [0; 3];
    let mut has_sealed = false;
    for (range, flags) in areas {
        let Range { start, end } = range.numbers();
        ensure!(1, start < end && is_page_aligned(start | end), "area {start:#x}-{end:#x} is empty or not aligned");
        ensure!(1, start >= position && end <= USER_END, "area {start:#x}-{end:#x} overlaps or leaves user memory");
        (position, nr_areas, bytes) = (end, nr_areas + 1, bytes + (end - start));
        data += if flags.is_data() { end - start } else { 0 };
        locked += if flags.contains(AreaFlags::LOCKED) { end - start } else { 0 };
        has_sealed |= flags.contains(AreaFlags::SEALED);
    }
    let limits = space.limits();
    let is_privileged = limits.privileges.contains(Privileges::LOW_ADDRESSES);
    ensure!(1, is_privileged || lowest >= limits.mmap_min_addr, "an area begins at {lowest:#x}, too low");
    let limit = limits.max_map_count.saturating_add(1);
    // As on Linux, an unmapping that meets a sealed area has cut the one that it begins in, whatever the limit.
    ensure!(1, nr_areas <= limit || has_sealed, "{nr_areas} areas, the limit allows {limit}");
    let Sums { nr_areas: nr_counted, mapped_bytes, data_bytes, locked_bytes, stray } = space.sums();
    ensure!(1, data == data_bytes, "{data} bytes of data, the total says {data_bytes}");
    ensure!(1, locked == locked_bytes, "{locked} bytes locked, the total says {locked_bytes}");
    ensure!(1, nr_areas == nr_counted, "{nr_areas} areas, map_count says {nr_counted}");
    ensure!(1, bytes == mapped_bytes, "{bytes} bytes mapped, the total says {mapped_bytes}");
    ensure!(1, stray == 0, "CPUs hold {stray} while no credits are out");
    check_entries(space, census)
}

fn check_entries<P: System>(space: &dyn SeenSpace<P>, census: &mut Census) -> Result<(), Broken> {
    let (memory, tables) = (space.translations().memory(), &space.translations().tables);
    let mut result = Ok(());
    let mut resident = 0;
    let mut shared = Vec::new();
    tables.for_each_way(memory, 0..USER_END, &mut |_, upper, part| {
        let is_first = !is_shared::<P>(upper) || census.note_shared::<P>(memory, upper.pfn());
        if is_shared::<P>(upper) {
            shared.push((upper.pfn(), is_first));
        }
        Tables::<P>::for_each_reached(memory, upper, part, &mut |address, entry| {
            resident += u64::from(entry.holds_frame());
            if result.is_ok() {
                result = check_entry(space, address, entry, census);
            }
            // One reference for all who have the table (S5 of `sharing`).
            if is_first && entry.holds_reference() {
                census.hold(entry.pfn());
            }
        });
        result.is_ok()
    });
    result?;
    let rss = space.translations().resident.pages(memory);
    ensure!(1, resident == rss, "{resident} pages resident, rss says {rss}");
    let (mut twice, mut idle) = (None, None);
    tables.for_each_table(memory, &mut |span, table| {
        if !shared.contains(&(table, false)) && !census.note_table(table) {
            twice = Some(table);
        }
        if table != tables.root() && !is_of_use(space, &span, table) {
            idle = Some(span);
        }
    });
    ensure!(3, twice.is_none(), "table {twice:?} is in two trees");
    ensure!(3, idle.is_none(), "the table for {idle:x?} serves no area");
    Ok(())
}

/// Says whether a table is there for something: an area, or, where there are none, entries that it counts; tables above
/// the leaves stay then.
fn is_of_use<P: System>(space: &dyn SeenSpace<P>, span: &Range<u64>, table: Pfn) -> bool {
    if !space.has_promises() {
        return space.has_area_in(span) || space.may_keep_table_of(span);
    }
    if span.end - span.start > Tables::<P>::leaf_end(0) {
        return true;
    }
    holds_what_it_counts(&space.translations().tables, space.translations().memory(), span, table)
}

/// Says whether a leaf table has entries, as many as it counts.
fn holds_what_it_counts<P: System>(tables: &Tables<P>, memory: &P::Frames, span: &Range<u64>, table: Pfn) -> bool {
    let mut nr_entries = 0;
    tables.for_each_mapped(memory, span.clone(), &mut |_, _| nr_entries += 1);
    nr_entries != 0 && nr_entries == counted_entries::<P>(memory, table)
}

fn check_entry<P: System>(
    space: &dyn SeenSpace<P>,
    address: u64,
    entry: Entry,
    census: &mut Census,
) -> Result<(), Broken> {
    let Some(view) = space.area_at(VirtAddr::new(address)) else {
        ensure!(2, false, "{address:#x} maps {:?} outside any area", entry.pfn());
        return Ok(());
    };
    if entry.is_guard() {
        ensure!(2, entry == Entry::GUARD, "{address:#x}: a guard with other bits, {:#x}", entry.bits());
        let is_noted = view.flags.contains(AreaFlags::MAYBE_GUARD);
        ensure!(2, is_noted, "{address:#x}: a guard in an area that does not say that it may have some");
        let has_root = view.root != 0 || view.has_file();
        ensure!(2, has_root, "{address:#x}: a guard in an anonymous area without a root");
        return Ok(());
    }
    ensure!(
        2,
        space.has_promises() == entry.promised().is_some(),
        "{address:#x}: entry {:#x} says that memory is promised, or not",
        entry.bits()
    );
    if entry.is_vacant() {
        return Ok(());
    }
    ensure!(
        2,
        is_within_rights(entry, &view),
        "{address:#x}: entry {:#x} is stronger than its area {:?}",
        entry.bits(),
        view.flags
    );
    let is_settled = !(entry.is_writable() && entry.has(EntryFlags::COLLECTED));
    ensure!(2, is_settled, "{address:#x}: a writable entry says that nothing was stored since the last look");
    if entry.is_special() {
        let own = untouched_page(space.translations().instance(), &view);
        ensure!(3, !entry.is_writable(), "{address:#x}: {}, which nobody owns, is writable", entry.pfn());
        ensure!(3, own == Some(entry.pfn()), "{address:#x} maps {}, its area's untouched page is {own:?}", entry.pfn());
        return Ok(());
    }
    if !view.flags.contains(AreaFlags::SHARED) && (entry.is_writable() || entry.has(EntryFlags::EXCLUSIVE)) {
        ensure!(2, !entry.is_of_object(), "{address:#x} has {}, which is an object's, for itself", entry.pfn());
        census.exclusive.push((entry.pfn(), address));
    }
    check_owner(space.translations().memory(), &view, address, entry)
}

/// Returns the page that untouched pages of an area show, if they show one.
fn untouched_page<P: System>(instance: &Instance<P>, view: &AreaView<P>) -> Option<Pfn> {
    match view.content {
        Content::Zeros => Some(instance.zero_page),
        // SAFETY: the area, which nobody changes meanwhile, holds a reference to it.
        Content::Reference(reference) => Some(unsafe { reference.as_ref() }.page()),
        Content::Pattern(_) => None,
    }
}

/// Collects the reference pages. `check_frames` finds one that is no longer such a page.
fn check_references<P: System>(
    references: &Pool<P, Reference<P>>,
    memory: &P::Frames,
    census: &mut Census,
) -> Result<(), Broken> {
    let mut written = None;
    references.for_each_listed(|reference| {
        census.uncounted.push((reference.page(), Uncounted::Reference));
        written = written.or((!reference.is_intact(memory)).then(|| reference.page()));
    });
    ensure!(3, written.is_none(), "the reference page {written:?} does not hold what it was made with");
    Ok(())
}

/// Collects what the pins hold.
fn count_pins<P: System>(pins: &Pool<P, Pinned<P>>, census: &mut Census) {
    pins.for_each_listed(|pin| match pin.is_counted() {
        true => census.pin(pin.frame()),
        false => census.uncounted.push((pin.frame(), Uncounted::Pinned)),
    });
}

/// Checks that a mapped frame is what belongs there.
fn check_owner<P: System>(memory: &P::Frames, view: &AreaView<P>, address: u64, entry: Entry) -> Result<(), Broken> {
    let pfn = entry.pfn();
    let (page, offset) = (memory.page(pfn), view.page_offset_of(VirtAddr::new(address)));
    // SAFETY: the area, which nobody changes meanwhile, holds a reference to its object.
    let is_behind = view.object.is_some_and(|object| !unsafe { object.as_ref() }.reaches(offset));
    ensure!(2, !is_behind, "{address:#x} maps {pfn}, behind its object's end");
    if page.kind() != Kind::Anonymous {
        let Some(object) = view.object else {
            ensure!(2, false, "{address:#x} maps {pfn} of an object, but no object is mapped there");
            return Ok(());
        };
        // SAFETY: the area, which nobody changes meanwhile, holds a reference to its object.
        let own = unsafe { object.as_ref() }.frame_of(memory, offset);
        ensure!(2, own == Some(pfn), "{address:#x} maps {pfn}, which its object has not there");
        ensure!(3, entry.is_of_object(), "{address:#x} maps {pfn} of an object as if it held a reference");
        return Ok(());
    }
    ensure!(3, !entry.is_of_object(), "{address:#x} maps {pfn}, a private frame, as if an object had it");
    ensure!(2, !view.flags.contains(AreaFlags::SHARED), "{address:#x}: a private frame {pfn} in a shared area");
    // SAFETY: the space holds a reference, and nobody changes anything meanwhile.
    let page = unsafe { page.owned() };
    // Relaxed: nobody changes them meanwhile.
    let (root, index) = (page.owner().load(Ordering::Relaxed), page.index().load(Ordering::Relaxed));
    ensure!(2, index == offset, "{address:#x}: {pfn} is page {index:#x}, the area has page {offset:#x} there");
    let is_inherited = view.flags.contains(AreaFlags::INHERITED);
    ensure!(
        2,
        view.root != 0 && (root == view.root || is_inherited),
        "{address:#x}: {pfn} has the root {root}, its area {}",
        view.root
    );
    Ok(())
}

fn is_within_rights<P: System>(entry: Entry, view: &AreaView<P>) -> bool {
    let may = |flag, right| !entry.has(flag) || view.flags.intersects(right);
    let may_execute = entry.has(EntryFlags::NO_EXECUTE) || view.flags.contains(AreaFlags::EXEC);
    let is_keyed = view.flags.contains(AreaFlags::EXECUTE_ONLY);
    may(EntryFlags::PRESENT, AreaFlags::RIGHTS)
        && entry.has(EntryFlags::EXECUTE_ONLY) == is_keyed
        && may(EntryFlags::WRITE, AreaFlags::WRITE)
        && (may_execute || !entry.is_present())
}

fn check_frames<P: System>(instance: &Instance<P>, census: &mut Census) -> Result<(), Broken> {
    let memory = &instance.memory;
    let mut result = Ok(());
    let audit = memory.audit_with(|frame| {
        if result.is_ok() {
            result = check_frame(census, &frame);
        }
        if let Some(in_use) = census.in_use.get_mut(frame.pfn.index()) {
            *in_use = true;
        }
    });
    result?;
    ensure!(8, audit.is_clean(), "{audit}");
    for &(pfn, address) in &census.exclusive {
        let holds = census.holds(pfn);
        ensure!(2, holds == 1, "{address:#x} has {pfn} for itself, but {holds} entries or objects hold it");
    }
    for &(pfn, why) in &census.uncounted {
        ensure!(3, census.in_use[pfn.index()], "{pfn} ({why:?}) is free");
    }
    let zero = memory.frame(instance.zero_page);
    // SAFETY: the zero page is never freed and never written.
    let zero = unsafe { core::slice::from_raw_parts(zero, PAGE_BYTES) };
    ensure!(3, zero.iter().all(|&byte| byte == 0), "the zero page is not zero");
    Ok(())
}

fn check_frame(census: &Census, frame: &faultless_phys::FrameInfo) -> Result<(), Broken> {
    let pfn = frame.pfn;
    let holds = census.holds(pfn) + census.pins.get(pfn.index()).unwrap_or(&0);
    match frame.kind {
        Kind::Anonymous | Kind::Object => {
            ensure!(
                3,
                holds == frame.nr_references,
                "{pfn} ({:?}) counts {} references, {holds} exist",
                frame.kind,
                frame.nr_references
            );
        }
        Kind::Table => {
            ensure!(8, census.tables[pfn.index()], "{pfn} is a page table of no tree");
            let (sharers, references) = (census.sharers[pfn.index()], frame.nr_references);
            ensure!(
                3,
                sharers == 0 || sharers == references,
                "table {pfn} counts {references} users, it has {sharers}"
            );
        }
        Kind::Reference => {
            ensure!(8, census.is_reference(pfn), "{pfn} is a reference page that nobody refers to");
            ensure!(3, !frame.is_counted && holds == 0, "{pfn} is a reference page that is counted");
        }
        Kind::Free | Kind::Slab | Kind::Reserved => {
            ensure!(4, holds == 0, "{pfn} is {:?}, but mapped or pinned", frame.kind);
        }
    }
    Ok(())
}

/// What is true of a page that a CPU's TLB may know.
struct Fact {
    entry: Entry,
    /// Whether a shootdown of the page asks the CPU.
    is_asked: bool,
}

/// # Safety
/// As for [`invariants`].
unsafe fn check_tlbs<P: System>(
    instance: &Instance<P>,
    fact_of: &dyn Fn(usize, SpaceId, u64) -> Option<Fact>,
) -> Result<(), Broken> {
    let mut result = Ok(());
    // SAFETY: the caller's promise.
    unsafe {
        instance.cpus.for_each_tlb(|cpu, tlb| {
            for translation in tlb.translations() {
                if result.is_ok() {
                    let fact = fact_of(cpu, translation.space, translation.address);
                    result = check_translation(cpu, translation, fact);
                }
            }
        });
    }
    result
}

/// Checks what a TLB knows of a page against the entry, if its space is there, and that a shootdown would ask for it.
fn check_translation(cpu: usize, known: &Translation, fact: Option<Fact>) -> Result<(), Broken> {
    let page = known.address / PAGE * PAGE;
    let Some(Fact { entry, is_asked }) = fact else {
        ensure!(4, false, "CPU {cpu} knows {page:#x} of space {}, which is gone", known.space);
        return Ok(());
    };
    let is_covered = entry.is_present()
        && entry.pfn() == known.entry.pfn()
        && (entry.is_writable() || !known.entry.is_writable())
        && (!entry.has(EntryFlags::NO_EXECUTE) || known.entry.has(EntryFlags::NO_EXECUTE));
    ensure!(
        5,
        is_covered,
        "CPU {cpu} knows {page:#x} as {:#x}, the table says {:#x}",
        known.entry.bits(),
        entry.bits()
    );
    ensure!(5, is_asked, "CPU {cpu} knows {page:#x}, and no shootdown asks it (I3 of `translations::shootdown`)");
    Ok(())
}

mod seen;
#[cfg(test)]
mod tests;
