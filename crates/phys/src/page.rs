//! A frame's metadata: one line, one frame.
//!
//! # Guarantee
//! A reference taken by [`Page::try_get`] keeps the frame from being freed until it is put. A count never wraps: at its
//! limit `try_get` fails. A frame just given out has one reference, and zeros in its owner and index words.
//!
//! # Invariants
//! * I1 a free frame's count is 0, so that nobody can take a reference to it.
//! * I2 the count of a counted frame equals the references taken and not put; putting one that nobody took panics.
//! * I3 the state word is written by the frame's sole owner, or by the allocator while the frame is free. Sharers read
//!   it.
//!
//! # Lookup without a lock, and reuse: two columns
//! ```text
//! CPU A (found the number somewhere)       CPU B (owns the last reference)
//! try_get: count 0? then it is gone        take the number out of the place where A found it
//!          count n: n + 1, if still n      put: count 0, I was the last; free
//! read the place, or owner and index,      ... the frame is given out again, with another owner
//! again: not the same? then put it back
//! ```
//! Either A's step comes before B's put, and B isn't the last, or A sees 0, or A holds the frame's next life, which the
//! second look tells.

use crate::pfn::Pfn;
use crate::state::{Kind, State};
use faultless_platform::mutant;
use faultless_platform::{Atomic, AtomicInteger, Ordering, Platform};
use faultless_sync::{RawSpinLock, RcuHead, lock_class};

lock_class! {
    /// The locks in frames' metadata: those of page tables.
    pub TableLock = "page_table"
}

/// The metadata of one frame, 64 bytes.
///
/// The lock, the links, the owner and the index are for whoever has the frame; `phys` itself uses the links of free
/// frames, and all but the lock in frames of a [`Slab`](crate::Slab).
#[repr(C, align(64))]
pub struct Page<P: Platform> {
    state: P::AtomicU32,
    references: P::AtomicU32,
    /// The frame's own number, while it is deferred.
    pub(crate) number: P::AtomicU32,
    lock: RawSpinLock<P, TableLock>,
    links: [P::AtomicU64; 2],
    owner: P::AtomicU64,
    index: P::AtomicU64,
    /// RCU's, while the frame is deferred.
    pub(crate) deferred: RcuHead<P>,
}

