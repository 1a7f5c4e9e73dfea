//! Known bugs of this crate, put back: the models notice. Also what the feature `mutants` is worth: with it a mutant
//! can be on.

use crate::{lookers, mcs, range_lock, rwsem, seqcount};
use faultless_platform::mutants::{Mutant, choose};
use std::thread;

/// Says whether a model fails on an OS thread that has chosen a mutant.
fn is_noticed(mutant: Option<Mutant>, model: fn()) -> bool {
    let run = move || {
        choose(mutant);
        model();
    };
    thread::spawn(run).join().is_err()
}

#[test]
fn a_sequence_of_two_bits_accepts_a_torn_pair() {
    let model = seqcount::four_changes_do_not_look_like_none;
    assert!(is_noticed(Some(Mutant::SequenceWraps), model) && !is_noticed(None, model));
}

#[test]
fn a_thief_that_forgets_the_line_leaves_a_sleeper() {
    let model = rwsem::thieves_without_spinning;
    assert!(is_noticed(Some(Mutant::StealForgetsLine), model) && !is_noticed(None, model));
}

#[test]
fn a_queue_that_hands_its_head_on_without_barriers_shows_old_data() {
    let model = mcs::one_head_at_a_time;
    assert!(is_noticed(Some(Mutant::McsUnordered), model) && !is_noticed(None, model));
}

#[test]
fn a_looker_that_is_forgotten_and_not_waited_for_is_freed_under() {
    let model = lookers::who_is_forgotten_while_it_looks_is_waited_for;
    assert!(is_noticed(Some(Mutant::ForgottenLookersUnawaited), model) && !is_noticed(None, model));
}

#[test]
fn who_wants_everything_and_waits_for_no_part_is_beside_one() {
    let model = range_lock::everything_excludes_parts;
    assert!(is_noticed(Some(Mutant::PartsUnawaited), model) && !is_noticed(None, model));
}

#[test]
fn who_does_not_ask_again_whose_table_a_place_is_in_is_beside_another() {
    let model = range_lock::a_place_that_goes_to_another_table_excludes_those_who_waited_for_the_first;
    assert!(is_noticed(Some(Mutant::TableOfBefore), model) && !is_noticed(None, model));
}

#[test]
fn an_owner_that_has_gone_is_still_named() {
    let model = rwsem::a_spinner_that_waits_for_readers_is_not_forgotten;
    assert!(is_noticed(Some(Mutant::OwnerStale), model) && !is_noticed(None, model));
}

/// Each mutant that no schedule finds has a test here, and a name that the series' table may give.
#[test]
fn modelled_mutants_are_not_among_those_of_schedules() {
    assert!(Mutant::MODELLED.iter().all(|mutant| !Mutant::ALL.contains(mutant)));
    let mends = faultless_sync::SERIES.iter().filter_map(|patch| match patch.effect {
        faultless_sync::Effect::Mutant(name) => Some(name),
        _ => None,
    });
    assert!(mends.eq(["mcs-unordered"]) && Mutant::MODELLED[0].name() == "mcs-unordered");
}
