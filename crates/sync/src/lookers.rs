//! Whether no CPU, one, or perhaps any looks something up without its lock.
//!
//! # Guarantee
//! If [`Lookers::may_be_elsewhere`] is false after something was made unreachable, it may be freed at once: no section
//! of [`Lookers::read`] can find it, and none that found it is still running. So what one CPU alone uses needs no grace
//! period.
//!
//! # Word first
//! 0: nobody has looked. `n + 1`: the one CPU that has. [`MANY`]: any may look; this stays until it is forgotten.
//! Before it comes [`COMING`], and a fence between both.
//!
//! # Race: a CPU looks for the first time
//! ```text
//! looker on CPU c                       remover on CPU r
//! word = c + 1, or many                 make it unreachable     (any)
//! fence SeqCst (RCU section begins)     fence SeqCst
//! look it up, use it                    word = 0, or r + 1? free it
//! ```
//! Of the two fences one comes first. The looker's: the remover reads `c + 1`, which is its own only if both are on one
//! CPU, and there the section is over, or many. The remover's: the lookup sees the removal. Forbidden: found and freed.
//!
//! A looker who is in a section already ([`Lookers::note`]) fences only if its CPU is not the one that has looked, and
//! many have not been noted yet. Its own CPU fenced when it became that one. And whoever notes many has fenced before:
//! if the remover missed that, its fence came first, so what it removed was gone when many were noted, and whoever
//! reads that (Acquire) sees it gone. Model: `tests/models/lookers.rs`.
//!
//! # Race: who has looked is forgotten beside one who looks ([`Forgetting`])
//! ```text
//! looker on CPU c, in a section             remover on CPU r
//! fence SeqCst (section begins)             word = 0, if it is many, or another CPU's
//! word = c + 1, or many? else notes itself  fence SeqCst; draws a ticket
//! look it up, use it                        later: is the ticket's grace period over? then: word = 0, or r + 1? free
//! ```
//! Of the two fences one comes first. The looker's: the grace period waits for its section. The remover's: the looker
//! reads 0, or what came since. That may be `many` of one whose `coming` was forgotten; but its section is waited for,
//! so the remover, who looks at the word behind the grace period, reads it, too. Forbidden: found and freed.

use crate::{Rcu, RcuGuard};
use faultless_platform::{Atomic, Ordering, Processor, mutant};

const NOBODY: u32 = 0;
const MANY: u32 = u32::MAX;
const COMING: u32 = MANY - 1;

/// See the module.
///
/// `vm` keeps one in each space: a munmap frees its areas at once while one CPU alone looks at the space.
///
/// ```
/// use faultless_platform::native::{Machine, Native};
/// use faultless_sync::{Lookers, Rcu};
///
/// let (lookers, rcu) = (Lookers::<Native>::new(), Rcu::<Native>::new(2));
/// Machine::new(2).attach(|| {
///     drop(lookers.read(&rcu));
///     assert!(!lookers.may_be_elsewhere(), "what we unlink now can be freed at once");
///     // A second thread comes: from now on it has to wait for a grace period.
///     lookers.let_many_in();
///     assert!(lookers.may_be_elsewhere());
///     // The space was emptied, and is ours alone.
///     lookers.forget();
///     assert!(!lookers.may_be_elsewhere());
/// });
/// ```
pub struct Lookers<P: Processor> {
    word: P::AtomicU32,
}

impl<P: Processor> Lookers<P> {
    /// Returns the word of what nobody has looked at.
    pub fn new() -> Self {
        Self { word: P::AtomicU32::new(NOBODY) }
    }

    /// Begins a section in which the caller, who owns a CPU, looks things up.
    #[inline]
    pub fn read<'a, const BATCH: usize>(&self, rcu: &'a Rcu<P, BATCH>) -> RcuGuard<'a, P> {
        let own = own::<P>();
        // Relaxed: the fence that begins the section orders it.
        let seen = self.word.load(Ordering::Relaxed);
        if seen != own && seen != MANY {
            self.join(own);
        }
        rcu.read_fenced()
    }

    /// As [`Lookers::read`], for a caller who is in a section already.
    #[inline]
    pub fn note(&self) {
        let own = own::<P>();
        // ORDER: Acquire pairs with the Release in `let_many_in`; forbids found and freed.
        let seen = self.word.load(Ordering::Acquire);
        if seen != own && seen != MANY {
            self.join(own);
        }
    }

    #[cold]
    fn join(&self, own: u32) {
        // Relaxed: the fence orders it.
        match self.word.compare_exchange(NOBODY, own, Ordering::Relaxed, Ordering::Relaxed) {
            // ORDER: pairs with the fence in `may_be_elsewhere`; forbids found and freed (module table).
            Ok(_) => P::fence_after_rmw(),
            Err(_) => self.let_many_in(),
        }
    }

    /// Lets any CPU look, in plain RCU sections, from now on.
    pub fn let_many_in(&self) {
        // Relaxed: the fence orders it.
        self.word.store(COMING, Ordering::Relaxed);
        // ORDER: pairs with the fence in `may_be_elsewhere`; forbids found and freed (module table).
        P::fence(Ordering::SeqCst);
        // ORDER: Release pairs with the Acquire in `note`.
        self.word.store(MANY, Ordering::Release);
    }

    /// Says whether no CPU but the calling one has looked; a hint. For a caller who sets aside what it may need.
    #[inline]
    pub fn are_the_callers(&self) -> bool {
        // Relaxed: a hint.
        let seen = self.word.load(Ordering::Relaxed);
        seen == NOBODY || seen == own::<P>()
    }

    /// Says whether a CPU other than the caller's may look, or have looked, at what the caller has made unreachable.
    #[inline]
    pub fn may_be_elsewhere(&self) -> bool {
        // Relaxed: many stay, or are forgotten by the caller.
        if self.word.load(Ordering::Relaxed) == MANY {
            return true;
        }
        // ORDER: pairs with the fence that begins a section, and with that in `let_many_in`; forbids found and freed
        // (module table).
        P::fence(Ordering::SeqCst);
        // Relaxed: the fence orders it.
        let seen = self.word.load(Ordering::Relaxed);
        seen != NOBODY && seen != own::<P>()
    }

    /// Forgets who has looked, unless many are just being noted; says whether it did. Who looked in a section that has
    /// not ended is noted nowhere any more: the caller waits for those.
    fn forget_lookers(&self) -> bool {
        // Relaxed, all: the fence of the caller's ticket orders it.
        let seen = self.word.load(Ordering::Relaxed);
        seen != COMING && self.word.compare_exchange(seen, NOBODY, Ordering::Relaxed, Ordering::Relaxed).is_ok()
    }

    /// Forgets who has looked; the caller alone reaches it from now on.
    pub fn forget(&self) {
        // Relaxed: the caller's alone.
        self.word.store(NOBODY, Ordering::Relaxed);
    }
}

