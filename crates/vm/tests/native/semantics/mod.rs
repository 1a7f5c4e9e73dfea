//! What the calls promise, without a Linux host to compare with: drawn as before, call, after, under every design.

mod answers;
mod drawings;
mod edges;
mod file_pages;
mod gaps;
mod limits;
mod pins;
mod readback;
mod references;
mod shortages;
mod tags;

use crate::world::{Tested, World};

/// Runs `test` in a world of two CPUs, and checks the invariants behind it.
fn with_world<D: Tested>(test: impl FnOnce(&World<D>)) {
    World::<D>::run(2, 64 << 20, |world| {
        test(world);
        world.check("at the end");
    });
}
