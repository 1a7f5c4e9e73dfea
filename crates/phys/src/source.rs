//! Where frames come from: what an embedder implements to bring memory of its own.
//!
//! # Guarantee
//! Address spaces and [`Slab`](crate::Slab)s ask for nothing but a [`FrameSource`]. [`Memory`](crate::Memory) is one,
//! over a region in one piece; a kernel's own may have holes, start anywhere, keep metadata where it likes, and reach
//! its frames through whatever window it has. All that depends on the source is compiled for it: nothing is called
//! through a pointer.
//!
//! # The life of a frame
//! ```text
//! take --begin_life--> in use --put: was it the last?--> end_life --> give
//!                        \--free_deferred--> waits for a grace period --release: finish_deferral--/
//! ```
//! A source implements `take`, `give` and `release`; the rest is written here once, over a frame's [`Page`].

use crate::audit::{Audit, FrameInfo, look};
use crate::error::{Cause, OutOfFrames};
use crate::options::Options;
use crate::page::Page;
use crate::pfn::Pfn;
use crate::state::State;
use core::mem::offset_of;
use core::ops::Range;
use core::ptr::NonNull;
use faultless_platform::{Atomic, Bulk, Holds, Ordering, PAGE_BYTES, Platform};
use faultless_sync::{Rcu, RcuHead};