impl<P: Processor> Default for Lookers<P> {
    fn default() -> Self {
        Self::new()
    }
}

/// Lets [`Lookers`] forget who looked long ago, of those who note themselves in sections ([`Lookers::note`]). It is the
/// remover's, of whom there is one at a time, and apart from the word that lookers read.
///
/// After others were found, so many removals go by before they are forgotten: 1 if the last who were forgotten stayed
/// away, else twice as many as the last time, up to [`Forgetting::MOST_PATIENCE`]. So where others look all the time,
/// forgetting them costs next to nothing.
///
/// ```
/// use faultless_platform::native::{Machine, Native};
/// use faultless_sync::{Forgetting, Lookers, Rcu};
///
/// let (lookers, forgetting) = (Lookers::<Native>::new(), Forgetting::<Native>::new());
/// let rcu = Rcu::<Native>::new(2);
/// Machine::new(2).attach(|| {
///     lookers.let_many_in();
///     assert!(forgetting.may_be_elsewhere(&lookers, &rcu), "from now on they are forgotten");
///     assert!(forgetting.may_be_elsewhere(&lookers, &rcu), "one of them may still be looking");
///     assert!(forgetting.is_under_way());
///     rcu.synchronize();
///     assert!(!forgetting.may_be_elsewhere(&lookers, &rcu) && !forgetting.is_under_way());
///     assert_eq!(Forgetting::<Native>::MOST_PATIENCE, 64);
/// });
/// ```
pub struct Forgetting<P: Processor> {
    /// How many removals are to go by, and went by.
    patience: P::AtomicU32,
    nr_gone_by: P::AtomicU32,
    /// 0, or of a grace period behind which those are gone who were forgotten.
    ticket: P::AtomicU64,
}

impl<P: Processor> Forgetting<P> {
    /// Removals that go by at most before others are forgotten.
    pub const MOST_PATIENCE: u32 = 1 << 6;

    /// Returns the state of a remover who has forgotten nobody.
    pub fn new() -> Self {
        Self { patience: P::AtomicU32::new(1), nr_gone_by: P::AtomicU32::new(0), ticket: P::AtomicU64::new(0) }
    }

    /// Says whether those may still be looking who were forgotten last; a hint to whoever is not the remover.
    #[inline]
    pub fn is_under_way(&self) -> bool {
        // Relaxed: the remover's.
        self.ticket.load(Ordering::Relaxed) != 0
    }

    /// As [`Lookers::may_be_elsewhere`]; the remover asks, of what sections of `rcu` find.
    #[inline]
    pub fn may_be_elsewhere<const BATCH: usize>(&self, lookers: &Lookers<P>, rcu: &Rcu<P, BATCH>) -> bool {
        // First: behind the grace period, what those have noted who were forgotten is seen.
        let may_linger = self.is_under_way() && mutant!(ForgottenLookersUnawaited, self.may_linger(rcu) => false);
        let may_be_elsewhere = lookers.may_be_elsewhere();
        if may_be_elsewhere {
            self.lose_patience(lookers, rcu);
        }
        may_be_elsewhere || may_linger
    }

    /// Says whether those may still be looking who were forgotten when the ticket was drawn.
    #[cold]
    fn may_linger<const BATCH: usize>(&self, rcu: &Rcu<P, BATCH>) -> bool {
        // Relaxed, all: the remover's.
        let may_linger = !rcu.is_over(self.ticket.load(Ordering::Relaxed));
        if !may_linger {
            self.ticket.store(0, Ordering::Relaxed);
            self.patience.store(1, Ordering::Relaxed);
        }
        may_linger
    }

    /// Forgets others when it is time.
    #[cold]
    fn lose_patience<const BATCH: usize>(&self, lookers: &Lookers<P>, rcu: &Rcu<P, BATCH>) {
        // Relaxed, all: the remover's.
        let (nr_gone_by, patience) =
            (self.nr_gone_by.load(Ordering::Relaxed) + 1, self.patience.load(Ordering::Relaxed));
        let is_time = nr_gone_by >= patience && lookers.forget_lookers();
        if is_time {
            self.patience.store((2 * patience).min(Self::MOST_PATIENCE), Ordering::Relaxed);
            self.ticket.store(rcu.ticket(), Ordering::Relaxed);
        }
        self.nr_gone_by.store(if is_time { 0 } else { nr_gone_by }, Ordering::Relaxed);
    }
}

impl<P: Processor> Default for Forgetting<P> {
    fn default() -> Self {
        Self::new()
    }
}

/// Returns the calling CPU's word.
#[inline]
fn own<P: Processor>() -> u32 {
    P::cpu() as u32 + 1
}
