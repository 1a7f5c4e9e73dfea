//! A set of CPU slots that all CPUs change: who may hold translations of an address space.
//!
//! # Guarantee
//! A member that was inserted is in every snapshot that is ordered after the insertion. The set orders nothing else: a
//! CPU that inserts itself and then uses translations fences between (`guest_enter` does), as does the one that
//! takes a translation away and then reads the set:
//! ```text
//! CPU T                          CPU S
//! insert(T)                      clear the entry
//! fence SeqCst (guest_enter)     fence SeqCst
//! read the entry                 snapshot()
//! ```
//! Forbidden: T reads the old entry and S misses T. Model: `tests/models/cpu_set.rs`.
//!
//! A member is removed by itself, or by another that knows that T looks at the set again before it next reads an entry
//! (`vm`'s `shootdown` says how it knows).

use faultless_platform::{Atomic, AtomicInteger, CpuSet, MAX_CPUS, Ordering, Processor};

const WORDS: usize = MAX_CPUS / u64::BITS as usize;

/// A set of CPU slots, changed by many.
///
/// ```
/// use faultless_platform::native::Native;
/// use faultless_sync::AtomicCpuSet;
///
/// let set = AtomicCpuSet::<Native>::new();
/// assert!(set.insert(3) && !set.insert(3), "it says whether the CPU is new");
/// set.insert(70);
/// assert!(set.contains(70) && set.members_below(64).eq([3]));
/// assert!(set.remove(3));
/// assert!(set.snapshot().iter().eq([70]) && set.snapshot_below(71) == set.snapshot());
/// ```
pub struct AtomicCpuSet<P: Processor> {
    words: [P::AtomicU64; WORDS],
}

impl<P: Processor> AtomicCpuSet<P> {
    /// Returns the empty set.
    pub fn new() -> Self {
        Self { words: core::array::from_fn(|_| P::AtomicU64::new(0)) }
    }

    /// Returns the set as whoever has several of different sizes sees it.
    #[inline]
    pub fn view(&self) -> CpuSetView<'_, P> {
        CpuSetView { words: &self.words }
    }

    /// Adds a CPU; says whether it was missing. A member costs one load, and no write.
    ///
    /// # Panics
    /// If `cpu` is [`MAX_CPUS`] or more: no machine hands out such a number.
    #[inline]
    pub fn insert(&self, cpu: usize) -> bool {
        self.view().insert(cpu)
    }

    /// Removes a CPU; says whether it was a member.
    #[inline]
    pub fn remove(&self, cpu: usize) -> bool {
        self.view().remove(cpu)
    }

    /// Says whether a CPU is a member.
    #[inline]
    pub fn contains(&self, cpu: usize) -> bool {
        self.view().contains(cpu)
    }

    /// Returns the members as a plain set, word by word.
    pub fn snapshot(&self) -> CpuSet {
        self.snapshot_below(MAX_CPUS)
    }

    /// As [`AtomicCpuSet::snapshot`], where all members are below `nr_cpus`: words of others are not looked at.
    #[inline]
    pub fn snapshot_below(&self, nr_cpus: usize) -> CpuSet {
        let mut set = CpuSet::new();
        self.view().add_to(&mut set, nr_cpus);
        set
    }

    /// Returns the members below `nr_cpus`, ascending: the words of no others are looked at.
    pub fn members_below(&self, nr_cpus: usize) -> impl Iterator<Item = usize> {
        self.view().members_below(nr_cpus)
    }
}

impl<P: Processor> Default for AtomicCpuSet<P> {
    fn default() -> Self {
        Self::new()
    }
}

/// A set whose words lie where its owner has them: as many as the CPUs need that there are.
///
/// ```
/// use faultless_platform::{Atomic, CpuSet, Processor, native::Native};
/// use faultless_sync::CpuSetView;
///
/// let words = [<Native as Processor>::AtomicU64::new(0)];
/// let set = CpuSetView::<Native>::new(&words);
/// assert!(set.has_one_at_most(64) && set.insert(3) && set.contains(3) && set.members_below(64).eq([3]));
/// assert!(set.has_one_at_most(64) && set.insert(4) && !set.has_one_at_most(64) && set.remove(4));
/// assert!(!set.has_others_below(64, 3) && set.has_others_below(64, 4));
/// assert!(set.others_below(64, 3).is_none() && set.others_below(64, 4).is_some_and(|others| others.iter().eq([3])));
/// let mut all = CpuSet::new();
/// set.add_to(&mut all, 64);
/// assert!(all.contains(3) && set.remove(3));
/// ```
pub struct CpuSetView<'a, P: Processor> {
    words: &'a [P::AtomicU64],
}

impl<P: Processor> Clone for CpuSetView<'_, P> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<P: Processor> Copy for CpuSetView<'_, P> {}

impl<'a, P: Processor> CpuSetView<'a, P> {
    /// Returns the set that has these words: bit `b` of word `w` is CPU `64 * w + b`.
    #[inline]
    pub const fn new(words: &'a [P::AtomicU64]) -> Self {
        Self { words }
    }

