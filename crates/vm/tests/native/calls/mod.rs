//! What the calls do, on one thread, under every design.
//!
//! * `areas`, `moves`, `advice`, `forks`, `files`: what each family of calls leaves
//! * `faults`: what an access finds; `shortages`: what happens when frames run out

mod advice;
mod areas;
mod faults;
mod files;
mod forks;
mod moves;
mod shortages;

use crate::world::{Tested, World};
use faultless_platform::native::Native;
use faultless_vm::{
    AreaFlags, Backing, FetchError, MapRequest, ObjectHandle, ObjectSpec, PAGE, PageSource, Placement, Populate,
    VirtAddr, WriteNotice,
};

const BASE: u64 = 0x1000_0000;

fn with_world<D: Tested>(test: impl FnOnce(&World<D>)) {
    World::<D>::run(2, 64 << 20, |world| {
        test(world);
        world.check("invariants");
    });
}

/// Gives each byte the page's number plus the identity.
struct Numbered;

impl PageSource for Numbered {
    fn fetch(&self, identity: u64, page_index: u64, page: &mut [u8; 4096]) -> Result<(), FetchError> {
        if page_index == 9 {
            return Err(FetchError::Failed);
        }
        page.fill((identity + page_index) as u8);
        Ok(())
    }
}

fn file(write_notice: WriteNotice) -> ObjectSpec {
    ObjectSpec { identity: 3, size_bytes: 10 * PAGE - 5, source: &Numbered, write_notice }
}

fn mapping<'a>(object: &'a ObjectHandle<'a, Native>, at: u64, offset: u64, flags: AreaFlags) -> MapRequest<'a, Native> {
    let backing = Backing::Object(object, offset * PAGE);
    let (placement, len_bytes) = (Placement::Fixed(VirtAddr::new(at)), 4 * PAGE);
    MapRequest {
        placement,
        len_bytes,
        protection: flags.protection(),
        options: flags.options(),
        backing,
        populate: Populate::OnFault,
    }
}
