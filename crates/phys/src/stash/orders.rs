//! Every ordering of the stash and of the stack of chains, taken away: the model that `WEAK_ORDERS` names notices.

use super::model_tests as stash;
use crate::chain::model_tests as chain;
use faultless_platform::loom::judge::Judge;
use std::println;

macro_rules! models {
    ($($room:ident::$name:ident)+) => {
        &[$((concat!(stringify!($room), "::", stringify!($name)), $room::$name),)+]
    };
}

const JUDGE: Judge = Judge {
    package: "phys",
    models: models! {
        stash::the_last_thing_goes_to_one
        stash::two_things_go_to_one_each
        stash::what_is_pushed_is_seen_whole
        stash::an_entry_is_not_written_again_before_it_was_read
        stash::the_owner_sheds_while_others_steal
        stash::a_search_that_fails_saw_an_instant_without_anything
        stash::a_search_finds_what_is_put_behind_the_list
        stash::a_search_finds_what_comes_back_onto_the_list
        chain::a_chain_that_is_taken_is_seen_whole
        chain::chains_of_two_cpus_come_out_once
        chain::what_is_put_back_is_not_lost_beside_another_chain
    },
    single: "stash::orders::one_model_without_one_ordering",
};

#[test]
fn each_ordering_is_missed_by_the_model_that_its_row_names() {
    let verdicts = JUDGE.verdicts();
    assert!(verdicts.is_empty(), "\n{}", verdicts.join("\n"));
}

#[test]
#[ignore = "started by the test above, which says what to run"]
fn one_model_without_one_ordering() {
    JUDGE.run_one();
}

#[test]
#[ignore = "prints the rows that belong into WEAK_ORDERS, when the code has changed"]
fn rows() {
    println!("{}", JUDGE.search().join("\n"));
}
