//! mmap_touch: maps 1 MiB of anonymous memory, stores to all of it, and unmaps it; alone, or one worker at a time.
//!
//! Source: the test of the 2013 rwsem series, "Anonymous memory mmap/munmap of 1MB", a store to each 8 bytes; its
//! author tried it behind a mutex of the user's too (`--mutex`), and before that without a store (`--untouched`). An
//! operation is all of it.

use crate::PAGE;
use crate::program::{Program, Seat, Step, Worker};
use crate::settings::{MmapTouch, Settings};
use crate::space::{AddressSpace, MapCall, Refused};
use alloc::boxed::Box;
use faultless_platform::{Atomic, Ordering, Processor, Threads};

/// What is mapped at once, unless told.
pub(crate) const REGION_BYTES: u64 = 1 << 20;
/// What is stored to each byte.
const BYTE: u8 = 0xa;

/// The program: what its workers share is the mutex.
pub(crate) struct Touching<P: Processor> {
    flags: MmapTouch,
    region_bytes: u64,
    mutex: UserMutex<P>,
}

impl<P: Processor> Touching<P> {
    pub(crate) fn new(settings: &Settings) -> Self {
        Self { flags: settings.mmap_touch, region_bytes: settings.region_bytes, mutex: UserMutex::new() }
    }
}

impl<P: Threads> Program<P> for Touching<P> {
    fn worker<'a>(&'a self, _seat: Seat, space: &'a dyn AddressSpace) -> Result<Box<dyn Worker + 'a>, Refused> {
        Ok(Box::new(Toucher { program: self, space, call: MapCall::anonymous(self.region_bytes) }))
    }
}

struct Toucher<'a, P: Processor> {
    program: &'a Touching<P>,
    space: &'a dyn AddressSpace,
    call: MapCall,
}

impl<P: Processor> Toucher<'_, P> {
    fn map_touch_unmap(&self) -> Result<(), Refused> {
        let start = self.space.map(&self.call)?;
        let end = start + self.call.len_bytes;
        if !self.program.flags.is_untouched {
            // A page at a time: a fault and the stores behind it, as the loop makes them.
            (start..end).step_by(PAGE as usize).try_for_each(|page| self.space.fill(page..page + PAGE, BYTE))?;
        }
        self.space.unmap(start..end)
    }
}

impl<P: Processor> Worker for Toucher<'_, P> {
    fn step(&mut self) -> Result<Step, Refused> {
        let _held = self.program.flags.has_mutex.then(|| self.program.mutex.lock());
        self.map_touch_unmap().map(|()| Step::of(1))
    }
}

/// A mutex as pthread's: who waits sleeps, and whoever comes may be quicker than one who is woken.
///
/// `word`: 0 free; 1 held; 2 held, and somebody may sleep (Drepper, "Futexes are tricky", the second mutex).
struct UserMutex<P: Processor> {
    word: P::AtomicU32,
}

impl<P: Processor> UserMutex<P> {
    fn new() -> Self {
        Self { word: P::AtomicU32::new(0) }
    }

    fn lock(&self) -> UserMutexGuard<'_, P> {
        // ORDER: Acquire pairs with the Release in the guard's drop, here and below.
        if self.word.compare_exchange(0, 1, Ordering::Acquire, Ordering::Relaxed).is_err() {
            // ORDER: as above.
            while self.word.swap(2, Ordering::Acquire) != 0 {
                P::park(&self.word, 2);
            }
        }
        UserMutexGuard(self)
    }
}

struct UserMutexGuard<'a, P: Processor>(&'a UserMutex<P>);

impl<P: Processor> Drop for UserMutexGuard<'_, P> {
    fn drop(&mut self) {
        // ORDER: Release pairs with the Acquire in `lock`.
        if self.0.word.swap(0, Ordering::Release) == 2 {
            P::unpark(&self.0.word, 1);
        }
    }
}
