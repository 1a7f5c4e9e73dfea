//! Memory objects that are cut, and punched, beside whoever fetches, forks or goes.

use super::*;

for_each_design!(a_page_that_is_fetched_beside_a_truncation_comes_back_as_zeros, D, {
    in_every_order::<D>(
        Sharers::Nobody,
        |stage, cpu| match cpu {
            0 => drop(stage.look(0, 1)),
            1 => stage.truncate(PAGE),
            _ => {
                stage.truncate(PAGE - 8);
                stage.truncate(2 * PAGE);
            }
        },
        |stage| {
            let seen = stage.look(0, 1);
            let is_right = match stage.object.size_bytes() {
                PAGE => seen == Err(AccessError::NoPage { address: VirtAddr::new(OBJECT + PAGE) }),
                _ => seen == Ok(0),
            };
            if is_right { Ok(()) } else { Err(format!("what was cut off is {seen:x?}")) }
        },
    );
});

for_each_design!(a_page_that_is_fetched_beside_a_truncation_is_not_kept_for_an_extension, D, {
    in_every_order::<D>(
        Sharers::Nobody,
        |stage, cpu| match cpu {
            0 => stage.truncate(PAGE),
            1 => drop(stage.look(1, 1)),
            _ => {}
        },
        |stage| {
            stage.truncate(2 * PAGE);
            let seen = stage.look(0, 1);
            if seen == Ok(0) { Ok(()) } else { Err(format!("what was cut off is {seen:x?}")) }
        },
    );
});

for_each_design!(the_end_of_a_page_is_zeroed_while_others_take_the_page_away, D, {
    in_every_order::<D>(
        Sharers::ShortObject,
        |stage, cpu| match cpu {
            // As long as it is: what a program stored behind the end goes.
            0 => stage.truncate(SHORT),
            1 => stage.space.vm().punch(&stage.object, 0..PAGE).expect("a whole page"),
            _ => stage.truncate(0),
        },
        |stage| {
            stage.truncate(PAGE);
            let last = stage.guests[0].load(VirtAddr::new(OBJECT + SHORT)).map(|(word, _)| word);
            if last == Ok(0) { Ok(()) } else { Err(format!("what was cut off is {last:x?}")) }
        },
    );
});

for_each_design!(a_child_is_whole_when_others_find_it_and_has_nothing_that_was_cut_off, D, {
    in_every_order::<D>(
        Sharers::Nobody,
        |stage, cpu| match cpu {
            0 => {
                let child = stage.space.fork().expect("room");
                *stage.second.lock().expect("one thread") = Some(child);
            }
            1 => stage.visit(),
            _ => {
                stage.truncate(0);
                stage.visit();
            }
        },
        |_| Ok(()),
    );
});

for_each_design!(a_space_that_ends_is_whole_for_whoever_visits_it, D, {
    in_every_order::<D>(
        Sharers::Neighbour,
        |stage, cpu| match cpu {
            0 => drop(stage.second.lock().expect("one thread").take()),
            1 => stage.visit(),
            _ => {
                stage.truncate(PAGE);
                stage.visit();
            }
        },
        |_| Ok(()),
    );
});
