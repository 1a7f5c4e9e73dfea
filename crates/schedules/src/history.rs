//! Whether what a run answered can be explained by some order of its operations.
//!
//! # Guarantee
//! An order is accepted if each operation happens between its begin and its end, and the plain model, going through it,
//! gives every answer that the run gave, and what was seen at the end. All orders are tried (Wing and Gong 1993), but
//! for those that differ only in how they came to a state.

use std::collections::HashSet;
use std::fmt::Write as _;

use super::model::{Answer, Moment, Refusal, State, moments_of};
use super::ops::Op;

/// An operation as it happened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Happened {
    /// By whom.
    pub thread: usize,
    /// What.
    pub op: Op,
    /// What it stored.
    pub value: u64,
    /// When it began and ended.
    pub span: (u64, u64),
    /// What it answered.
    pub answer: Answer,
}

/// A moment to be put in order.
struct Item<'a> {
    happened: &'a Happened,
    moment: Moment,
    /// The item that comes before it.
    behind: Option<usize>,
}

impl Item<'_> {
    /// Returns the ways in which it may happen.
    fn moments(&self, state: &State) -> Vec<Moment> {
        let mut moments = vec![self.moment];
        match (self.moment, self.happened.op) {
            (Moment::Whole, op @ (Op::Load(..) | Op::Store(..) | Op::Read(..))) => {
                moments.extend((0..state.nr_leaving(op)).map(Moment::OnLeaving));
                moments.extend(matches!(op, Op::Store(..)).then_some(Moment::Rescue));
            }
            (Moment::Out(page), _) => moments.push(Moment::Kept(page)),
            _ => {}
        }
        moments
    }
}

/// Says whether no order of `history` explains it.
pub fn is_unexplained(history: &[Happened], start: &State) -> bool {
    let items = items(history);
    let mut start = start.clone();
    start.tidy();
    !Search { items: &items, seen: HashSet::new() }.go_on(0, &start)
}

fn items(history: &[Happened]) -> Vec<Item<'_>> {
    let mut items: Vec<Item<'_>> = Vec::new();
    for happened in history {
        let first = items.len();
        let moments = moments_of(happened.op, &happened.answer);
        items.extend(moments.into_iter().map(|(moment, behind)| Item {
            happened,
            moment,
            behind: behind.map(|number| first + number),
        }));
    }
    items
}

struct Search<'a> {
    items: &'a [Item<'a>],
    seen: HashSet<(u64, State)>,
}

impl Search<'_> {
    /// Says whether the items that are not in `done` can follow.
    fn go_on(&mut self, done: u64, state: &State) -> bool {
        if done.count_ones() as usize == self.items.len() {
            return true;
        }
        if !self.seen.insert((done, state.clone())) {
            return false;
        }
        let items = self.items;
        let candidates: Vec<usize> = (0..items.len()).filter(|&next| self.may_be_next(done, next)).collect();
        candidates.into_iter().any(|next| {
            let item = &items[next];
            item.moments(state).into_iter().any(|moment| {
                let mut state = state.clone();
                let fits = state.happen(item.happened.op, moment, item.happened.value, &item.happened.answer);
                state.tidy();
                fits && self.go_on(done | 1 << next, &state)
            })
        })
    }

    fn may_be_next(&self, done: u64, next: usize) -> bool {
        let is_open = |item: usize| done >> item & 1 == 0;
        let item = &self.items[next];
        let is_late = |other: usize| is_open(other) && self.items[other].happened.span.1 < item.happened.span.0;
        is_open(next) && !item.behind.is_some_and(is_open) && !(0..self.items.len()).any(is_late)
    }
}

/// Writes a history, by begin.
pub fn describe(history: &[Happened]) -> String {
    let mut lines: Vec<&Happened> = history.iter().collect();
    lines.sort_by_key(|happened| happened.span);
    lines.iter().fold(String::new(), |mut text, happened| {
        let Happened { thread, op, span, answer, value } = happened;
        let stored = if matches!(op, Op::Store(..)) { format!(" = {value}") } else { String::new() };
        let _ = write!(text, "\n  {:>6}-{:<6} thread {thread}: {op}{stored} -> {}", span.0, span.1, say(answer));
        text
    })
}

