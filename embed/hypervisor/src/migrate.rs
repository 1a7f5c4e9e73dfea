//! A copy of a machine's memory, made while the machine runs.
//!
//! # Guarantee
//! When [`Migration::finish`] returns, every page that holds anything but zeros was sent after its last store.

use crate::formats::Hardware;
use crate::machine::{Cpu, Exit, Machine};
use faultless_platform::PAGE_BYTES;
use faultless_vm::{Access, AccessError, Guest, PAGE, PageRange, VirtAddr};
use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU64, Ordering};

/// A page's content.
pub type Page = [u64; PAGE_BYTES / 8];

/// A copy under way. It belongs to a thread with a CPU slot.
pub struct Migration<'m, 'vm, H: Hardware> {
    machine: &'m Machine<'vm, H>,
    reader: Guest<'vm, Cpu<H>>,
}

impl<'m, 'vm, H: Hardware> Migration<'m, 'vm, H> {
    /// Begins a copy: the first round sends every page that was ever stored to.
    pub fn begin(machine: &'m Machine<'vm, H>) -> Self {
        Self { machine, reader: machine.processor() }
    }

    /// Sends the pages that were stored to since the last round, by address; returns how many.
    pub fn round(&self, send: &mut dyn FnMut(u64, &Page)) -> Result<usize, Exit> {
        let written = self.written();
        for &page in &written {
            send(page, &self.content(page)?);
        }
        Ok(written.len())
    }

    /// Runs rounds until one sends at most `few` pages, or `most_rounds`; stops the machine's processors and devices by
    /// `pause`, and sends what is left. Returns how many rounds it took.
    pub fn finish(
        &self,
        few: usize,
        most_rounds: usize,
        pause: impl FnOnce(),
        send: &mut dyn FnMut(u64, &Page),
    ) -> Result<usize, Exit> {
        let mut nr_rounds = 0;
        while self.round(send)? > few && nr_rounds < most_rounds {
            nr_rounds += 1;
        }
        pause();
        // A window that stays open is none of a machine that has stopped: its pages are sent once more.
        while self.round(send)? > self.machine.devices().open.len() {
            nr_rounds += 1;
        }
        Ok(nr_rounds)
    }

    /// Returns the pages that processors or devices stored to since the last call.
    fn written(&self) -> BTreeSet<u64> {
        let mut pages = {
            let mut devices = self.machine.devices();
            let closed = std::mem::take(&mut devices.closed);
            closed.into_iter().chain(devices.open.keys().copied()).collect::<BTreeSet<_>>()
        };
        for range in self
            .machine
            .ram
            .iter()
            .filter_map(|range| PageRange::between(VirtAddr::new(range.start), VirtAddr::new(range.end)))
        {
            self.machine.space.collect_written(range, &mut |address| {
                pages.insert(address.get());
            });
        }
        pages
    }

    fn content(&self, page: u64) -> Result<Page, Exit> {
        let mut content = [0; PAGE_BYTES / 8];
        let read = self.reader.with_frame(VirtAddr::new(page / PAGE * PAGE), Access::Read, |frame| {
            for (place, word) in content.iter_mut().enumerate() {
                // SAFETY: the page is there while this runs, the word is in it, and guests access it atomically.
                *word = unsafe { AtomicU64::from_ptr(frame.cast::<u64>().add(place)) }.load(Ordering::Relaxed);
            }
        });
        match read {
            Ok(()) => Ok(content),
            Err(AccessError::OutOfFrames(_) | AccessError::TooManyReferences) => Err(Exit::OutOfMemory),
            Err(_) => Err(Exit::Forbidden),
        }
    }
}
