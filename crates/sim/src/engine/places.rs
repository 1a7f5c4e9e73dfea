//! Which socket's memory an address lies in.
//!
//! # Guarantee
//! What was placed lies on the socket that was named, however often its lines change hands; all else on the socket of
//! the CPU that touches it first, as under Linux's default policy. A line keeps the place that it had when it was first
//! touched, so memory is placed before it is used.

use std::ops::Range;

/// Memory that was placed.
#[derive(Default)]
pub(super) struct Places {
    /// Ascending, without overlaps: addresses, and a CPU of the socket.
    ranges: Vec<(Range<usize>, u16)>,
}

impl Places {
    /// Puts a range onto the socket of `cpu`. What was placed there before keeps its place only where the range does
    /// not reach.
    pub(super) fn place(&mut self, range: Range<usize>, cpu: u16) {
        if range.is_empty() {
            return;
        }
        let mut ranges: Vec<_> = std::mem::take(&mut self.ranges)
            .into_iter()
            .flat_map(|(old, home)| {
                [(old.start..old.end.min(range.start), home), (old.start.max(range.end)..old.end, home)]
            })
            .filter(|(old, _)| !old.is_empty())
            .collect();
        ranges.push((range, cpu));
        ranges.sort_by_key(|(range, _)| range.start);
        self.ranges = ranges;
    }

    /// Returns a CPU of the socket that an address was placed on.
    pub(super) fn home_of(&self, address: usize) -> Option<u16> {
        let behind = self.ranges.partition_point(|(range, _)| range.start <= address);
        let (range, cpu) = self.ranges.get(behind.checked_sub(1)?)?;
        range.contains(&address).then_some(*cpu)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_placing_counts_where_it_reaches() {
        let mut places = Places::default();
        places.place(100..200, 1);
        places.place(300..400, 2);
        places.place(150..320, 3);
        places.place(160..170, 4);
        places.place(500..500, 5);
        let homes = [99, 100, 149, 150, 165, 170, 319, 320, 399, 400, 500].map(|address| places.home_of(address));
        let [one, two, three, four] = [1, 2, 3, 4].map(Some);
        assert_eq!(homes, [None, one, one, three, four, three, three, two, two, None, None]);
    }
}