    /// As [`AtomicCpuSet::insert`].
    ///
    /// # Panics
    /// If there is no word for `cpu`.
    #[inline]
    pub fn insert(self, cpu: usize) -> bool {
        let (word, bit) = self.place(cpu);
        // Relaxed: the caller's fence orders the set (module table).
        word.load(Ordering::Relaxed) & bit == 0 && word.fetch_or(bit, Ordering::Relaxed) & bit == 0
    }

    /// As [`AtomicCpuSet::remove`].
    ///
    /// # Panics
    /// If there is no word for `cpu`.
    #[inline]
    pub fn remove(self, cpu: usize) -> bool {
        let (word, bit) = self.place(cpu);
        // Relaxed: as in `insert`.
        word.load(Ordering::Relaxed) & bit != 0 && word.fetch_and(!bit, Ordering::Relaxed) & bit != 0
    }

    /// As [`AtomicCpuSet::contains`].
    #[inline]
    pub fn contains(self, cpu: usize) -> bool {
        let bits = u64::BITS as usize;
        // Relaxed: as in `insert`.
        self.words.get(cpu / bits).is_some_and(|word| word.load(Ordering::Relaxed) & 1 << (cpu % bits) != 0)
    }

    /// Adds the members to a plain set, word by word; all are below `nr_cpus`, and words of others are not looked at.
    #[inline]
    pub fn add_to(self, set: &mut CpuSet, nr_cpus: usize) {
        for (index, word) in self.words.iter().take(nr_cpus.div_ceil(u64::BITS as usize)).enumerate() {
            // Relaxed: as in `insert`.
            set.insert_word(index, word.load(Ordering::Relaxed));
        }
    }

    /// Returns the members other than `cpu` as a plain set, if there is one; all are below `nr_cpus`, and words of
    /// others are not looked at. Where there is none, it costs a load for each word, and no set.
    #[inline]
    pub fn others_below(self, nr_cpus: usize, cpu: usize) -> Option<CpuSet> {
        let words = self.words_below(nr_cpus);
        let (index, others) = Self::first_others(words, cpu)?;
        Some(Self::others_from(&words[index + 1..], (index, others), cpu))
    }

    /// Says whether there is a member other than `cpu`; as [`CpuSetView::others_below`].
    #[inline]
    pub fn has_others_below(self, nr_cpus: usize, cpu: usize) -> bool {
        Self::first_others(self.words_below(nr_cpus), cpu).is_some()
    }

    /// Returns the first word that has members other than `cpu`: its index, and these.
    #[inline]
    fn first_others(words: &[P::AtomicU64], cpu: usize) -> Option<(usize, u64)> {
        let bits = u64::BITS as usize;
        words.iter().enumerate().find_map(|(index, word)| {
            let own = if index == cpu / bits { 1 << (cpu % bits) } else { 0 };
            // Relaxed: as in `insert`.
            let others = word.load(Ordering::Relaxed) & !own;
            (others != 0).then_some((index, others))
        })
    }

    #[inline]
    fn words_below(self, nr_cpus: usize) -> &'a [P::AtomicU64] {
        &self.words[..nr_cpus.div_ceil(u64::BITS as usize).min(self.words.len())]
    }

    /// As [`CpuSetView::others_below`], of a first word's members and the words behind it.
    #[cold]
    fn others_from(behind: &[P::AtomicU64], (first, members): (usize, u64), cpu: usize) -> CpuSet {
        let mut set = CpuSet::new();
        set.insert_word(first, members);
        for (index, word) in behind.iter().enumerate() {
            // Relaxed: as in `insert`.
            set.insert_word(first + 1 + index, word.load(Ordering::Relaxed));
        }
        set.remove(cpu);
        set
    }

    /// Says whether there is one member at most; all are below `nr_cpus`, and words of others are not looked at.
    #[inline]
    pub fn has_one_at_most(self, nr_cpus: usize) -> bool {
        let mut members = 0_u64;
        self.words.iter().take(nr_cpus.div_ceil(u64::BITS as usize)).all(|word| {
            // Relaxed: as in `insert`.
            let more = word.load(Ordering::Relaxed);
            let is_lonely = more & more.wrapping_sub(1) == 0 && (members == 0 || more == 0);
            members |= more;
            is_lonely
        })
    }

    /// As [`AtomicCpuSet::members_below`]; a word is looked at when its first member is asked for.
    #[inline]
    pub fn members_below(self, nr_cpus: usize) -> impl Iterator<Item = usize> + use<'a, P> {
        let bits = u64::BITS as usize;
        let mut words = self.words.iter().take(nr_cpus.div_ceil(bits));
        let (mut left, mut first) = (0_u64, 0_usize.wrapping_sub(bits));
        core::iter::from_fn(move || {
            while left == 0 {
                // Relaxed: as in `insert`.
                left = words.next()?.load(Ordering::Relaxed);
                first = first.wrapping_add(bits);
            }
            let cpu = first + left.trailing_zeros() as usize;
            left &= left - 1;
            (cpu < nr_cpus).then_some(cpu)
        })
    }

    #[inline]
    fn place(self, cpu: usize) -> (&'a P::AtomicU64, u64) {
        let bits = u64::BITS as usize;
        (&self.words[cpu / bits], 1 << (cpu % bits))
    }
}
