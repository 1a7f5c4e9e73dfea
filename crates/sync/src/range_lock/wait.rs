//! How somebody waits for a part: awake and not for long, behind whoever sleeps in line for everything, and then for
//! everything itself.
//!
//! # Guarantee
//! Every wait ends (I3 of the module above). What is chosen is chosen anew behind each wait, under the lock of its
//! table, unless a mutant says otherwise.

use super::parts::{InTheWay, Mode, Part, Places};
use super::{Choice, Choose, Claim, HeldRanges, PartTableRef, RangeLock, is_still};
use crate::{ReadGuard, RwSemaphore};
use faultless_platform::{Processor, mutant};

/// How long somebody waits awake for a part, at least.
const LEAST_PATIENCE_NS: u64 = 20_000;
/// How long for each CPU: who takes everything instead puts all others to sleep, and each takes its time to wake.
const PATIENCE_OF_A_CPU_NS: u64 = 5_000;

/// So many times a call waits for a part that long; then all its further waits do together, unless it comes behind.
const MOST_WAITS: u32 = 8;
/// So many times a call comes behind somebody else; then it waits awake, or takes everything if it has to make room.
const MOST_BEHIND: u32 = 8;

/// How long somebody still waits, and how often he has.
#[derive(Default)]
struct Patience {
    /// When a wait ends, once one has begun.
    until_ns: Option<u64>,
    nr_waits: u32,
    nr_behind: u32,
}

impl Patience {
    /// Waits awake until what is in the way has gone; says whether it did in time.
    fn has_seen_it_go<P: Processor>(&mut self, is_gone: impl Fn() -> bool) -> bool {
        let len_ns = LEAST_PATIENCE_NS.max(PATIENCE_OF_A_CPU_NS * P::nr_cpus() as u64);
        let until_ns = *self.until_ns.get_or_insert_with(|| P::now() + len_ns);
        let has_gone = P::spin_until_deadline(until_ns, is_gone);
        if has_gone {
            self.nr_waits += 1;
            // Where many come and go, another may be in the way by now.
            self.until_ns = self.until_ns.filter(|_| self.nr_waits >= MOST_WAITS);
        }
        has_gone
    }
}

/// What came of a choice.
enum Tried<'a, P: Processor> {
    Entered(Places<'a, P>),
    InTheWay(InTheWay<'a, P>),
    Again(PartTableRef<'a, P>),
    Behind,
    Everything,
}

/// Enters what was chosen, under the locks of its tables.
#[inline]
fn tried<'a, P: Processor>(
    choice: &Choice<'a, P>,
    mode: Mode,
    table: &mut HeldRanges<'a, P>,
    beside: &mut Option<HeldRanges<'a, P>>,
) -> Tried<'a, P> {
    let entered = match (choice, beside) {
        (Choice::Everything, _) | (Choice::Two(..), None) => return Tried::Everything,
        (Choice::Again(wanted), _) => return Tried::Again(*wanted),
        (Choice::Behind, _) => return Tried::Behind,
        (Choice::Part(claim), _) => table.enter(&Part { claim: *claim, mode }).map(|own| Places { own, beyond: None }),
        (Choice::Two(claim, range), Some(beyond)) => {
            table.enter_both(&Part { claim: *claim, mode }, (beyond, Part { claim: Claim::of(range), mode }))
        }
    };
    entered.map_or_else(Tried::InTheWay, Tried::Entered)
}

/// A part that was just entered; the table is locked still.
pub(super) struct Entered<'a, P: Processor, S: RwSemaphore<P>> {
    pub(super) parts: PartTableRef<'a, P>,
    pub(super) places: Places<'a, P>,
    pub(super) share: ReadGuard<'a, P, S>,
    pub(super) table: HeldRanges<'a, P>,
}

