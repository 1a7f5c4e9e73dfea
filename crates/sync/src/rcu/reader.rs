//! A CPU's word: inside a read section or not, and how many it has left.
//!
//! # Word first
//! Bits 0..16: how deep the sections nest, 0 outside. Bits 16..: sections left so far, modulo 2^48, which would wrap
//! within one look of a scanner after days of doing nothing else.
//!
//! Beside it stands how many callers want to keep the slot while they wait ([`SlotKept`]).

use core::marker::PhantomData;
use faultless_platform::{Atomic, AtomicInteger, Ordering, Processor};

const NESTING: u64 = 0xffff;
const SECTION: u64 = 0x1_0000;

/// The reader's side of one CPU slot.
pub(super) struct Reader<P: Processor> {
    word: P::AtomicU64,
    nr_keeping: P::AtomicU64,
}

/// What a scanner saw of a CPU.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct ReaderWord(u64);

impl ReaderWord {
    /// The word of a CPU that has not been in a section yet.
    pub(super) const OUTSIDE: Self = Self(0);

    pub(super) fn is_inside(self) -> bool {
        self.0 & NESTING != 0
    }

    fn is_same_section(self, other: Self) -> bool {
        self.0 / SECTION == other.0 / SECTION
    }
}

impl<P: Processor> Reader<P> {
    pub(super) fn new() -> Self {
        Self { word: P::AtomicU64::new(0), nr_keeping: P::AtomicU64::new(0) }
    }

    #[inline]
    pub(super) fn enter(&self, cpu: usize) -> RcuGuard<'_, P> {
        let before = self.note_inside();
        if before & NESTING == 0 {
            // ORDER: pairs with the fence in `Grace::start`; forbids found and freed (table of the module above).
            P::fence(Ordering::SeqCst);
        }
        RcuGuard { reader: self, cpu, is_cpu_bound: PhantomData }
    }

    #[inline]
    pub(super) fn enter_fenced(&self, cpu: usize) -> RcuGuard<'_, P> {
        self.note_inside();
        // ORDER: as in `enter`, and pairs with the fence in `Lookers::may_be_elsewhere`.
        P::fence(Ordering::SeqCst);
        RcuGuard { reader: self, cpu, is_cpu_bound: PhantomData }
    }

    /// Counts a section in; returns the word before.
    #[inline]
    fn note_inside(&self) -> u64 {
        // Relaxed: only this CPU writes (I2).
        let before = self.word.load(Ordering::Relaxed);
        assert_ne!(before & NESTING, NESTING, "RCU read sections nest too deep: guards were forgotten");
        // ORDER: Release pairs with the Acquire in `look`: a scanner that sees this section sees that the last one is
        // over.
        self.word.store(before.wrapping_add(1), Ordering::Release);
        before
    }

    #[inline]
    fn leave(&self) {
        // Relaxed: only this CPU writes (I2).
        let inner = self.word.load(Ordering::Relaxed).wrapping_sub(1);
        let after = if inner & NESTING == 0 { inner.wrapping_add(SECTION) } else { inner };
        // ORDER: Release pairs with the Acquire in `look`: the section's accesses are over before anything is freed.
        self.word.store(after, Ordering::Release);
    }

    /// Keeps the slot; called by its owner.
    pub(super) fn keep_slot(&self) -> SlotKept<'_, P> {
        // Relaxed: asked by the owner alone. A guard may be dropped by a thread that has another CPU by now.
        self.nr_keeping.fetch_add(1, Ordering::Relaxed);
        SlotKept { reader: self, is_cpu_bound: PhantomData }
    }

    /// Says whether the slot is kept.
    pub(super) fn keeps_slot(&self) -> bool {
        // Relaxed: as in `keep_slot`.
        self.nr_keeping.load(Ordering::Relaxed) != 0
    }

    #[inline]
    pub(super) fn is_inside(&self) -> bool {
        // Relaxed: asked by the slot's owner of its own word.
        ReaderWord(self.word.load(Ordering::Relaxed)).is_inside()
    }

    /// Looks at the word from any CPU.
    pub(super) fn look(&self) -> ReaderWord {
        // ORDER: Acquire pairs with the Release in `leave` and `enter`.
        ReaderWord(self.word.load(Ordering::Acquire))
    }

    /// Says whether the section that `seen` may have shown is over.
    pub(super) fn has_passed(&self, seen: ReaderWord) -> bool {
        if !seen.is_inside() {
            return true;
        }
        let now = self.look();
        !now.is_inside() || !now.is_same_section(seen)
    }
}

/// Keeps the CPU's slot through waits for grace periods; see [`Rcu::keep_slot`](super::Rcu::keep_slot).
#[must_use = "the slot may be given up as soon as the guard is dropped"]
pub struct SlotKept<'a, P: Processor> {
    reader: &'a Reader<P>,
    is_cpu_bound: PhantomData<*const ()>,
}

impl<P: Processor> Drop for SlotKept<'_, P> {
    fn drop(&mut self) {
        // Relaxed: as in `keep_slot`.
        self.reader.nr_keeping.fetch_sub(1, Ordering::Relaxed);
    }
}

/// A read section; ends when dropped. Bound to the CPU: whoever has it does not park.
///
/// Dropped by a thread that has lost the CPU, or has another one by now, it is as one that is forgotten: the section
/// never ends. The word belongs to whoever owns the CPU then (I2), who may be in a section of its own.
#[must_use = "the read section ends as soon as the guard is dropped"]
pub struct RcuGuard<'a, P: Processor> {
    reader: &'a Reader<P>,
    cpu: usize,
    is_cpu_bound: PhantomData<*const ()>,
}

impl<P: Processor> Drop for RcuGuard<'_, P> {
    #[inline]
    fn drop(&mut self) {
        if P::try_cpu() == Some(self.cpu) {
            self.reader.leave();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use faultless_platform::native::{Machine, Native};

    #[test]
    fn a_section_is_over_once_another_began() {
        Machine::new(1).attach(sections_of_one_cpu);
    }

    fn sections_of_one_cpu() {
        let reader = Reader::<Native>::new();
        let outside = reader.look();
        let first = reader.enter(0);
        let seen = reader.look();
        assert!(reader.has_passed(outside), "there was none");
        let inner = reader.enter_fenced(0);
        assert!(!reader.has_passed(seen) && !reader.has_passed(reader.look()));
        drop(inner);
        assert!(!reader.has_passed(seen), "the outer one goes on");
        drop(first);
        assert!(reader.has_passed(seen) && !reader.is_inside());
        let _second = reader.enter(0);
        assert!(reader.has_passed(seen), "it is another one");
        assert!(!reader.has_passed(reader.look()) && reader.is_inside());
    }
    /// In a release build, too: with one more the CPU would look as though it were in no section.
    #[test]
    #[cfg_attr(miri, ignore = "65,535 sections take Miri minutes")]
    #[should_panic(expected = "nest too deep")]
    fn a_cpu_counts_no_more_sections_than_its_word_holds() {
        Machine::new(1).attach(|| {
            let reader = Reader::<Native>::new();
            for _ in 0..NESTING {
                core::mem::forget(reader.enter(0));
                assert!(reader.is_inside());
            }
            let _one_more = reader.enter(0);
            panic!("it is counted, and the CPU is inside: {}", reader.is_inside());
        });
    }
}