/// A source of frames; a handle, of which clones name the same source.
///
/// A source is used by the threads of one machine. `take` and `give` never sleep, take no lock but their own, and call
/// nobody back: they run under locks of address spaces. [`CheckedSource`](crate::CheckedSource) wraps a source and
/// panics where one of the obligations is broken that can be seen from outside.
///
/// # Safety
/// Obligations of an implementation:
/// * F1 `take` hands a block out to one caller, until it comes back by `give` with the same order. A block of order
///   `n` has `1 << n` frames, whose numbers and bytes are in a row; the first number is a multiple of `1 << n`.
/// * F2 `frame` and `page_pointer` of a number that `contains` accepts stay the same as long as the source or anything
///   made over it lives. A frame is [`PAGE_BYTES`] long, aligned to as many, and shared with no other frame or
///   metadata; it is valid for reads and writes, if need be while `Platform::map_frame` gives it an address.
/// * F3 number 0 is never handed out: links to frames use it as none. Numbers are below [`Pfn::LIMIT`].
/// * F4 metadata is all zeros when the source is made (a valid [`Page`]), and then only this crate writes it.
/// * F5 `pfn_of` undoes `frame`, for each of the frame's bytes.
/// * F6 a clone names the same source, and the source lives as long as a clone of it.
/// * F7 `release` calls `finish_deferral` of the source that the metadata belongs to.
/// * F8 `rcu` is one and the same [`Rcu`] all the time, and its callbacks run on the source's machine.
///
/// # Who calls what
/// | callers | functions |
/// |---|---|
/// | `vm` and [`Slab`](crate::Slab), for tables, pages and objects | `alloc`, `try_alloc`, `alloc_zeroed`, `alloc_order`, `try_alloc_order`, `alloc_for`, `try_alloc_for`, `free`, `free_order`, `put`, `free_deferred`, `may_sleep` |
/// | those functions, which come with the trait | `take`, `take_for`, `take_alive`, `give`, `alloc_after_flush`, `begin_life`, `end_life`, `strikes`, `refusal` |
/// | RCU, when a frame's grace period is over | `release`, and that `finish_deferral` |
/// | a thread that ends, without a slot | `give_without_cpu`, `free_without_cpu` |
/// | whoever has a frame's number | `frame`, `page`, `page_pointer`, `contains` |
/// | whoever has an address in a frame: tables' parents, high memory | `pfn_of`, `pointer` |
/// | an instance, once | `nr_cpus`, `rcu`, `options`, `tell_names` |
/// | limits on what spaces may promise, audits, tests | `nr_free`, `nr_frames`, `end`, `for_each_range`, `audit_with` |
pub unsafe trait FrameSource<P: Platform>: Clone + Send + Sync + Sized + 'static {
    /// Takes `1 << order` frames; their content is anything. Fails with [`Cause::Exhausted`] if at some instant during
    /// the call no such block was free. Never sleeps.
    ///
    /// Callers want [`FrameSource::alloc`] and its like, which begin the frame's life.
    fn take(&self, order: u8) -> Result<Pfn, Cause>;
    /// Takes a block back.
    ///
    /// # Safety
    /// It came from `take` with this order, and nobody uses it any more.
    unsafe fn give(&self, first: Pfn, order: u8);
    /// As [`FrameSource::give`], for a caller that owns no CPU slot.
    ///
    /// # Safety
    /// As for [`FrameSource::give`].
    unsafe fn give_without_cpu(&self, first: Pfn, order: u8) {
        // SAFETY: passed on.
        unsafe { self.give(first, order) }
    }
    /// Frees a frame whose grace period is over: finds the source and calls [`FrameSource::finish_deferral`].
    ///
    /// # Safety
    /// `page` came from `page_pointer` for `pfn`, which was deferred by `free_deferred` and is released once.
    unsafe fn release(page: NonNull<Page<P>>, pfn: Pfn);

    /// Returns a frame's metadata, as a pointer from which `release` can find the source.
    ///
    /// # Panics
    /// If [`FrameSource::contains`] says no.
    fn page_pointer(&self, pfn: Pfn) -> NonNull<Page<P>>;
    /// Returns a frame's first byte.
    fn frame(&self, pfn: Pfn) -> *mut u8;
    /// Returns the frame that holds an address, if one does.
    fn pfn_of(&self, address: *const u8) -> Option<Pfn>;
    /// Says whether the source may hand out such a frame.
    fn contains(&self, pfn: Pfn) -> bool;
    /// Visits the numbers that the source may hand out, ascending: ranges of frames in a row, each with the first
    /// number of it that was never handed out (its end, where that isn't known).
    fn for_each_range(&self, visit: &mut dyn FnMut(Range<u32>, u32));
    /// Returns how many frames are free; exact while nobody takes or gives any.
    fn nr_free(&self) -> usize;
    /// Returns how many CPU slots the machine has.
    fn nr_cpus(&self) -> usize;
    /// Returns the RCU whose grace periods deferred frames and objects wait for; an address space shares it.
    fn rcu(&self) -> &Rcu<P>;

    /// Returns the choices made at set-up.
    fn options(&self) -> &Options {
        const { &Options::DEFAULT }
    }
    /// Counts an allocation; says whether it must fail because a test wants it to.
    #[inline(always)]
    fn strikes(&self) -> bool {
        false
    }
    /// Begins the life of a block that `take` handed out.
    ///
    /// # Safety
    /// The block was just taken, and is the caller's.
    #[inline(always)]
    unsafe fn begin_life(&self, first: Pfn, order: u8) {
        self.page(first).start_counting(State::given(order, self.options().refcount_bits));
    }
    /// Ends the life of a block that is about to be given back.
    ///
    /// # Panics
    /// If it is no block of this order in use: it would be handed out twice.
    ///
    /// # Safety
    /// As for [`FrameSource::give`], which comes next.
    #[inline(always)]
    unsafe fn end_life(&self, first: Pfn, order: u8) {
        let page = self.page(first);
        assert!(page.state().is_in_use(order), "I1: {first} is freed, but is no block of order {order} in use");
        page.clear();
        page.set_state(State::FREE);
    }

    /// Returns how many frames there are to hand out.
    fn nr_frames(&self) -> usize {
        let mut nr_frames = 0;
        self.for_each_range(&mut |range, _| nr_frames += range.len());
        nr_frames
    }

    /// Returns the first number behind those of all frames.
    fn end(&self) -> u32 {
        let mut end = 0;
        self.for_each_range(&mut |range, _| end = end.max(range.end));
        end
    }

    /// Returns a frame's metadata.
    ///
    /// # Panics
    /// If [`FrameSource::contains`] says no.
    #[inline(always)]
    fn page(&self, pfn: Pfn) -> &Page<P> {
        // SAFETY: F2 and F4; `Page` changes through atomics alone.
        unsafe { self.page_pointer(pfn).as_ref() }
    }

    /// Tells observers what lies where; called by the instance that uses the source, on its machine.
    fn tell_names(&self) {}

    /// Returns a pointer to an address inside a frame, that may reach all of the frame.
    ///
    /// # Safety
    /// A frame of the memory holds it.
    #[inline(always)]
    unsafe fn pointer(&self, address: usize) -> NonNull<u8> {
        let pfn = self.pfn_of(core::ptr::without_provenance(address)).expect("an address inside a frame");
        // No frame stands at 0.
        NonNull::new(self.frame(pfn).map_addr(|frame| frame + address % PAGE_BYTES)).expect("a frame's address")
    }

    /// Takes a frame; its content is anything. May sleep, to wait for frames that are freed after a grace period.
    #[inline]
    fn alloc(&self) -> Result<Pfn, OutOfFrames> {
        self.may_sleep();
        self.try_alloc().or_else(|refusal| self.alloc_after_flush(refusal))
    }

    /// Takes a frame, without ever sleeping: for callers in an RCU section or with a spin lock held.
    #[inline(always)]
    fn try_alloc(&self) -> Result<Pfn, OutOfFrames> {
        self.try_alloc_order(0)
    }

    /// As [`FrameSource::take`], of a frame that may lie in high memory if what it will hold may; nothing names what
    /// needs an address. Sources of platforms without high memory leave it as it is.
    #[inline(always)]
    fn take_for(&self, _holds: Option<Holds>) -> Result<Pfn, Cause> {
        self.take(0)
    }

    /// Takes a frame to hold such a thing: from high memory if it may lie there; from normal memory otherwise, or if
    /// there is no other. Its content is anything. May sleep.
    #[inline(always)]
    fn alloc_for(&self, holds: Option<Holds>) -> Result<Pfn, OutOfFrames> {
        if !P::HAS_HIGH_MEMORY {
            return self.alloc();
        }
        self.may_sleep();
        self.try_alloc_for(holds).or_else(|refusal| {
            if refusal.cause() != Cause::Exhausted {
                return Err(refusal);
            }
            self.rcu().flush();
            self.try_alloc_for(holds)
        })
    }

    /// As [`FrameSource::alloc_for`], without ever sleeping.
    #[inline(always)]
    fn try_alloc_for(&self, holds: Option<Holds>) -> Result<Pfn, OutOfFrames> {
        if !P::HAS_HIGH_MEMORY {
            return self.try_alloc();
        }
        if self.strikes() {
            return Err(self.refusal(0, Cause::Injected));
        }
        let pfn = self.take_for(holds).map_err(|cause| self.refusal(0, cause))?;
        // SAFETY: just taken.
        unsafe { self.begin_life(pfn, 0) };
        Ok(pfn)
    }

    /// Takes a frame filled with zeros. May sleep.
    #[inline]
    fn alloc_zeroed(&self) -> Result<Pfn, OutOfFrames> {
        let pfn = self.alloc()?;
        // SAFETY: the frame was just given out to us (F1), and is aligned (F2).
        unsafe { P::bulk(self.frame(pfn), Bulk::Zero) };
        Ok(pfn)
    }

    /// Takes `1 << order` frames in a row. May sleep. References are counted on the first frame alone.
    fn alloc_order(&self, order: u8) -> Result<Pfn, OutOfFrames> {
        self.may_sleep();
        self.try_alloc_order(order).or_else(|refusal| self.alloc_after_flush(refusal))
    }

    /// As [`FrameSource::alloc_order`], without ever sleeping.
    #[inline(always)]
    fn try_alloc_order(&self, order: u8) -> Result<Pfn, OutOfFrames> {
        if self.strikes() {
            return Err(self.refusal(order, Cause::Injected));
        }
        self.take_alive(order)
    }

    /// Takes a block that does not count as an allocation, without sleeping.
    #[inline(always)]
    fn take_alive(&self, order: u8) -> Result<Pfn, OutOfFrames> {
        let first = self.take(order).map_err(|cause| self.refusal(order, cause))?;
        // SAFETY: just taken.
        unsafe { self.begin_life(first, order) };
        Ok(first)
    }

    /// Tries once more behind the grace periods that frames wait for.
    #[cold]
    fn alloc_after_flush(&self, refusal: OutOfFrames) -> Result<Pfn, OutOfFrames> {
        if refusal.cause() != Cause::Exhausted {
            return Err(refusal);
        }
        self.rcu().flush();
        self.take_alive(refusal.order())
    }

    /// Returns the error for an allocation that failed.
    #[cold]
    fn refusal(&self, order: u8, cause: Cause) -> OutOfFrames {
        OutOfFrames::new(self.nr_frames(), order, cause)
    }

    /// Frees a frame. Never sleeps.
    ///
    /// # Safety
    /// `pfn` came from an allocation of a single frame and wasn't freed since. The caller is its sole owner (its one
    /// reference, or `Page::put` said that it was the last), and nobody uses the frame from now on, by its address or
    /// by a translation on any CPU.
    #[inline(always)]
    unsafe fn free(&self, pfn: Pfn) {
        // SAFETY: passed on.
        unsafe { self.free_order(pfn, 0) }
    }

    /// Frees a row of frames, with the order that it was allocated with. Never sleeps.
    ///
    /// # Safety
    /// As for [`FrameSource::free`], for the row.
    #[inline(always)]
    unsafe fn free_order(&self, first: Pfn, order: u8) {
        // SAFETY: the caller had it from `take`, by way of an allocation.
        unsafe {
            self.end_life(first, order);
            self.give(first, order);
        }
    }

    /// As [`FrameSource::free`], for a caller that owns no CPU slot.
    ///
    /// # Safety
    /// As for [`FrameSource::free`].
    unsafe fn free_without_cpu(&self, pfn: Pfn) {
        // SAFETY: as in `free_order`.
        unsafe {
            self.end_life(pfn, 0);
            self.give_without_cpu(pfn, 0);
        }
    }

    /// Gives a reference back and frees the frame if it was the last; says whether it did. Never sleeps.
    ///
    /// # Safety
    /// The caller has a reference to a single frame and gives it up. Should it be the last, nobody uses the frame.
    #[inline]
    unsafe fn put(&self, pfn: Pfn) -> bool {
        let is_last = self.page(pfn).put();
        if is_last {
            // SAFETY: the caller's promise.
            unsafe { self.free(pfn) };
        }
        is_last
    }

    /// Frees a frame once every RCU section that runs now has ended. Never sleeps, never allocates.
    ///
    /// The freeing is done by [`Rcu::poll`], which the embedder calls now and then where it holds no lock, or by an
    /// allocation that finds nothing else.
    ///
    /// # Safety
    /// As for [`FrameSource::free`], but readers inside RCU sections that have begun already may go on using the frame.
    unsafe fn free_deferred(&self, pfn: Pfn) {
        self.page(pfn).begin_deferral(pfn);
        let page = self.page_pointer(pfn);
        // SAFETY: the place lies within the metadata.
        let head = unsafe { page.byte_add(offset_of!(Page<P>, deferred)).cast::<RcuHead<P>>() };
        // SAFETY: metadata stays in place (F2), its head is nobody else's before `released` frees the frame, and that
        // takes the source's locks alone.
        unsafe { self.rcu().defer(head, released::<P, Self>) };
    }

    /// Frees a deferred frame; called by [`FrameSource::release`] alone.
    ///
    /// # Safety
    /// As for `release`.
    unsafe fn finish_deferral(&self, pfn: Pfn) {
        let page = self.page(pfn);
        page.set_state(page.state().without_deferral());
        // SAFETY: nobody uses the frame since the grace period is over.
        unsafe { self.free(pfn) };
    }

    /// Notes that the caller may be put to sleep. With poison on, a caller that must not is found even if it isn't.
    ///
    /// # Panics
    /// With poison on, inside an RCU section.
    #[inline(always)]
    fn may_sleep(&self) {
        if self.options().poison {
            assert!(
                !self.rcu().is_reading(),
                "an allocation that may sleep is made inside an RCU section: use try_alloc"
            );
        }
    }

    /// Counts all frames, and shows those in use to `visit`, ascending. Exact while nobody allocates or frees.
    fn audit_with(&self, mut visit: impl FnMut(FrameInfo)) -> Audit {
        let mut audit = Audit::of_free(self.nr_free());
        self.for_each_range(&mut |range, fresh| {
            look(|pfn| self.page(pfn), range.start..fresh, &mut audit, &mut visit);
            audit.add_untouched((range.end - fresh) as usize);
        });
        audit
    }
}

/// Frees a frame whose grace period is over.
///
/// # Safety
/// `head` stands in the metadata of a deferred frame of an `F`.
unsafe fn released<P: Platform, F: FrameSource<P>>(head: NonNull<RcuHead<P>>) {
    // SAFETY: the head was made from a pointer to the metadata that `release` can use.
    let page = unsafe { head.byte_sub(offset_of!(Page<P>, deferred)).cast::<Page<P>>() };
    // SAFETY: metadata is always valid.
    // Relaxed: `begin_deferral` wrote it, and RCU handed it over.
    let number = unsafe { page.as_ref() }.number.load(Ordering::Relaxed);
    // SAFETY: `begin_deferral` wrote the frame's own number; RCU runs this once.
    unsafe { F::release(page, Pfn::new(number)) };
}
