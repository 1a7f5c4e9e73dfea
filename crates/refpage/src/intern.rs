//! One place for each pattern of the process, with its tile.
//!
//! # Guarantee
//! Two [`RefPage`](crate::RefPage)s of the same content share one place and so one memfd. A place
//! is counted; when the last user is gone, its memfd is closed and its memory given back.
//!
//! # Invariants
//! - I7 `refs` is 0 exactly when the place is free; only the lock's holder moves it from or to 0.
//! - I8 `pattern` is written only while `refs` is 0 and the lock is held, so a user reads it freely.
//! - I9 Tile records of a place are freed only when it becomes free, so a user reads them freely.

use crate::lock::{self, Guard};
use crate::pattern::Pattern;
use crate::tile::{self, Tile};
use crate::{Error, Options, arena};
use std::cell::UnsafeCell;
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, Ordering};

/// The place of a pattern.
#[derive(Debug)]
pub(crate) struct Place {
    refs: AtomicU32,
    /// Made from another process's descriptor: not shared with those that were not.
    is_attached: AtomicBool,
    was_noticed: AtomicBool,
    pattern: UnsafeCell<Pattern>,
    tile: AtomicPtr<Tile>,
    next: *mut Place,
}

// SAFETY: I8 and I9 say who touches what; the rest are atomics and `next`, which never changes.
unsafe impl Sync for Place {}

static PLACES: AtomicPtr<Place> = AtomicPtr::new(ptr::null_mut());

/// Returns the place of a pattern, with one reference.
pub(crate) fn find_or_make(content: &[u8]) -> Result<&'static Place, Error> {
    let guard = lock::lock()?;
    if let Some(place) = places().find(|place| place.has(content)) {
        place.acquire();
        return Ok(place);
    }
    make(&guard, content, false)
}

/// Returns a place of its own, with one reference and a tile that another process made.
pub(crate) fn make_attached(content: &[u8], tile: Tile) -> Result<&'static Place, Error> {
    let guard = lock::lock()?;
    let place = make(&guard, content, true)?;
    match place.publish(&guard, tile) {
        Ok(_) => Ok(place),
        Err(error) => {
            place.clear(&guard);
            Err(error)
        }
    }
}

fn places() -> impl Iterator<Item = &'static Place> {
    // ORDER: Acquire pairs with the Release in `add`; it matters to `release` alone, which may
    // look without having made a place itself.
    // SAFETY: a place that was published stays mapped for the process's life.
    let first = unsafe { PLACES.load(Ordering::Acquire).as_ref() };
    // SAFETY: as above; `next` never changes.
    std::iter::successors(first, |place| unsafe { place.next.as_ref() })
}

fn make(guard: &Guard, content: &[u8], is_attached: bool) -> Result<&'static Place, Error> {
    let place = match places().find(|place| place.is_free()) {
        Some(place) => place,
        None => add(guard)?,
    };
    let pattern = Pattern::new(content)?;
    // SAFETY: I8: the place is free and the lock is held.
    unsafe { *place.pattern.get() = pattern };
    // Relaxed: published by `refs`.
    place.tile.store(ptr::null_mut(), Ordering::Relaxed);
    place.is_attached.store(is_attached, Ordering::Relaxed);
    place.was_noticed.store(false, Ordering::Relaxed);
    // ORDER: Release publishes the fields to whoever gets a reference; pairs with the handing over
    // of the handle between threads, and with the lock.
    place.refs.store(1, Ordering::Release);
    Ok(place)
}

fn add(guard: &Guard) -> Result<&'static Place, Error> {
    let place = arena::allocate::<Place>(guard)?;
    let fresh = Place {
        refs: AtomicU32::new(0),
        is_attached: AtomicBool::new(false),
        was_noticed: AtomicBool::new(false),
        pattern: UnsafeCell::new(Pattern::NONE),
        tile: AtomicPtr::new(ptr::null_mut()),
        // Relaxed: the lock is held.
        next: PLACES.load(Ordering::Relaxed),
    };
    // SAFETY: the record is ours and long enough.
    unsafe { place.write(fresh) };
    // ORDER: Release pairs with the Acquire in `places`.
    PLACES.store(place, Ordering::Release);
    // SAFETY: published above, for ever.
    Ok(unsafe { &*place })
}

impl Place {
    fn is_free(&self) -> bool {
        // Relaxed: asked under the lock, which alone moves `refs` from or to 0 (I7).
        self.refs.load(Ordering::Relaxed) == 0
    }

    fn has(&self, content: &[u8]) -> bool {
        // Relaxed: asked under the lock.
        !self.is_free() && !self.is_attached.load(Ordering::Relaxed) && self.pattern().content() == content
    }