impl<P: Platform> Page<P> {
    /// Returns what only those may use who have the frame.
    ///
    /// # Safety
    /// The caller has the frame: it got it from [`Memory::alloc`](crate::Memory::alloc) or the like, or holds a
    /// reference, and does with it what the functions of [`OwnedPage`] and the frame's other holders allow.
    #[inline]
    pub unsafe fn owned(&self) -> OwnedPage<'_, P> {
        OwnedPage(self)
    }

    /// Returns what the frame is used for.
    #[inline]
    pub fn kind(&self) -> Kind {
        self.state().kind()
    }

    /// See [`OwnedPage::set_kind`].
    #[inline]
    pub(crate) fn set_kind(&self, kind: Kind) {
        let kind = if kind == Kind::Free { Kind::Reserved } else { kind };
        self.set_state(self.state().with_kind(kind));
    }

    /// See [`OwnedPage::stop_counting`].
    fn stop_counting(&self) {
        self.set_state(self.state().without_counting());
    }

    /// Says whether references are counted.
    pub fn is_counted(&self) -> bool {
        !self.state().is_uncounted()
    }

    /// Returns the number of references; of an uncounted frame, what it was when counting stopped.
    #[inline]
    pub fn nr_references(&self) -> u32 {
        // Relaxed: a snapshot; who acts on it holds what keeps it from changing.
        self.references.load(Ordering::Relaxed)
    }

    /// Says whether `try_get` fails because the count is at its limit, not because the frame is gone.
    pub fn is_saturated(&self) -> bool {
        let state = self.state();
        !state.is_uncounted() && !state.is_free() && self.nr_references() >= state.most_references()
    }

    /// Takes a reference; fails if the frame has none (it is free, or about to be) or as many as it can count.
    #[inline]
    #[must_use = "without a reference the frame may be freed at any time"]
    pub fn try_get(&self) -> bool {
        let state = self.state();
        if state.is_uncounted() {
            return true;
        }
        let most = state.most_references();
        let mut count = self.nr_references();
        while count != 0 && mutant!(CountWraps, count < most => true) {
            let next = mutant!(CountWraps, count + 1 => (count + 1) & most);
            // ORDER: Acquire pairs with the Release in `start_counting`: a frame's new life is seen whole.
            match self.references.compare_exchange_weak(count, next, Ordering::Acquire, Ordering::Relaxed) {
                Ok(_) => return true,
                Err(now) => count = now,
            }
        }
        false
    }

    /// Takes a reference beside one that the caller knows to be held, also beyond the limit of [`Page::try_get`]: for
    /// whoever cannot fail. The count has room for twice as many, and each such reference stands in a table of its own.
    ///
    /// # Safety
    /// A reference to the frame is held meanwhile, and no more are taken in this way than there can be tables.
    ///
    /// ```
    /// # use faultless_phys::{Memory, Options};
    /// # use faultless_platform::native::{HostRegion, Machine, Native};
    /// # let (machine, region) = (Machine::new(1), HostRegion::reserve(8 << 20)?);
    /// let options = Options { refcount_bits: 2, ..Options::default() };
    /// # // SAFETY: the region is ours and outlives the memory.
    /// let memory = unsafe { Memory::<Native>::new(region.base(), region.len_bytes(), 1, options)? };
    /// machine.attach(|| {
    ///     let page = memory.page(memory.alloc()?);
    ///     assert!(page.try_get() && page.try_get() && !page.try_get() && page.is_saturated());
    ///     // SAFETY: we hold three.
    ///     unsafe { page.get_beside() };
    ///     assert_eq!(page.nr_references(), 4);
    ///     Ok::<(), faultless_phys::OutOfFrames>(())
    /// })?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[inline]
    pub unsafe fn get_beside(&self) {
        if !self.state().is_uncounted() {
            // Relaxed: the reference that is held keeps the frame.
            self.references.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// See [`OwnedPage::put`].
    #[inline]
    pub(crate) fn put(&self) -> bool {
        if self.state().is_uncounted() {
            return false;
        }
        // ORDER: Release pairs with the Acquire fence below, in the last one's `put`: all uses come before the freeing.
        let before = self.references.fetch_sub(1, Ordering::Release);
        assert_ne!(before, 0, "I2: a reference was put that nobody had taken");
        if before != 1 {
            return false;
        }
        // ORDER: Acquire pairs with the Release above; forbids that the freeing overtakes another one's last use.
        P::fence(Ordering::Acquire);
        true
    }

    /// Returns the spin lock that stands in the metadata: `vm` takes it for changes of the table in the frame.
    #[inline]
    pub fn lock(&self) -> &RawSpinLock<P, TableLock> {
        &self.lock
    }

    /// See [`OwnedPage::links`].
    #[inline]
    pub(crate) fn links(&self) -> &[P::AtomicU64; 2] {
        &self.links
    }

    /// See [`OwnedPage::owner`].
    #[inline]
    pub(crate) fn owner(&self) -> &P::AtomicU64 {
        &self.owner
    }

    /// See [`OwnedPage::index`].
    #[inline]
    pub(crate) fn index(&self) -> &P::AtomicU64 {
        &self.index
    }

    #[inline(always)]
    pub(crate) fn state(&self) -> State {
        // Relaxed: changes only while nobody shares the frame (I3), so that sharing orders it.
        State(self.state.load(Ordering::Relaxed))
    }

    #[inline(always)]
    pub(crate) fn set_state(&self, state: State) {
        // Relaxed: as in `state`.
        self.state.store(state.0, Ordering::Relaxed);
    }

    /// Begins a frame's life as a block just given out.
    #[inline(always)]
    pub(crate) fn start_counting(&self, state: State) {
        self.set_state(state);
        // ORDER: Release pairs with the Acquire in `try_get`.
        self.references.store(1, Ordering::Release);
    }

    /// Marks a frame as deferred: nobody can take a reference to it from now on.
    ///
    /// `deferred` and `number` are touched by the one who defers the frame, then by RCU, then by what frees it.
    pub(crate) fn begin_deferral(&self, pfn: Pfn) {
        let state = self.state();
        assert!(state.is_in_use(0), "I1: {pfn} is deferred, but is no single frame in use");
        self.stop_life();
        self.set_state(state.with_deferral());
        // Relaxed: handed over by RCU.
        self.number.store(pfn.get(), Ordering::Relaxed);
    }

    /// Ends a frame's life (I1); its sole owner calls it.
    #[inline(always)]
    pub(crate) fn stop_life(&self) {
        debug_assert!(self.nr_references() <= 1, "I2: a frame with other references is freed");
        // Relaxed: the allocator's list or RCU, through which the frame is found, orders it.
        self.references.store(0, Ordering::Relaxed);
    }

    /// Ends a frame's life and forgets whose it was.
    #[inline(always)]
    pub(crate) fn clear(&self) {
        self.stop_life();
        debug_assert!(!self.lock.is_locked(), "a frame is freed with its lock held");
        // Relaxed: as in `stop_life`.
        self.owner.store(0, Ordering::Relaxed);
        self.index.store(0, Ordering::Relaxed);
    }
}

/// A frame's metadata in the hands of somebody who has the frame.
///
/// ```
/// use faultless_phys::{Kind, Memory, Options, OwnedPage, Page};
/// use faultless_platform::{Atomic, Ordering};
/// # use faultless_platform::native::{HostRegion, Machine, Native};
/// # let (machine, region) = (Machine::new(2), HostRegion::reserve(8 << 20)?);
/// # // SAFETY: the region is ours and outlives the memory.
/// # let memory = unsafe { Memory::<Native>::new(region.base(), region.len_bytes(), 2, Options::default())? };
/// machine.attach(|| {
///     let pfn = memory.alloc_zeroed()?;
///     let page: &Page<Native> = memory.page(pfn);
///     // SAFETY: the frame was just allocated.
///     let owned: OwnedPage<'_, Native> = unsafe { page.owned() };
///     owned.set_kind(Kind::Object);
///     owned.owner().store(0x1000, Ordering::Relaxed);
///     owned.index().store(7, Ordering::Relaxed);
///     // A list of its owner's.
///     owned.links()[0].store(0, Ordering::Relaxed);
///     assert_eq!((page.kind(), page.nr_references(), page.is_counted()), (Kind::Object, 1, true));
///     // One that everybody maps, and nobody frees.
///     owned.stop_counting();
///     assert!(page.try_get() && !owned.put() && !page.is_counted() && !page.is_saturated());
///     Ok::<(), faultless_phys::OutOfFrames>(())
/// })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// Having it tells you nothing new: [`Page::owned`] was told. It names what would break other holders if anybody did
/// it.
pub struct OwnedPage<'a, P: Platform>(&'a Page<P>);

