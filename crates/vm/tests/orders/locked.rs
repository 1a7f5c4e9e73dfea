//! mlockall beside mmap: what is mapped when both are done is locked, whichever came first.

use super::*;
use faultless_vm::LockAll;

fn map_anywhere<D: Tested>(stage: &Stage<'_, D>) {
    let request = MapRequest {
        placement: Placement::Anywhere,
        len_bytes: PAGE,
        protection: Protection::READ | Protection::WRITE,
        options: MapOptions::empty(),
        backing: Backing::Anonymous,
        populate: Populate::OnFault,
    };
    stage.space.mmap(&request).expect("room");
}

// What is mapped before is current, and what is mapped behind it is future: a call that has read the one before
// mlockall, and puts its area in force behind it, is neither.
for_each_design!(everything_is_locked_by_mlockall_beside_mmap, D, {
    let nr_behind = AtomicU64::new(0);
    let nr_runs = in_every_order::<D>(
        Sharers::Spread,
        |stage, cpu| match cpu {
            // The second may become more of the first.
            0 => (0..2).for_each(|_| map_anywhere(stage)),
            1 => {
                stage.space.mlock_all(LockAll::CURRENT | LockAll::FUTURE).expect("below the limit");
                nr_behind.fetch_add(u64::from(stage.space.nr_areas() == 2), Ordering::Relaxed);
            }
            _ => {}
        },
        |stage| {
            let mut unlocked = Vec::new();
            stage.space.for_each_area(|area| {
                if !area.flags.contains(AreaFlags::LOCKED) {
                    unlocked.push(area.range);
                }
            });
            if unlocked.is_empty() { Ok(()) } else { Err(format!("{unlocked:x?} are not locked")) }
        },
    );
    let nr_behind = nr_behind.into_inner() as usize;
    assert!((1..nr_runs).contains(&nr_behind), "both mmaps came behind mlockall in {nr_behind} of {nr_runs} orders");
});
