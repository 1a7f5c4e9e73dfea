//! Reading through the page cache, without a mapping: what a read system call does.

use super::{FetchError, ObjectHandle, PageError};
use crate::addr::{PAGE, page_floor};
use crate::design::Design;
use crate::error::CallError;
use crate::instance::Vm;
use crate::system::System;
use crate::translations::frames::{self, FrameMap};
use crate::words;
use faultless_phys::{FrameSource, Pfn};
use faultless_platform::Holds;

impl<P: System, D: Design<P>> Vm<P, D> {
    /// Reads words of an object from a byte offset on, a multiple of 8; they end within the page. What is not cached is
    /// fetched.
    pub fn read_object(&self, object: &ObjectHandle<'_, P>, offset: u64, words: &mut [u64]) -> Result<(), CallError> {
        self.check_owner(&object.object)?;
        let place = offset - page_floor(offset);
        if !offset.is_multiple_of(8) || place + words.len() as u64 * 8 > PAGE {
            return Err(CallError::Invalid("the words are not aligned or leave the page"));
        }
        loop {
            match self.hold_cached(object, offset / PAGE)? {
                None => self.fetch(object, offset / PAGE)?,
                Some(pfn) => {
                    let map = FrameMap::new(self.memory(), pfn, Some(Holds::FilePage));
                    // SAFETY: the reference keeps the frame, the words lie in it, and mapped frames are accessed
                    // atomically.
                    unsafe { words::load_words::<P>(self.memory().frame(pfn).add(place as usize), words) };
                    drop(map);
                    frames::put(self.memory(), pfn);
                    return Ok(());
                }
            }
        }
    }

    /// Returns the frame of a cached page, with a reference for the caller.
    fn hold_cached(&self, object: &ObjectHandle<'_, P>, page_index: u64) -> Result<Option<Pfn>, CallError> {
        let _rcu = self.memory().rcu().read();
        let found = object.cached(self.memory(), page_index).map_err(|error| refused(error.into()))?;
        if let Some(pfn) = found {
            frames::get(self.memory(), pfn).map_err(|_| CallError::TooManyReferences)?;
        }
        Ok(found)
    }

    fn fetch(&self, object: &ObjectHandle<'_, P>, page_index: u64) -> Result<(), CallError> {
        match self.try_again(|| object.fill(self.memory(), page_index)) {
            Ok(()) | Err(PageError::Fetch(FetchError::Retry)) => Ok(()),
            Err(error) => Err(refused(error)),
        }
    }
}

fn refused(error: PageError) -> CallError {
    match error {
        PageError::BehindEnd => CallError::Invalid("the offset is behind the object's end"),
        PageError::Fetch(_) => CallError::Fetch,
        PageError::OutOfFrames(cause) => CallError::OutOfFrames(cause),
    }
}
