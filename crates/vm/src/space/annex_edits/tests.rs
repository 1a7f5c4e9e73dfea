//! Which annexes come, how they grow, and in which index areas are: what the answers of calls don't show.

#![expect(clippy::single_range_in_vec_init, reason = "lists of annexes, of which there may be one")]

use super::*;
use crate::limits::{Limits, PlacementPolicy};
use crate::space::company::{Tested, TestedSpace, in_company};
use crate::space::crowding::{START, crowd, private};
use crate::space::{Advice, AreaAt};
use crate::{AddressRange, AreaFlags, Guest, PAGE};
use faultless_explore::Random;
use faultless_platform::native::Native;
use std::vec;
use std::vec::Vec;

const NR_CPUS: usize = 2;

/// Runs `act` on one of two CPUs that use a space whose mappings are spread.
fn in_space(act: impl FnOnce(&TestedSpace<'_>)) {
    in_space_of(NR_CPUS, act);
}

/// As [`in_space`], of a machine with more CPUs.
fn in_space_of(nr_cpus: usize, act: impl FnOnce(&TestedSpace<'_>)) {
    in_company(nr_cpus, &Limits::default(), |[(space, _)]| act(space));
}

fn map(space: &TestedSpace<'_>, range: Range<u64>) {
    space.mmap(&private(&range)).expect("room");
}

fn unmap(space: &TestedSpace<'_>, range: Range<u64>) {
    space.munmap(AddressRange::new(VirtAddr::new(range.start), range.end - range.start)).expect("valid");
}

fn annexes(space: &TestedSpace<'_>) -> Vec<Range<u64>> {
    let lanes = space.lane_rooms().expect("mappings are spread");
    lanes.annexes().each().map(|(_, bounds)| bounds).filter(|bounds| !bounds.is_empty()).collect()
}

fn want(space: &TestedSpace<'_>) {
    space.lane_rooms().expect("mappings are spread").annexes().want();
}

/// Checks N1, and A1.
fn check_homes(space: &TestedSpace<'_>) {
    let lanes = space.lane_rooms().expect("mappings are spread");
    let check = |index: &Index<Native, Area<Native, Tested>>| {
        for area in index.overlapping(0..u64::MAX) {
            let home = lanes.home(&space.index, &(area.start..area.end));
            assert!(core::ptr::eq(home, index), "{:x}..{:x} is in another's index", area.start, area.end);
        }
    };
    check(&space.index);
    lanes.for_each_index(&(0..u64::MAX), check);
    let all = annexes(space);
    for (place, annex) in all.iter().enumerate() {
        assert!(annex.start < annex.end && annex.start % GRANULE_BYTES == 0 && annex.end % GRANULE_BYTES == 0);
        assert!(all[..place].iter().all(|other| other.end <= annex.start || annex.end <= other.start), "{all:x?}");
    }
}

#[test]
fn nobody_gets_an_annex_while_nobody_waits() {
    in_space(|space| {
        map(space, START..START + PAGE);
        unmap(space, START..START + PAGE);
        assert!(annexes(space).is_empty());
    });
}

#[test]
fn an_annex_comes_with_what_is_free_around_and_grows_as_its_area_does() {
    const MIB: u64 = 1 << 20;
    in_space(|space| {
        want(space);
        let start = START + 4 * MIB;
        map(space, start..start + PAGE);
        assert_eq!(annexes(space), [start - MIB..start + MIB]);
        map(space, start + PAGE..start + MIB - PAGE);
        assert_eq!(annexes(space), [start - MIB..start + MIB], "it does not reach the bound");
        map(space, start + MIB - PAGE..start + MIB);
        assert_eq!(annexes(space), [start - MIB..start + 3 * MIB], "twice as much");
        // Downwards as well.
        map(space, start - MIB..start);
        assert_eq!(annexes(space), [start - 4 * MIB..start + 3 * MIB]);
        // No further than to where another's granule begins, which it gets when it comes.
        map(space, start + 6 * MIB..start + 6 * MIB + PAGE);
        assert_eq!(annexes(space)[1], start + 5 * MIB..start + 7 * MIB);
        map(space, start + MIB..start + 3 * MIB);
        assert_eq!(annexes(space)[0], start - 4 * MIB..start + 5 * MIB);
        assert_eq!(space.nr_areas(), 2);
        check_homes(space);
        // As many as there are CPUs.
        map(space, START + 64 * MIB..START + 65 * MIB);
        assert_eq!(annexes(space).len(), NR_CPUS);
        unmap(space, START..START + 128 * MIB);
        assert_eq!(annexes(space).len(), NR_CPUS, "they stay");
        check_homes(space);
    });
}

#[test]
fn an_area_that_is_there_comes_along_and_one_that_is_too_near_forbids_it() {
    in_space(|space| {
        let granule = |number: u64| START + number * GRANULE_BYTES;
        map(space, granule(1)..granule(3));
        map(space, granule(8)..granule(8) + PAGE);
        map(space, granule(8) + 2 * PAGE..granule(8) + 3 * PAGE);
        want(space);
        unmap(space, granule(8)..granule(8) + PAGE);
        assert!(annexes(space).is_empty(), "another one lies in the granule");
        unmap(space, granule(2)..granule(2) + PAGE);
        assert_eq!(annexes(space), [granule(0)..granule(4)]);
        check_homes(space);
        assert_eq!(space.nr_areas(), 3);
    });
}

#[test]
fn an_area_that_has_come_to_cross_bounds_is_cut_there_and_stays_one() {
    const MIB: u64 = 1 << 20;
    in_space(|space| {
        want(space);
        let (low, high) = (START + 4 * MIB, START + 8 * MIB);
        map(space, low..low + PAGE);
        map(space, high..high + PAGE);
        map(space, high + 2 * PAGE..high + 3 * PAGE);
        assert_eq!(annexes(space).len(), 2);
        map(space, low + PAGE..high);
        // At the end of the lower annex and at the start of the upper one.
        assert_eq!((annexes(space).len(), space.nr_areas(), pieces(space)), (2, 2, 4));
        check_homes(space);
        unmap(space, low + PAGE..low + 2 * PAGE);
        assert_eq!((annexes(space).len(), space.nr_areas()), (2, 3));
        assert_eq!(pieces(space), 5);
        check_homes(space);
        unmap(space, high + 2 * PAGE..high + 3 * PAGE);
        assert_eq!((annexes(space).len(), space.nr_areas(), pieces(space)), (2, 2, 4));
        // Whoever reaches a seam finds one area.
        let seam = annexes(space)[0].end;
        unmap(space, seam..seam + PAGE);
        assert_eq!((space.nr_areas(), pieces(space)), (3, 4));
        check_homes(space);
    });
}

/// Returns how many areas the indexes have.
fn pieces(space: &TestedSpace<'_>) -> usize {
    let mut nr = space.index.overlapping(0..u64::MAX).count();
    let lanes = space.lane_rooms().expect("mappings are spread");
    lanes.for_each_index::<Area<Native, Tested>>(&(0..u64::MAX), |index| nr += index.overlapping(0..u64::MAX).count());
    nr
}

/// Returns the roots of all pieces that lie in a range.
fn roots(space: &TestedSpace<'_>, range: Range<u64>) -> Vec<u64> {
    let mut found = Vec::new();
    let mut look = |index: &Index<Native, Area<Native, Tested>>| {
        found.extend(index.overlapping(range.clone()).map(|entry| AreaAt::new(entry).area().view().root));
    };
    look(&space.index);
    space.lane_rooms().expect("mappings are spread").for_each_index(&range, look);
    found
}

#[test]
fn a_first_store_gives_all_of_a_chain_one_root_and_leaves_its_seams() {
    in_space_of(8, |space| {
        let chain = START + PAGE..START + 5 * GRANULE_BYTES;
        map(space, chain.clone());
        map(space, START + 6 * GRANULE_BYTES..START + 7 * GRANULE_BYTES);
        crowd(space, START + GRANULE_BYTES + PAGE);
        let nr_pieces = pieces(space);
        assert!(nr_pieces >= 4 && space.nr_areas() == 2, "{nr_pieces} pieces");
        assert!(roots(space, chain.clone()).iter().all(|&root| root == 0));
        let guest = Guest::new(space);
        guest.store(VirtAddr::new(START + 3 * GRANULE_BYTES), 1).expect("mapped");
        let found = roots(space, chain.clone());
        assert!(found[0] != 0 && found.iter().all(|&root| root == found[0]), "{found:?}");
        assert_eq!((pieces(space), space.nr_areas()), (nr_pieces, 2));
        // Another piece of the chain has it already, and another area gets one of its own.
        guest.store(VirtAddr::new(START + PAGE), 1).expect("mapped");
        guest.store(VirtAddr::new(START + 6 * GRANULE_BYTES), 1).expect("mapped");
        assert_eq!(roots(space, chain), found);
        assert!(!found.contains(&roots(space, START + 6 * GRANULE_BYTES..START + 7 * GRANULE_BYTES)[0]));
        check_homes(space);
    });
}

#[test]
fn where_many_wait_what_lies_near_gets_annexes_as_well() {
    in_space_of(8, |space| {
        let place = |number: u64| START + 2 * number * GRANULE_BYTES + PAGE;
        let far = place(5) + 65 * GRANULE_BYTES;
        (0..6).map(place).chain([far]).for_each(|place| map(space, place..place + PAGE));
        crowd(space, place(2));
        let mut found = annexes(space);
        found.sort_by_key(|annex| annex.start);
        let blocks: Vec<_> = (0..6).map(|number| place(number) - PAGE..place(number) - PAGE + GRANULE_BYTES).collect();
        assert_eq!(found, blocks, "none where nothing lies, nor around what lies far away");
        assert_eq!((pieces(space), space.nr_areas()), (7, 7));
        check_homes(space);
    });
}

#[test]
fn annexes_are_the_longer_the_more_there_are() {
    const MIB: u64 = 1 << 20;
    in_space(|space| {
        let place = |number: u64| START + number * 8 * MIB + PAGE;
        for number in 0..4 {
            want(space);
            map(space, place(number)..place(number) + PAGE);
        }
        let lens: Vec<u64> = annexes(space).iter().map(|annex| (annex.end - annex.start) / MIB).collect();
        assert_eq!(lens, [1, 1, 4, 4]);
        // What another has of the block is left out.
        want(space);
        let beside = place(1) + 2 * MIB;
        map(space, beside..beside + PAGE);
        assert_eq!(annexes(space)[4], place(1) - PAGE + MIB..place(1) - PAGE + 4 * MIB);
        check_homes(space);
    });
}

#[test]
fn as_many_areas_as_may_move_come_into_an_annex_and_leave_it() {
    for nr_areas in [MOST_MOVED, MOST_MOVED + 1] {
        in_space_of(8, |space| {
            let lanes = space.lane_rooms().expect("mappings are spread");
            // What is cut out is of 64 MiB at least.
            (0..3).for_each(|_| lanes.annexes().note_anew(false));
            let first = START + GRANULE_BYTES;
            let places = (0..nr_areas as u64).map(|place| first + 4 * PAGE * place);
            places.for_each(|place| map(space, place..place + PAGE));
            crowd(space, first);
            let all = [START..START + 64 * GRANULE_BYTES];
            assert_eq!(annexes(space), if nr_areas > MOST_MOVED { &all[..0] } else { &all });
            assert_eq!((pieces(space), space.nr_areas()), (nr_areas, nr_areas as u64));
            check_homes(space);
            let write = space.write(crate::addr::EVERYTHING);
            space.begin_anew(write.permit());
            drop(write);
            assert_eq!((lanes.annexes().nr(), pieces(space), space.nr_areas()), (0, nr_areas, nr_areas as u64));
            check_homes(space);
        });
    }
}

/// What a list shows, but for a mark that Linux does not show: here the pieces of an area have it each for itself.
fn list(space: &TestedSpace<'_>) -> Vec<(Range<u64>, AreaFlags)> {
    let mut found = Vec::new();
    space.for_each_area(|area| {
        found.push((area.range.start().get()..area.range.end().get(), area.flags - AreaFlags::MAYBE_GUARD))
    });
    found
}

// Which areas Linux joins depends on who stored where before: a space without lanes is what the other is held against.
#[test]
fn whatever_is_called_areas_with_seams_are_those_of_a_space_without_lanes() {
    const NR_GRANULES: u64 = 12;
    let mut most_pieces = 0;
    for seed in 1..=240 {
        let mut random = Random::new(seed * 0x9e37_79b9);
        let mut below = |end: usize| random.below(end as u64) as usize;
        in_space_of(8, |space| {
            let limits = Limits { placement: PlacementPolicy::Linux, ..Limits::default() };
            let twin = space.vm().create_space(limits).expect("room");
            let spaces = [space, &twin];
            let guests = [Guest::new(space), Guest::new(&twin)];
            let near = |number: u64| {
                let bound = START + number * GRANULE_BYTES;
                (bound - 2 * PAGE..bound + 3 * PAGE).step_by(PAGE as usize)
            };
            let starts: Vec<u64> = (1..=NR_GRANULES).flat_map(near).collect();
            for round in 0..800 {
                let first = below(starts.len());
                let most = if below(8) == 0 { starts.len() } else { 4 };
                let last = (first + 1 + below(most)).min(starts.len() - 1).max(first);
                let range =
                    if first == last { starts[first]..starts[first] + PAGE } else { starts[first]..starts[last] };
                let rights = [AreaFlags::READ, AreaFlags::READ | AreaFlags::WRITE][below(2)];
                let at = AddressRange::new(VirtAddr::new(range.start), range.end - range.start);
                match below(9) {
                    0..3 => spaces.iter().for_each(|space| map(space, range.clone())),
                    3 => spaces.iter().for_each(|space| unmap(space, range.clone())),
                    4 => {
                        let [one, two] = spaces.map(|space| space.mprotect(at, rights.protection()).is_ok());
                        assert_eq!(one, two, "round {round}");
                    }
                    5 | 6 => {
                        let [one, two] = guests.each_ref().map(|guest| guest.store(at.start, round).is_ok());
                        assert_eq!(one, two, "round {round}");
                    }
                    7 => {
                        let advice =
                            [Advice::GuardInstall, Advice::DontFork, Advice::DoFork, Advice::GuardRemove][below(4)];
                        let [one, two] = spaces.map(|space| space.madvise(at, advice).is_ok());
                        assert_eq!(one, two, "round {round}");
                    }
                    _ => crowd(space, range.start),
                }
                let [found, wanted] = spaces.map(list);
                assert_eq!(found, wanted, "seed {seed}, round {round}");
                assert_eq!(space.nr_areas(), twin.nr_areas(), "seed {seed}, round {round}");
                most_pieces = most_pieces.max(pieces(space) - found.len());
                if below(100) == 0 {
                    let [one, two] = spaces.map(|space| list(&space.fork().expect("room")));
                    assert_eq!(one, two, "seed {seed}, round {round}");
                }
                check_homes(space);
            }
            drop(guests);
        });
    }
    assert!(most_pieces > 4, "areas are cut: {most_pieces}");
}

#[test]
fn a_call_that_fails_leaves_the_cut_that_linux_makes_and_no_other() {
    in_space_of(8, |space| {
        let limits = Limits { placement: PlacementPolicy::Linux, ..Limits::default() };
        let twin = space.vm().create_space(limits).expect("room");
        let _guest = Guest::new(&twin);
        let spaces = [space, &twin];
        let bound = START + GRANULE_BYTES;
        let at = |pages: Range<u64>| {
            AddressRange::new(VirtAddr::new(bound + pages.start * PAGE), (pages.end - pages.start) * PAGE)
        };
        spaces.iter().for_each(|space| map(space, bound - 2 * PAGE..bound + 4 * PAGE));
        crowd(space, bound - 2 * PAGE);
        assert_eq!((pieces(space), space.nr_areas()), (2, 1), "a seam");
        spaces.iter().for_each(|space| space.mseal(at(2..4)).expect("mapped"));
        assert_eq!((pieces(space), space.nr_areas()), (3, 2));
        // What is sealed begins the range: nothing is cut. Behind others it does not.
        for (pages, nr_areas) in [(2..3, 2), (0..3, 3)] {
            spaces.iter().for_each(|space| assert!(space.munmap(at(pages.clone())).is_err(), "sealed"));
            let [found, wanted] = spaces.map(list);
            assert_eq!((found.len(), found), (nr_areas, wanted));
            assert_eq!(space.nr_areas(), twin.nr_areas());
        }
        // They stay apart until something changes there that may be joined.
        let rights = (AreaFlags::READ | AreaFlags::WRITE).protection();
        spaces.iter().for_each(|space| space.mprotect(at(0..2), rights).expect("mapped"));
        assert_eq!(spaces.map(|space| list(space).len()), [3, 3]);
        spaces.iter().for_each(|space| map(space, bound..bound + PAGE));
        let [found, wanted] = spaces.map(list);
        assert_eq!((found.len(), found), (2, wanted));
        check_homes(space);
    });
}

#[test]
fn whatever_is_called_areas_are_in_the_index_of_their_lane() {
    let mut random = Random::new(0x9e37_79b9);
    let mut below = |end: usize| random.below(end as u64) as usize;
    in_space(|space| {
        want(space);
        let near = |number: u64| {
            let bound = START + number * GRANULE_BYTES;
            (bound - 2 * PAGE..bound + 2 * PAGE).step_by(PAGE as usize).chain([bound + 2 * PAGE])
        };
        let starts: Vec<u64> = (1..=8).flat_map(near).collect();
        let cells: Vec<Range<u64>> = starts.windows(2).map(|pair| pair[0]..pair[1]).collect();
        let mut is_mapped = vec![false; cells.len()];
        for round in 0..1500 {
            let first = below(cells.len());
            let most = if below(16) == 0 { cells.len() } else { 3 };
            let last = (first + below(most)).min(cells.len() - 1);
            let range = cells[first].start..cells[last].end;
            let maps = below(2) == 0;
            if maps {
                map(space, range)
            } else {
                unmap(space, range)
            }
            is_mapped[first..=last].fill(maps);
            let mut wanted: Vec<Range<u64>> = Vec::new();
            for (cell, _) in cells.iter().zip(&is_mapped).filter(|(_, is_mapped)| **is_mapped) {
                match wanted.last_mut().filter(|last| last.end == cell.start) {
                    Some(last) => last.end = cell.end,
                    None => wanted.push(cell.clone()),
                }
            }
            let mut found = Vec::new();
            space.for_each_area(|area| found.push(area.range.start().get()..area.range.end().get()));
            assert_eq!(found, wanted, "round {round}");
            assert_eq!(space.nr_areas(), wanted.len() as u64, "round {round}");
            check_homes(space);
            let (len, room) = (PAGE << below(12), START..START + 8 * GRANULE_BYTES);
            let holes = wanted.iter().map(|area| area.end).chain([room.start]).map(|start| {
                let next = wanted.iter().find(|area| area.end > start).map_or(room.end, |area| area.start.max(start));
                start..next.min(room.end)
            });
            let fits = holes.filter(|hole| hole.start + len <= hole.end).map(|hole| hole.end - len);
            assert_eq!(space.highest_gap(len, room.clone()), fits.max(), "round {round}");
        }
        let lanes = space.lane_rooms().expect("mappings are spread");
        let nr_annexes = lanes.annexes().nr();
        assert!(nr_annexes > NR_CPUS, "they came: {nr_annexes}");
        assert_eq!(annexes(space).len(), nr_annexes, "and stayed");
    });
}
