//! What comes of the fast path is what comes of the usual one: two spaces, the same calls, one of each way.

extern crate std;

use super::*;
use crate::limits::{Limits, PlacementPolicy};
use crate::space::company::{TestedSpace, in_company, in_company_of};
use crate::space::crowding::{START, crowd};
use crate::space::{MapRequest, Populate};
use crate::{AddressRange, CallError, PAGE, VirtAddr};
use faultless_explore::Random;
use faultless_platform::Processor;
use faultless_platform::native::Native;
use std::vec::Vec;

const NR_CPUS: usize = 2;

fn request(placement: Placement, flags: AreaFlags, nr_pages: u64) -> MapRequest<'static, Native> {
    MapRequest {
        placement,
        len_bytes: nr_pages * PAGE,
        protection: flags.protection(),
        options: flags.options(),
        backing: Backing::Anonymous,
        populate: Populate::OnFault,
    }
}

/// What a space has: its areas, its counts, and what is resident.
type Seen = (Vec<(Range<u64>, AreaFlags)>, [u64; 4]);

fn seen(space: &TestedSpace<'_>) -> Seen {
    let mut areas = Vec::new();
    space.for_each_area(|area| areas.push((area.range.start().get()..area.range.end().get(), area.flags)));
    (areas, [space.nr_areas(), space.mapped_bytes(), space.data_bytes(), space.resident_pages()])
}

/// How often calls went the fast way.
#[derive(Default)]
struct Taken {
    nr_maps: u32,
    nr_named_maps: u32,
    nr_unmaps: u32,
}

/// Where calls of a play are about.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Where {
    /// In the CPU's range, which the first mapping finds.
    OwnRange,
    /// In another CPU's range, at named addresses.
    OtherRange,
    /// Around an annex.
    Annex,
    /// In a space without lanes.
    NoLanes,
    /// In one whose mappings are spread, on a machine of one CPU, which has a range and no lanes.
    OneCpu,
}