impl<'a, P: Platform> OwnedPage<'a, P> {
    /// Says what the frame is used for.
    ///
    /// Called by the frame's sole owner, before it shares the frame (I3). [`Kind::Free`] is taken as
    /// [`Kind::Reserved`]: frames are freed by [`Memory::free`](crate::Memory::free).
    #[inline]
    pub fn set_kind(&self, kind: Kind) {
        self.0.set_kind(kind);
    }

    /// Stops counting references for good: `try_get` succeeds without a write and `put` is never the last.
    ///
    /// For frames that everybody maps, such as the page of zeros. Called as [`OwnedPage::set_kind`] is; the frame's
    /// count stays as it is, and the frame is not freed while anybody may look it up.
    pub fn stop_counting(&self) {
        self.0.stop_counting();
    }

    /// Gives a reference back; says whether it was the last, and the caller now owns the frame alone and frees it.
    ///
    /// # Panics
    /// If there was none to give back (I2).
    #[inline]
    #[must_use = "the last one out frees the frame"]
    pub fn put(&self) -> bool {
        self.0.put()
    }

    /// Returns the two link words, for lists of the frame's owner; what they hold when a frame is given out is not
    /// said.
    #[inline]
    pub fn links(&self) -> &'a [P::AtomicU64; 2] {
        self.0.links()
    }

    /// Returns the word that says whose the frame is: an object, a root of the reverse map; 0 when it is given out.
    #[inline]
    pub fn owner(&self) -> &'a P::AtomicU64 {
        self.0.owner()
    }

    /// Returns the word that says which page of its owner the frame holds; 0 when it is given out.
    #[inline]
    pub fn index(&self) -> &'a P::AtomicU64 {
        self.0.index()
    }
}

impl<P: Platform> core::ops::Deref for OwnedPage<'_, P> {
    type Target = Page<P>;
    fn deref(&self) -> &Page<P> {
        self.0
    }
}

impl<P: Platform> core::fmt::Debug for Page<P> {
    fn fmt(&self, out: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        out.debug_struct("Page")
            .field("state", &self.state())
            .field("references", &self.nr_references())
            .finish_non_exhaustive()
    }
}
