//! Every ordering of the crate, taken away: the model that `WEAK_ORDERS` names notices.

use faultless_platform::loom::judge::Judge;

macro_rules! models {
    ($($file:ident: $($name:ident)+;)+) => {
        /// Every model of a protocol.
        const MODELS: &[(&str, fn())] = &[$($((concat!(stringify!($file), "::", stringify!($name)), crate::$file::$name),)+)+];
    };
}
models! {
    announcement: nobody_is_beside_a_change_of_its_place who_is_beside_another_change_has_seen_the_one_before a_reader_elsewhere_goes_on who_comes_beside_a_change_is_waited_for_or_sees_it;
    cna: one_head_at_a_time whoever_leaves_loses_nobody whoever_is_moved_may_leave neighbours_leave_while_they_are_moved;
    cpu_set: nobody_uses_an_entry_unseen a_cpu_that_was_let_go_comes_back_seen a_busy_cpu_leaves_between_its_sections;
    credit: what_both_draw_is_counted_once one_of_two_gets_the_last_room a_recall_takes_nothing_that_was_claimed what_goes_beside_a_recall_is_counted;
    lookers: nothing_is_freed_under_one_who_looks one_who_finds_another_has_a_fence_of_its_own many_that_were_let_in_need_no_more_than_a_section one_who_is_noted_in_a_section_is_seen who_is_forgotten_while_it_looks_is_waited_for;
    mcs: one_head_at_a_time whoever_leaves_loses_nobody the_head_takes_over_from_one_who_leaves neighbours_leave_at_the_same_time;
    parking: park_compares_and_sleeps_in_one_step event_wakes_all_who_wait_and_shows_what_came_before barrier_holds_all_back_and_has_one_leader_a_round;
    per_vma_lock: no_reader_is_inside_beside_the_writer a_writer_that_sleeps_is_woken a_writer_sees_what_readers_did_and_none_comes_after an_area_that_is_opened_before_it_is_published_is_open_and_whole;
    range_lock: parts_of_one_place_exclude_each_other parts_of_two_places_lose_nothing everything_excludes_parts everything_excludes_parts_of_all_tables who_looks_at_several_tables_excludes_parts_of_each who_looks_while_parts_begin_to_be_given_out_keeps_them_away;
    rcu: synchronize_waits_for_readers sections_of_named_cpus_are_waited_for a_grace_period_that_began_too_early_does_not_count deferred_callbacks_run_after_a_grace_period flush_waits_for_what_another_cpu_runs polling_frees_after_a_grace_period_and_never_waits flush_is_not_put_off_by_what_is_deferred_meanwhile groups_are_looked_at_by_whoever_comes_by whoever_ends_a_grace_period_has_what_others_saw polls_look_at_their_own_group;
    rwsem: rwsem_2012_two_threads rwsem_2012_three_threads rwsem_v8_two_threads rwsem_v8_three_threads a_spinner_that_waits_for_readers_is_not_forgotten handoff_two_threads a_door_that_is_shut_is_for_the_first_in_line readers_that_go_ahead_after_a_writer handoff_three_threads handoff_three_threads_interrupted_twice phase_fair_two_threads phase_fair_three_threads a_waiter_whose_time_is_over_leaves_the_line an_interrupted_waiter_leaves_the_line an_interrupt_is_not_lost bravo_a_reader_that_never_touched_the_word_sees_the_last_writer bravo_the_bias_goes_and_comes_back_between_two_looks bravo_readers_in_the_table_keep_writers_out bravo_a_writer_that_sleeps_for_a_reader_is_woken thieves_without_spinning a_spinner_that_gives_way_is_not_forgotten spinners_of_two_nodes_that_give_way_are_not_forgotten a_sleeper_is_overtaken_no_more_often_than_patience_allows a_downgrade_lets_in_the_readers_that_wait spinners_that_hardly_overtake_four_threads;
    seqcount: four_changes_do_not_look_like_none reader_never_accepts_a_torn_pair;
    spin: raw_lock_lets_one_in_at_a_time try_lock_excludes_and_may_fail mutex_hands_its_value_on rw_lock_excludes_readers_and_writers tickets_are_served_one_at_a_time;
    stamp: what_is_recalled_is_not_used_beside_a_change what_is_recalled_beside_a_change_is_used_if_it_is_of_now;
    srcu: synchronize_waits_for_readers a_reader_may_sleep a_grace_period_that_began_too_early_does_not_count deferred_callbacks_run_after_a_grace_period;
}

const JUDGE: Judge = Judge { package: "sync", models: MODELS, single: "orders::one_model_without_one_ordering" };

#[test]
#[ignore = "takes a minute or two: run by .ci/sanitize"]
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
