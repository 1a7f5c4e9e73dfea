//! Ranges of addresses, and which CPUs are asked about them.

use super::*;
use crate::addr::PAGE;
use faultless_phys::{Memory, Options};
use faultless_platform::Ordering;
use faultless_platform::native::{HostRegion, Machine, Native};
use std::vec::Vec;

/// Where Linux maps.
fn room() -> Range<u64> {
    0x1_0000..0x7fff_f7ff_f000
}

fn spread(nr_own_words: usize) -> Spread {
    Spread { room: room(), nr_rest_sets: 1, nr_own_words }
}

/// Runs `act` with what a machine of so many CPUs has, on its first.
fn on(nr_cpus: usize, act: impl FnOnce(&Memory<Native>)) {
    let region = HostRegion::reserve(64 << 20).unwrap();
    // SAFETY: the region is ours and outlives the memory.
    let memory =
        unsafe { Memory::<Native>::new(region.base(), region.len_bytes(), nr_cpus, Options::default()).unwrap() };
    Machine::new(nr_cpus).attach(|| act(&memory));
}

/// Makes lanes, if there are to be any.
fn made(memory: &Memory<Native>, spread: Option<&Spread>) -> Lanes<Native> {
    let lanes = Lanes::new(spread);
    if let Some(row) = spread.and_then(|spread| lanes.prepare(memory, spread, 1).unwrap()) {
        lanes.publish(row);
    }
    lanes
}

#[test]
fn ranges_lie_apart_inside_the_room_and_are_as_large_as_can_be() {
    let room = room();
    for nr_cpus in [1, 2, 3, 384, 512, 1024] {
        let shape = Shape::new(nr_cpus, &room).unwrap();
        let ranges: Vec<_> = (0..nr_cpus).map(|cpu| shape.range_of(cpu)).collect();
        let len = ranges[0].end - ranges[0].start;
        assert!(len.is_power_of_two() && ranges.iter().all(|range| range.end - range.start == len));
        assert!(ranges.windows(2).all(|pair| pair[1].end == pair[0].start));
        assert!(ranges.iter().all(|range| range.start % LEAST_BYTES == 0 && range.start % len == 0));
        assert!(room.end - ranges[0].end >= len, "{nr_cpus}: the highest is nobody's");
        assert!(ranges[nr_cpus - 1].start >= room.start);
        assert!(room.end / (2 * len) < nr_cpus as u64 + 2, "{nr_cpus}: twice as long would do");
        for (cpu, range) in ranges.iter().enumerate() {
            let lane = |address| shape.lane(shape.number_of(address));
            assert_eq!([lane(range.start), lane(range.end - 1)], [cpu; 2]);
        }
        let rest = |address| shape.lane(shape.number_of(address)) == nr_cpus;
        assert!(rest(ranges[0].end) && rest(ranges[nr_cpus - 1].start - 1) && rest(0) && rest(u64::MAX));
    }
}

#[test]
fn a_room_too_small_for_all_has_no_ranges() {
    let of = |nr_cpus, room: Range<u64>| Shape::new(nr_cpus, &room).map(|shape| shape.range_of(nr_cpus - 1));
    assert_eq!(of(3, 0..4 * LEAST_BYTES), Some(0..LEAST_BYTES));
    assert_eq!(of(4, 0..4 * LEAST_BYTES), None);
    assert_eq!(of(1, 1..2 * LEAST_BYTES), None);
    assert_eq!(of(1, 0..4 * LEAST_BYTES), Some(0..2 * LEAST_BYTES));
    assert_eq!(of(1, 5..6), None);
}

#[test]
fn a_range_is_the_business_of_those_who_used_its_lane_or_may_be_everywhere() {
    on(4, |memory| {
        let lanes = made(memory, Some(&spread(0)));
        let shape = *lanes.shape().unwrap();
        let (low, high) = (shape.range_of(1), shape.range_of(0));
        let asked = |range: Range<u64>| {
            let cpus: Vec<_> = lanes.snapshot(&range).iter().collect();
            let mut members: Vec<_> = lanes.members(&range).collect();
            members.sort_unstable();
            members.dedup();
            assert_eq!(cpus, members);
            for cpu in 0..4 {
                let others: Vec<_> = lanes.others(&range, cpu).iter().flat_map(CpuSet::iter).collect();
                let expected: Vec<_> = cpus.iter().copied().filter(|&member| member != cpu).collect();
                assert_eq!(others, expected, "but for CPU {cpu}, about {range:x?}");
            }
            cpus
        };
        lanes.enter(0, Walks::To(high.start));
        lanes.enter(1, Walks::To(low.end - 1));
        lanes.enter(2, Walks::To(0));
        lanes.enter(3, Walks::Everywhere);
        assert_eq!(asked(high.clone()), [0, 3]);
        assert_eq!(asked(low.start..low.start + 1), [1, 3]);
        assert_eq!(asked(low.end - PAGE..low.end + PAGE), [0, 1, 3], "across the bound");
        assert_eq!(asked(high.end..high.end + PAGE), [2, 3], "the rest is one lane");
        assert_eq!(asked(0..u64::MAX), [0, 1, 2, 3]);
        assert!(lanes.reach(3, 7) && lanes.reach(0, high.end - 1) && !lanes.reach(0, low.start));
        assert!(lanes.are_one(&high) && !lanes.are_one(&(low.end - 1..low.end + 1)) && !lanes.are_one(&(0..u64::MAX)));

        lanes.enter(0, Walks::To(low.start));
        lanes.let_go(0, &high);
        assert_eq!((asked(high.clone()), asked(low.clone())), ([3].into(), [0, 1, 3].into()), "of one lane");
        assert!(lanes.users().contains(0));
        assert!(lanes.come_back(0, Walks::To(high.start)) && !lanes.come_back(0, Walks::To(high.start)));
        lanes.let_go(0, &(0..u64::MAX));
        assert_eq!((asked(high.clone()), asked(low.clone())), ([3].into(), [1, 3].into()), "of all lanes");
        assert!(!lanes.users().contains(0));
        lanes.leave(3);
        assert_eq!(asked(0..u64::MAX), [1, 2]);
        assert!(asked(high).is_empty());
        lanes.free(memory);
    });
}

