//! Whether no CPU, one, or perhaps any looks something up without its lock.
//!
//! # Guarantee
//! If [`Lookers::may_be_elsewhere`] is false after something was made unreachable, it may be freed at once: no section
//! of [`Lookers::read`] can find it, and none that found it is still running. So what one CPU alone uses needs no grace
//! period.
//!
//! # Word first
//! 0: nobody has looked. `n + 1`: the one CPU that has. [`MANY`]: any may look; this stays until [`Lookers::forget`].
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

use crate::{Rcu, RcuGuard};
use faultless_platform::{Atomic, Ordering, Processor};

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
            Ok(_) => P::fence(Ordering::SeqCst),
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
        // Relaxed: many stay.
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

/// Returns the calling CPU's word.
#[inline]
fn own<P: Processor>() -> u32 {
    P::cpu() as u32 + 1
}
