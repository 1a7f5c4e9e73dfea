//! Reverse-map roots that first stores give beside calls that join areas by them (I4 of `vm::area`).

use super::*;

/// Three pages, each with rights of its own, that mprotect makes one area: the last has a root already.
const PARTS: [Protection; 3] = [Protection::READ, Protection::empty(), Protection::EXEC];

fn page(number: u64) -> AddressRange {
    AddressRange::new(VirtAddr::new(ELSEWHERE + number * PAGE), PAGE)
}

fn map_parts<D: Tested>(stage: &Stage<'_, D>) {
    for (number, rights) in (0..).zip(PARTS) {
        let is_last = number + 1 == PARTS.len() as u64;
        let protection = if is_last { Protection::READ | Protection::WRITE } else { rights };
        let request = MapRequest {
            placement: Placement::Fixed(page(number).start),
            len_bytes: PAGE,
            protection,
            options: MapOptions::empty(),
            backing: Backing::Anonymous,
            populate: Populate::OnFault,
        };
        stage.space.mmap(&request).expect("room");
        if is_last {
            stage.guests[0].store(page(number).start, 1).expect("mapped");
            stage.space.mprotect(page(number), rights).expect("mapped");
        }
    }
}

// Nobody may store to the first page before the call, nor has a root to give to it: so whoever stores to it comes
// behind the call, which finds one root in all three areas.
for_each_design!(a_first_store_beside_mprotect_keeps_no_areas_apart, D, {
    let nr_stored = AtomicU64::new(0);
    let nr_runs = in_every_order::<D>(
        Sharers::Nobody,
        |stage, cpu| match cpu {
            0 => {
                map_parts(stage);
                let all = AddressRange::new(page(0).start, PARTS.len() as u64 * PAGE);
                stage.space.mprotect(all, Protection::READ | Protection::WRITE).expect("mapped");
            }
            1 => {
                let is_stored = stage.guests[1].store(page(0).start, 1).is_ok();
                nr_stored.fetch_add(u64::from(is_stored), Ordering::Relaxed);
            }
            _ => {}
        },
        |stage| {
            let mut found = Vec::new();
            stage.space.for_each_area(|area| found.push(area.range.start().get()));
            if found == [BASE, ELSEWHERE, OBJECT] { Ok(()) } else { Err(format!("areas begin at {found:x?}")) }
        },
    );
    let nr_stored = nr_stored.into_inner() as usize;
    assert!((1..nr_runs).contains(&nr_stored), "the page was stored to in {nr_stored} of {nr_runs} orders");
});