#[test]
fn granules_of_the_rest_are_lanes_where_it_has_many_sets() {
    on(4, |memory| {
        let lanes = made(memory, Some(&Spread { nr_rest_sets: 8, ..spread(0) }));
        let high = lanes.shape().unwrap().range_of(0);
        let granule = 1 << GRANULE_SHIFT;
        let at = |number: u64| high.end + number * granule;
        let asked = |range: Range<u64>| lanes.snapshot(&range).iter().collect::<Vec<_>>();
        lanes.enter(0, Walks::To(at(0)));
        lanes.enter(1, Walks::To(at(1) + PAGE));
        lanes.enter(2, Walks::To(at(2) - 1));
        lanes.enter(3, Walks::To(high.start));
        assert_eq!(
            (asked(at(0)..at(1)), asked(at(1)..at(2)), asked(high.clone())),
            ([0].into(), [1, 2].into(), [3].into())
        );
        assert_eq!(asked(at(1) - PAGE..at(1) + PAGE), [0, 1, 2], "of two granules");
        assert_eq!(asked(at(0)..at(8)), [0, 1, 2], "of eight");
        assert_eq!(asked(at(0)..at(8) + 1), [0, 1, 2, 3], "of more than eight: everybody's");
        assert_eq!(asked(at(0) - PAGE..at(0) + PAGE), [0, 1, 2, 3], "across the bound of the rest: everybody's");
        assert_eq!(asked(at(8)..at(9)), [0], "two that share a set");
        assert!(lanes.reach(1, at(2) - PAGE) && !lanes.reach(1, at(2)) && !lanes.reach(1, at(0)));
        assert!(lanes.are_one(&(at(1)..at(2))) && !lanes.are_one(&(at(1)..at(2) + 1)));
        lanes.let_go(1, &(at(1)..at(2)));
        assert!(asked(at(1)..at(2)) == [2] && lanes.users().contains(1));
        lanes.leave(2);
        assert!(asked(at(1)..at(2)).is_empty());
        lanes.free(memory);
    });
}

#[test]
fn lanes_cost_who_has_them() {
    let nr_frames = |nr_cpus, spread: Option<Spread>| {
        let mut taken = 0;
        on(nr_cpus, |memory| {
            let before = memory.nr_free();
            let lanes = made(memory, spread.as_ref());
            taken = before - memory.nr_free();
            lanes.enter(0, Walks::To(0));
            assert!(lanes.reach(0, 0) && lanes.users().contains(0));
            lanes.free(memory);
            assert_eq!(memory.nr_free(), before);
        });
        taken
    };
    assert_eq!([1, 384].map(|nr_cpus| nr_frames(nr_cpus, None)), [0, 0], "Linux's places");
    assert_eq!([1, 2, 8, 62, 63, 384].map(|nr_cpus| nr_frames(nr_cpus, Some(spread(0)))), [0, 1, 1, 1, 2, 8]);
    // As many lines again.
    let with_own = |nr_cpus| nr_frames(nr_cpus, Some(spread((nr_cpus + 1) * 8)));
    assert_eq!([1, 2, 30, 31, 384].map(with_own), [0, 1, 1, 2, 16]);
}

#[test]
fn words_of_the_spaces_own_lie_behind_the_sets() {
    on(30, |memory| {
        let lanes = made(memory, Some(&spread(15)));
        let words = lanes.own_words().unwrap();
        assert_eq!((words.len(), words.as_ptr().addr() % LINE_BYTES), (16, 0), "whole lines");
        words.iter().for_each(|word| word.store(u64::MAX, Ordering::Relaxed));
        assert!(lanes.snapshot(&(0..u64::MAX)).is_empty(), "no set has any of them");
        for address in [0, lanes.shape().unwrap().range_of(29).start] {
            assert!(!lanes.reach(3, address));
        }
        lanes.free(memory);
        let none = made(memory, None);
        assert!(none.own_words().is_none());
    });
}

#[test]
fn who_used_the_space_before_lanes_came_is_asked_about_all_of_it() {
    on(4, |memory| {
        let spread = spread(0);
        let lanes = Lanes::<Native>::new(Some(&spread));
        let high = lanes.shape().unwrap().range_of(0);
        let asked = |range: &Range<u64>| lanes.snapshot(range).iter().collect::<Vec<_>>();
        lanes.enter(2, Walks::To(high.start));
        assert!(!lanes.are_several() && lanes.are_one(&(0..u64::MAX)) && lanes.own_words().is_none());
        assert_eq!(asked(&(high.end..high.end + PAGE)), [2], "there is one lane");
        lanes.publish(lanes.prepare(memory, &spread, 1).unwrap().unwrap());
        lanes.enter(1, Walks::To(high.end));
        assert_eq!((asked(&high), asked(&(high.end..high.end + PAGE))), ([2].into(), [1, 2].into()));
        lanes.let_go(2, &high);
        assert!(asked(&high).is_empty() && asked(&(high.end..high.end + PAGE)) == [1]);
        assert!(lanes.come_back(2, Walks::To(high.start)));
        assert_eq!(asked(&high), [2]);
        lanes.free(memory);
    });
}
