//! Park's contract, and what stands on it directly.

use crate::{Plain, race};
use faultless_platform::loom::Loom;
use faultless_platform::{Atomic, Ordering, Processor};
use faultless_sync::{Barrier, Completion};

struct Flag {
    word: <Loom as Processor>::AtomicU32,
    data: Plain,
}

fn raise(flag: &Flag) {
    flag.data.write(7);
    flag.word.store(1, Ordering::Release);
    Loom::unpark(&flag.word, 1);
}

fn await_flag(flag: &Flag) {
    while flag.word.load(Ordering::Acquire) == 0 {
        Loom::park(&flag.word, 0);
    }
    assert_eq!(flag.data.read(), 7);
}

#[test]
pub fn park_compares_and_sleeps_in_one_step() {
    let flag = || Flag { word: Atomic::new(0), data: Plain::new() };
    race(None, flag, [raise, await_flag], |_| ());
}

#[test]
#[should_panic(expected = "deadlock")]
fn a_wake_up_before_the_change_is_lost() {
    let too_early = |flag: &Flag| {
        flag.data.write(7);
        Loom::unpark(&flag.word, 1);
        flag.word.store(1, Ordering::Release);
    };
    race(None, || Flag { word: Atomic::new(0), data: Plain::new() }, [too_early, await_flag], |_| ());
}

struct Gate {
    event: Completion<Loom>,
    data: Plain,
}

fn gate() -> Gate {
    Gate { event: Completion::new(), data: Plain::new() }
}

fn open(gate: &Gate) {
    gate.data.write(7);
    gate.event.set();
}

fn pass(gate: &Gate) {
    gate.event.wait();
    assert_eq!(gate.data.read(), 7);
}

#[test]
pub fn event_wakes_all_who_wait_and_shows_what_came_before() {
    race(None, gate, [open, pass], |_| ());
    race(Some(3), gate, [open, pass, pass], |_| ());
}

struct Meeting {
    barrier: Barrier<Loom>,
    counts: [Plain; 2],
    leaders: Plain,
}

fn meet(meeting: &Meeting) {
    for count in &meeting.counts {
        // One after the other: the barrier is what orders the rounds, not the threads of one round.
        let mine = &meeting.leaders;
        if meeting.barrier.wait() {
            count.bump();
            mine.bump();
        }
        meeting.barrier.wait();
        assert_eq!(count.read(), 1);
    }
}

#[test]
pub fn barrier_holds_all_back_and_has_one_leader_a_round() {
    let meeting = || Meeting { barrier: Barrier::new(2), counts: [Plain::new(), Plain::new()], leaders: Plain::new() };
    race(Some(2), meeting, [meet, meet], |meeting| assert_eq!(meeting.leaders.read(), 2));
}