    /// Adds a reference to a place that has one.
    pub(crate) fn acquire(&self) {
        // Relaxed: the place is not free, by the reference that the caller has or by the lock.
        self.refs.fetch_add(1, Ordering::Relaxed);
    }

    /// Drops a reference; the last one frees the place.
    pub(crate) fn release(&self) {
        if self.release_unless_last() {
            return;
        }
        // The lock exists since the place was made, so this cannot fail.
        let Ok(guard) = lock::lock() else { return };
        // ORDER: AcqRel pairs with the Release in `release_unless_last`: what the other users read
        // happened before the place is cleared.
        if self.refs.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.clear(&guard);
        }
    }

    fn release_unless_last(&self) -> bool {
        let fewer = |refs: u32| (refs > 1).then(|| refs - 1);
        // ORDER: Release pairs with the AcqRel in `release`.
        self.refs.fetch_update(Ordering::Release, Ordering::Relaxed, fewer).is_ok()
    }

    fn clear(&self, guard: &Guard) {
        // Relaxed: the last user is gone and the lock is held.
        self.refs.store(0, Ordering::Relaxed);
        let newest = self.tile.swap(ptr::null_mut(), Ordering::Relaxed);
        // SAFETY: I9: records stay until here.
        if let Some(newest) = unsafe { newest.as_ref() } {
            tile::close(newest);
        }
        let mut record = newest;
        while !record.is_null() {
            // SAFETY: a record of ours, which nobody uses any more.
            let previous = unsafe { (*record).previous };
            // SAFETY: as above.
            unsafe { arena::free(guard, record) };
            record = previous;
        }
        // SAFETY: I8: nobody uses the pattern any more.
        unsafe { self.pattern.get().replace(Pattern::NONE).free() };
    }

    /// Returns the pattern.
    pub(crate) fn pattern(&self) -> &Pattern {
        // SAFETY: I8: it is not written while somebody has a reference.
        unsafe { &*self.pattern.get() }
    }

    /// Returns the newest tile, if there is one.
    pub(crate) fn newest(&self) -> Option<Tile> {
        // ORDER: Acquire pairs with the Release in `publish`.
        let tile = self.tile.load(Ordering::Acquire);
        // SAFETY: I9: a published record stays until the place is free.
        unsafe { tile.as_ref() }.copied()
    }

    /// Returns a tile that serves an allocation of `len` bytes and whose descriptor is ours (I4).
    pub(crate) fn tile_for(&self, len: usize, options: &Options) -> Result<Tile, Error> {
        let period = self.pattern().period().ok_or(Error::LongPeriod { period: usize::MAX })?;
        let is_attached = self.is_attached.load(Ordering::Relaxed); // Relaxed: constant while used
        let serves = |tile: &Tile, wanted| {
            let wanted = if is_attached { 0 } else { wanted };
            tile.serves(len, wanted, period) && tile.is_ours()
        };
        let wanted = tile::wanted(options.tile_len, len, period);
        let floor = wanted.unwrap_or(0);
        if let Some(tile) = self.newest().filter(|tile| serves(tile, floor)) {
            return Ok(tile);
        }
        let guard = lock::lock()?;
        match self.newest().filter(|tile| serves(tile, floor)) {
            Some(tile) => Ok(tile),
            None => self.replace(&guard, wanted?),
        }
    }

    /// Makes a tile of `len` bytes and lets it take the newest's place.
    fn replace(&self, guard: &Guard, len: usize) -> Result<Tile, Error> {
        let old = self.newest();
        let fresh = self.publish(guard, tile::make(self.pattern(), len)?)?;
        // A thread that still maps from the old descriptor notices by its identity, and retries.
        old.iter().for_each(tile::close);
        Ok(fresh)
    }

    fn publish(&self, guard: &Guard, tile: Tile) -> Result<Tile, Error> {
        let record = match arena::allocate::<Tile>(guard) {
            Ok(record) => record,
            Err(error) => {
                tile::close(&tile);
                return Err(error);
            }
        };
        // Relaxed: the lock is held.
        let tile = Tile { previous: self.tile.load(Ordering::Relaxed), ..tile };
        // SAFETY: the record is ours and long enough.
        unsafe { record.write(tile) };
        // ORDER: Release pairs with the Acquire in `newest`.
        self.tile.store(record, Ordering::Release);
        Ok(tile)
    }

    /// Returns whether this is the first time that this is asked.
    pub(crate) fn is_first_notice(&self) -> bool {
        // Relaxed: nothing is published by it.
        !self.was_noticed.swap(true, Ordering::Relaxed)
    }
}