/// Writes an answer.
pub fn say(answer: &Answer) -> String {
    let look = |look: &Result<[u64; 2], Refusal>| match look {
        Ok(words) => format!("{words:?}"),
        Err(refusal) => format!("{refusal:?}"),
    };
    match answer {
        Answer::Done => "done".into(),
        Answer::Value(value) => value.to_string(),
        Answer::Refused(refusal) => format!("{refusal:?}"),
        Answer::Seen(pages) => pages.iter().map(look).collect::<Vec<_>>().join(" "),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ops::parse_part;

    fn happened(thread: usize, op: &str, value: u64, span: (u64, u64), answer: Answer) -> Happened {
        let op = parse_part(op).expect("an operation").ops[0];
        Happened { thread, op, value, span, answer }
    }

    fn mapped() -> State {
        let mut state = State::new(2, 64, 0);
        assert!(state.happen(parse_part("m0-1").expect("one").ops[0], Moment::Whole, 0, &Answer::Done));
        state
    }

    #[test]
    fn an_overlapping_load_may_see_either_and_a_later_one_the_new() {
        for (span, seen, is_wrong) in [((1, 9), 0, false), ((1, 9), 5, false), ((5, 9), 5, false), ((5, 9), 0, true)] {
            let history = [happened(0, "s0", 5, (0, 4), Answer::Done), happened(1, "l0", 0, span, Answer::Value(seen))];
            assert_eq!(is_unexplained(&history, &mapped()), is_wrong, "{span:?} {seen}");
        }
    }

    #[test]
    fn a_value_that_nobody_stored_has_no_order() {
        let history = [happened(0, "l0", 0, (0, 4), Answer::Value(3))];
        assert!(is_unexplained(&history, &mapped()));
    }

    #[test]
    fn dropped_pages_go_one_by_one_and_moved_ones_overlap() {
        let seen = |a, b| Answer::Seen(vec![Ok([a, 0]), Ok([b, 0])]);
        let drop = happened(0, "d0-1", 0, (5, 20), Answer::Done);
        let before = [happened(1, "s0", 1, (0, 1), Answer::Done), happened(1, "s1", 2, (2, 3), Answer::Done)];
        let half = [&before[..], &[drop.clone(), happened(1, "f", 0, (6, 8), seen(0, 2))]].concat();
        assert!(!is_unexplained(&half, &mapped()));
        let never = [&before[..], &[drop, happened(1, "f", 0, (21, 22), seen(0, 2))]].concat();
        assert!(is_unexplained(&never, &mapped()));
        let moved = happened(0, "v0=1", 0, (5, 20), Answer::Done);
        let both = [&before[..], &[moved, happened(1, "f", 0, (6, 8), seen(1, 1))]].concat();
        assert!(!is_unexplained(&both, &mapped()));
    }

    #[test]
    fn a_source_that_stays_is_fresh_behind_the_move() {
        let history = |a, b| {
            let seen = Answer::Seen(vec![Ok([a, 0]), Ok([b, 0])]);
            [
                happened(1, "s0", 1, (0, 1), Answer::Done),
                happened(0, "V0=1", 0, (5, 20), Answer::Done),
                happened(1, "f", 0, (21, 22), seen),
            ]
        };
        for (page_0, page_1, is_wrong) in [(0, 1, false), (1, 1, true), (1, 0, true), (0, 0, true)] {
            assert_eq!(is_unexplained(&history(page_0, page_1), &mapped()), is_wrong, "{page_0} {page_1}");
        }
    }

    #[test]
    fn a_pin_shows_a_page_as_it_was_when_it_was_pinned_or_as_it_is_when_it_is_looked_at() {
        let store = |value, span| happened(0, "s0", value, span, Answer::Done);
        let pin = |value| happened(1, "i0", 0, (4, 20), Answer::Value(value));
        // In the middle of the pin the page is stored to, dropped, and stored to again.
        let between =
            [store(1, (0, 1)), store(2, (5, 6)), happened(0, "d0", 0, (7, 9), Answer::Done), store(3, (10, 11))];
        for (value, is_wrong) in [(0, false), (1, false), (2, false), (3, false), (4, true)] {
            let history = [&between[..], &[pin(value)]].concat();
            assert_eq!(is_unexplained(&history, &mapped()), is_wrong, "{value}");
        }
        // What was gone before it was pinned is not shown.
        let before = [store(1, (0, 1)), happened(0, "d0", 0, (2, 3), Answer::Done)];
        for (value, is_wrong) in [(0, false), (1, true)] {
            let history = [&before[..], &[pin(value)]].concat();
            assert_eq!(is_unexplained(&history, &mapped()), is_wrong, "{value}");
        }
        // A look finds what was dropped after the page was pinned.
        let held = [store(1, (0, 1)), pin(1), happened(0, "u0", 0, (5, 6), Answer::Done)];
        assert!(!is_unexplained(&held, &mapped()));
    }
}