/// Maps in both spaces, where the first may go the fast way; returns the place, the same in both.
fn map_in_both(
    [fast, usual]: [&TestedSpace<'_>; 2],
    request: &MapRequest<'_, Native>,
    taken: &mut Taken,
) -> Option<u64> {
    let on_usual = |space: &TestedSpace<'_>| space.try_again(|| space.map_part(request, request.len_bytes));
    let found = fast.map_fast(request, request.len_bytes);
    let is_named = !matches!(request.placement, Placement::Anywhere);
    *if is_named { &mut taken.nr_named_maps } else { &mut taken.nr_maps } += u32::from(found.is_some());
    let found = found.map_or_else(|| on_usual(fast), Ok);
    let wanted = on_usual(usual);
    let place = |mapped: &Result<(PageRange, AreaFlags), CallError>| {
        mapped.as_ref().map(|(range, flags)| (range.numbers(), *flags)).map_err(|error| *error)
    };
    assert_eq!(place(&found), place(&wanted));
    Some(found.ok()?.0.start().get())
}

fn unmap_in_both([fast, usual]: [&TestedSpace<'_>; 2], range: PageRange, taken: &mut Taken) {
    let on_usual = |space: &TestedSpace<'_>| space.try_again(|| space.unmap_part(range));
    let is_fast = fast.unmap_fast(range).is_some();
    taken.nr_unmaps += u32::from(is_fast);
    let found = if is_fast { Ok(()) } else { on_usual(fast) };
    assert_eq!(found, on_usual(usual));
}

fn play(seed: u64, limits: &Limits, place: Where, taken: &mut Taken) {
    const KINDS: [AreaFlags; 6] = [
        AreaFlags::READ.union(AreaFlags::WRITE),
        AreaFlags::READ.union(AreaFlags::WRITE),
        AreaFlags::READ.union(AreaFlags::WRITE),
        AreaFlags::READ,
        AreaFlags::READ.union(AreaFlags::WRITE).union(AreaFlags::NORESERVE),
        AreaFlags::READ.union(AreaFlags::WRITE).union(AreaFlags::GROWSDOWN),
    ];
    let placement = if place == Where::NoLanes { PlacementPolicy::Linux } else { PlacementPolicy::Spread };
    let nr_cpus = if place == Where::OneCpu { 1 } else { NR_CPUS };
    in_company_of(nr_cpus, Limits { placement, ..*limits }, |both: [_; 2]| {
        let mut random = Random::new(seed);
        let mut draw = |end| random.below(end);
        let spaces = both.map(|(space, _)| space);
        let (mut lowest, mut highest) = (u64::MAX, 0);
        let lanes = || spaces[0].lane_rooms().expect("mappings are spread");
        let start = match place {
            Where::OwnRange | Where::NoLanes | Where::OneCpu => None,
            Where::OtherRange => Some(lanes().lane_of::<()>(1 - Native::cpu()).1.bounds.start),
            Where::Annex => {
                spaces.iter().for_each(|space| crowd(space, START));
                Some(lanes().annexes().bounds(lanes().annexes().at(START).expect("made")).start)
            }
        };
        // The first page of it reaches a bound.
        if let Some(start) = start {
            (lowest, highest) = (start, start + 40 * PAGE);
        }
        for step in 0..120 {
            // Where anything was mapped so far, and a little around it.
            let page =
                |draw: &mut dyn FnMut(u64) -> u64| lowest - 2 * PAGE + draw((highest - lowest) / PAGE + 4) * PAGE;
            let is_first = highest == 0;
            match draw(8) {
                kind if kind < 4 || is_first => {
                    let is_named = !is_first && (start.is_some() || kind == 3);
                    let placement = match (is_named, step % 2) {
                        (false, _) => Placement::Anywhere,
                        (true, 0) => Placement::FixedNoReplace(VirtAddr::new(page(&mut draw))),
                        (true, _) => Placement::Fixed(VirtAddr::new(page(&mut draw))),
                    };
                    let nr_pages = 1 + draw(if kind == 0 && !is_named { 600 } else { 6 });
                    let request = request(placement, KINDS[draw(6) as usize], nr_pages);
                    if let Some(start) = map_in_both(spaces, &request, taken) {
                        let end = start + request.len_bytes;
                        (lowest, highest) = (lowest.min(start), highest.max(end));
                    }
                }
                4 => {
                    let len = (1 + draw(8)) * PAGE;
                    let range = PageRange::new(VirtAddr::new(page(&mut draw)), len).expect("user memory");
                    unmap_in_both(spaces, range, taken);
                }
                5 => {
                    let (areas, _) = seen(spaces[0]);
                    let Some((area, _)) = areas.get(draw(1 + areas.len() as u64) as usize) else { continue };
                    // All of it, or one end.
                    let middle = area.start + draw((area.end - area.start) / PAGE) * PAGE;
                    let (start, end) = if draw(2) == 0 { (area.start, area.end) } else { (middle, area.end) };
                    let range = PageRange::between(VirtAddr::new(start), VirtAddr::new(end)).expect("not empty");
                    unmap_in_both(spaces, range, taken);
                }
                6 => {
                    let address = VirtAddr::new(page(&mut draw));
                    let [one, two] = both.map(|(_, guest)| guest.store(address, 1).is_ok());
                    assert_eq!(one, two, "a store at {address:?}");
                }
                _ => {
                    let range = AddressRange::new(VirtAddr::new(page(&mut draw)), (1 + draw(3)) * PAGE);
                    let rights = if draw(2) == 0 { AreaFlags::READ } else { KINDS[0] };
                    let [one, two] = spaces.map(|space| space.mprotect(range, rights.protection()));
                    assert_eq!(one, two);
                }
            }
            let [one, two] = spaces.map(seen);
            assert_eq!(one, two, "seed {seed}, step {step}");
        }
    });
}

#[test]
fn calls_on_the_fast_path_leave_what_those_on_the_usual_one_leave() {
    let mut taken = Taken::default();
    for seed in 1..=60 {
        play(seed, &Limits::default(), Where::OwnRange, &mut taken);
    }
    let Taken { nr_maps, nr_named_maps, nr_unmaps } = taken;
    assert!(nr_maps > 500 && nr_named_maps > 50 && nr_unmaps > 200, "{nr_maps}, {nr_named_maps}, {nr_unmaps}");
}

#[test]
fn so_do_those_at_named_addresses_in_other_lanes_and_those_without_lanes() {
    for place in [Where::OtherRange, Where::Annex, Where::NoLanes, Where::OneCpu] {
        let mut taken = Taken::default();
        for seed in 1..=60 {
            play(seed, &Limits::default(), place, &mut taken);
        }
        let Taken { nr_maps, nr_named_maps, nr_unmaps } = taken;
        let chooses = matches!(place, Where::NoLanes | Where::OneCpu);
        let are_many = if chooses { nr_maps > 500 && nr_named_maps > 50 } else { nr_named_maps > 500 };
        assert!(are_many && nr_unmaps > 200, "{nr_maps}, {nr_named_maps} and {nr_unmaps}");
    }
}

// Near each limit calls are refused, or allowed, as ever.
#[test]
fn limits_are_what_they_are_on_the_usual_path() {
    let mut taken = Taken::default();
    for seed in 1..=240 {
        let limits = match seed % 3 {
            0 => Limits { max_map_count: 3 + seed % 11, ..Limits::default() },
            1 => Limits { address_space_bytes: (20 + seed % 60) * PAGE, ..Limits::default() },
            _ => Limits { data_bytes: (20 + seed % 60) * PAGE, ..Limits::default() },
        };
        let place = [Where::OwnRange, Where::OtherRange, Where::Annex, Where::NoLanes][(seed as usize - 1) / 60];
        play(seed, &limits, place, &mut taken);
    }
    let Taken { nr_maps, nr_named_maps, nr_unmaps } = taken;
    assert!(nr_maps > 100 && nr_named_maps > 100 && nr_unmaps > 100, "{nr_maps}, {nr_named_maps}, {nr_unmaps}");
}

// A place may have gone from the rest to an annex, or to the rest, since its table was found.
#[test]
fn the_lock_of_one_table_is_not_that_of_another_lane() {
    in_company(NR_CPUS, &Limits::default(), |[(space, _)]| {
        crowd(space, START);
        let lanes = space.lane_rooms().expect("mappings are spread");
        let annex = lanes.annexes().at(START).expect("made");
        let page = |place: u64| PageRange::new(VirtAddr::new(place + PAGE), PAGE).expect("a page");
        let near = space.near(space.rooms(), VirtAddr::new(START)).expect("a lane");
        let had_with = |held| [START, START / 2].map(|place| space.site_at(&near, page(place), &held).is_some());
        assert_eq!(had_with(lanes.parts_of_annex(annex).lock()), [true, false]);
        assert_eq!(had_with(space.lock.edit_rest().expect("parts are given out")), [false, false]);
    });
}
