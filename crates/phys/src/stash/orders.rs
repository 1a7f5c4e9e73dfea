//! Every ordering of the stash, taken away: the model that `WEAK_ORDERS` names notices.

use super::model_tests as models;
use faultless_platform::loom::judge::Judge;
use std::println;

macro_rules! models {
    ($($name:ident)+) => {
        &[$((concat!("stash::", stringify!($name)), models::$name),)+]
    };
}

const JUDGE: Judge = Judge {
    package: "phys",
    models: models! {
        the_last_thing_goes_to_one
        two_things_go_to_one_each
        what_is_pushed_is_seen_whole
        an_entry_is_not_written_again_before_it_was_read
        the_owner_sheds_while_others_steal
        a_search_that_fails_saw_an_instant_without_anything
        a_search_finds_what_is_put_behind_the_list
        a_search_finds_what_comes_back_onto_the_list
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