impl<P: Processor, S: RwSemaphore<P>, const PLACES: usize> RangeLock<P, S, PLACES> {
    /// Shares the semaphore and enters what is wanted; the share alone if no parts are given out; nothing if the part
    /// is of no one table, or not to be had soon.
    #[track_caller]
    pub(super) fn soon_entered<'a>(
        &'a self,
        place: &impl Fn() -> Option<PartTableRef<'a, P>>,
        mode: Mode,
        choose: &mut Choose<'_, 'a, P>,
    ) -> Result<Entered<'a, P, S>, Option<ReadGuard<'a, P, S>>> {
        let mut share = self.semaphore.read();
        if !self.is_divided() {
            return Err(Some(share));
        }
        let mut patience = Patience::default();
        let (mut chosen, mut other) = (None, None);
        loop {
            let parts = place().ok_or(None)?;
            let (mut table, mut beside) = self.locked(parts, other.take());
            // Those who have parts need this lock to get ready.
            let makes_way = table.had_to_wait() && self.comes_behind(&patience);
            if !makes_way {
                if mutant!(ChosenBeforeTheWait, true => chosen.is_none()) {
                    chosen = Some(choose(&table, &mut beside));
                }
                // The choice may have moved its place to another table, as somebody else may have before we had the
                // lock.
                if !mutant!(TableOfBefore, is_still(place, parts) => true) {
                    chosen = None;
                    continue;
                }
            }
            let tried = match &chosen {
                _ if makes_way => Tried::Behind,
                Some(choice) => tried(choice, mode, &mut table, &mut beside),
                None => Tried::Everything,
            };
            let in_the_way = match tried {
                Tried::Entered(places) => return Ok(Entered { parts, places, share, table }),
                Tried::Everything => return Err(None),
                Tried::Again(wanted) => {
                    (other, chosen) = (Some(wanted), None);
                    continue;
                }
                Tried::InTheWay(in_the_way) => Some(in_the_way),
                Tried::Behind => None,
            };
            drop((table, beside));
            if let Some(InTheWay(slot, end)) = in_the_way
                && !self.comes_behind(&patience)
            {
                // Without the other table's lock, if there was one.
                chosen =
                    mutant!(ChosenBeforeTheWait, None => chosen.filter(|choice| matches!(choice, Choice::Part(_))));
                if patience.has_seen_it_go::<P>(|| slot.end() != end) {
                    continue;
                }
                if !self.comes_behind(&patience) {
                    return Err(None);
                }
            }
            // One who has everything is enough: what was in the way is gone then.
            (share, chosen) = (self.behind(share, &mut patience)?, None);
        }
    }

    /// Says whether somebody who meets others comes behind whoever sleeps in line for everything.
    fn comes_behind(&self, patience: &Patience) -> bool {
        patience.nr_behind < MOST_BEHIND && self.is_contended()
    }

    /// Lets somebody have everything who waits for that, and shares the semaphore again; the share alone if no parts
    /// are given out then, and nothing if it is the caller's turn to have everything.
    #[cold]
    #[track_caller]
    fn behind<'a>(
        &'a self,
        share: ReadGuard<'a, P, S>,
        patience: &mut Patience,
    ) -> Result<ReadGuard<'a, P, S>, Option<ReadGuard<'a, P, S>>> {
        drop(share);
        let share = self.semaphore.read();
        // Whoever slept has not been waiting awake.
        patience.until_ns = None;
        patience.nr_behind += 1;
        if !self.is_divided() {
            return Err(Some(share));
        }
        if patience.nr_behind > MOST_BEHIND { Err(None) } else { Ok(share) }
    }

    /// Locks a table, and another one if that is named: in the order of their addresses, but the lock's own last.
    #[inline]
    #[track_caller]
    fn locked<'a>(
        &'a self,
        parts: PartTableRef<'a, P>,
        other: Option<PartTableRef<'a, P>>,
    ) -> (HeldRanges<'a, P>, Option<HeldRanges<'a, P>>) {
        let Some(other) = other.filter(|other| !other.is_same(parts)) else { return (parts.lock(), None) };
        let order = |table: PartTableRef<'a, P>| (table.is_same(self.parts()), table.address());
        if order(parts) < order(other) {
            let own = parts.lock();
            (own, Some(other.lock()))
        } else {
            let other = other.lock();
            (parts.lock(), Some(other))
        }
    }
}
