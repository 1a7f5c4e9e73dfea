//! The mutants that only a weaker memory order shows: one ordering of a protocol taken away.
//!
//! # Guarantee
//! Each row's model fails under the loom checker without that ordering, and passes with it: the tests `orders` of the
//! models of `sync` and of `phys` run them all, and fail if an ordering that those models meet has no row
//! here.
//!
//! Schedules can't find these: there every value is the one last written.

/// An ordering that can be taken away.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WeakOrder {
    /// Crate and file, function, access, and what is taken away.
    pub place: &'static str,
    /// Who notices.
    pub noticed: Noticed,
}

/// Who notices that an ordering is missing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Noticed {
    /// This model test.
    By(&'static str),
    /// No model can, for this reason.
    Beyond(&'static str),
}

/// What loom does not do: the stash's thief reads an entry and then claims it, and only a read that is done after the
/// claim meets the owner's next entry.
const READS_AHEAD: &str = "loom runs loads in their order: none is done after a later write";

/// A searcher tries the lists last, and the fence of `Stash::steal` orders what it read before; the thing of a model
/// stands in one place, so that no link is read through the span.
const FENCED_BY_STEAL: &str = "the fence of the steal that follows orders it too, and the model follows no link";

/// What a writer has seen of `nr_left` before it marks a place is older than the addition of the reader that meets the
/// mark.
const READ_BEFORE_MARK: &str = "loom runs loads in their order: none is done after a later exchange";

/// Whoever finds the node there goes on by an exchange that waits for a later Release of the same mover: this orders
/// what its owner wrote when it made the node, before anybody could name it.
const INITIALISED_BEFORE: &str = "loom does not watch how an atomic is made: what comes later is ordered by the link";

/// A stamp is noted behind an announcement, whose beginning ends with a fence that orders it, too.
const FENCED_BY_ANNOUNCEMENT: &str = "the models announce before: a fence stands there already";

const fn row(place: &'static str, model: &'static str) -> WeakOrder {
    WeakOrder { place, noticed: Noticed::By(model) }
}

const fn beyond(place: &'static str, why: &'static str) -> WeakOrder {
    WeakOrder { place, noticed: Noticed::Beyond(why) }
}

impl WeakOrder {
    /// Returns the model that notices.
    pub const fn model(&self) -> Option<&'static str> {
        match self.noticed {
            Noticed::By(model) => Some(model),
            Noticed::Beyond(_) => None,
        }
    }
}

/// Every such ordering of `sync` and `phys`, by place.
pub const WEAK_ORDERS: &[WeakOrder] = &[
    row(
        "sync/announcement.rs: Announcement::set_range: store without Release",
        "announcement::who_is_beside_another_change_has_seen_the_one_before",
    ),
    row(
        "sync/announcement.rs: Announcement::set_range: store 2 without Release",
        "announcement::who_is_beside_another_change_has_seen_the_one_before",
    ),
    row(
        "sync/announcement.rs: Announcement::concerns: load without Acquire",
        "announcement::who_is_beside_another_change_has_seen_the_one_before",
    ),
    row(
        "sync/announcement.rs: Announcement::concerns: load 2 without Acquire",
        "announcement::who_is_beside_another_change_has_seen_the_one_before",
    ),
    row(
        "sync/barrier.rs: Barrier::wait: fetch_add without Acquire",
        "parking::barrier_holds_all_back_and_has_one_leader_a_round",
    ),
    row(
        "sync/barrier.rs: Barrier::wait: fetch_add without Release",
        "parking::barrier_holds_all_back_and_has_one_leader_a_round",
    ),
    row(
        "sync/barrier.rs: Barrier::wait: load 2 without Acquire",
        "parking::barrier_holds_all_back_and_has_one_leader_a_round",
    ),
    row(
        "sync/barrier.rs: Barrier::open: store 2 without Release",
        "parking::barrier_holds_all_back_and_has_one_leader_a_round",
    ),
    row("sync/cna.rs: Aside::ends_at: compare_exchange without Acquire", "cna::neighbours_leave_while_they_are_moved"),
    row("sync/cna.rs: Aside::ends_at: compare_exchange without Release", "cna::whoever_leaves_loses_nobody"),
    row("sync/cna.rs: Aside::put: swap without Acquire", "cna::whoever_leaves_loses_nobody"),
    beyond("sync/cna.rs: Aside::put: store without Release", INITIALISED_BEFORE),
    row("sync/cna.rs: Aside::take_all: swap without Acquire", "cna::whoever_leaves_loses_nobody"),
    row(
        "sync/completion.rs: Completion::set: swap without Release",
        "parking::event_wakes_all_who_wait_and_shows_what_came_before",
    ),
    row(
        "sync/completion.rs: Completion::is_set: load without Acquire",
        "parking::event_wakes_all_who_wait_and_shows_what_came_before",
    ),
    row(
        "sync/lookers.rs: Lookers::let_many_in: fence without SeqCst",
        "lookers::many_that_were_let_in_need_no_more_than_a_section",
    ),
    row(
        "sync/lookers.rs: Lookers::may_be_elsewhere: fence without SeqCst",
        "lookers::nothing_is_freed_under_one_who_looks",
    ),
    row("sync/mcs.rs: Node::is_head: load without Acquire", "mcs::the_head_takes_over_from_one_who_leaves"),
    row("sync/mcs.rs: Turn::join: swap without Acquire", "mcs::neighbours_leave_at_the_same_time"),
    row("sync/mcs.rs: Turn::join: swap without Release", "mcs::neighbours_leave_at_the_same_time"),
    row("sync/mcs.rs: Turn::join: store 2 without Release", "mcs::neighbours_leave_at_the_same_time"),
    row("sync/mcs.rs: Turn::detach: load without Acquire", "mcs::neighbours_leave_at_the_same_time"),
    row("sync/mcs.rs: Turn::try_detach: compare_exchange without Acquire", "cna::whoever_leaves_loses_nobody"),
    row("sync/mcs.rs: Turn::try_detach: store without Release", "mcs::the_head_takes_over_from_one_who_leaves"),
    row("sync/mcs.rs: Turn::leave_from: store without Release", "mcs::the_head_takes_over_from_one_who_leaves"),
    row("sync/mcs.rs: Node::try_take_next: compare_exchange without Acquire", "mcs::neighbours_leave_at_the_same_time"),
    row("sync/mcs.rs: Turn::ends_at: compare_exchange without Acquire", "mcs::neighbours_leave_at_the_same_time"),
    row("sync/mcs.rs: Turn::ends_at: compare_exchange without Release", "mcs::neighbours_leave_at_the_same_time"),
    row("sync/mcs.rs: hand_over: compare_exchange without Acquire", "mcs::the_head_takes_over_from_one_who_leaves"),
    row("sync/mcs.rs: hand_over: compare_exchange without Release", "mcs::neighbours_leave_at_the_same_time"),
    row(
        "sync/per_vma_lock.rs: PerVmaLock::knock: fetch_add without Acquire",
        "per_vma_lock::no_reader_is_inside_beside_the_writer",
    ),
    row(
        "sync/per_vma_lock.rs: PerVmaLock::shut_out: fetch_or without Acquire",
        "per_vma_lock::a_writer_sees_what_readers_did_and_none_comes_after",
    ),
    row(
        "sync/per_vma_lock.rs: PerVmaLock::write_unlock: fetch_and without Release",
        "per_vma_lock::no_reader_is_inside_beside_the_writer",
    ),
    row(
        "sync/per_vma_lock.rs: PerVmaLock::read_unlock: fetch_sub without Release",
        "per_vma_lock::a_writer_sees_what_readers_did_and_none_comes_after",
    ),
    row(
        "sync/per_vma_lock.rs: PerVmaLock::has_no_reader: load without Acquire",
        "per_vma_lock::a_writer_sees_what_readers_did_and_none_comes_after",
    ),
    row(
        "sync/per_vma_lock.rs: PerVmaLock::wait_for_readers: fetch_or without Acquire",
        "per_vma_lock::a_writer_sees_what_readers_did_and_none_comes_after",
    ),
    row(
        "sync/range_lock/parts.rs: Slot::end: load without Acquire",
        "range_lock::parts_of_one_place_exclude_each_other",
    ),
    row(
        "sync/range_lock/parts.rs: Slot::empty: store without Release",
        "range_lock::parts_of_one_place_exclude_each_other",
    ),
    row(
        "sync/rcu/deferred.rs: Deferred::is_running: load without Acquire",
        "rcu::flush_waits_for_what_another_cpu_runs",
    ),
    row("sync/rcu/deferred.rs: Running::drop: fetch_sub without Release", "rcu::flush_waits_for_what_another_cpu_runs"),
    row(
        "sync/rcu/grace.rs: Grace::await_sections_of: fence without SeqCst",
        "rcu::sections_of_named_cpus_are_waited_for",
    ),
    row(
        "sync/rcu/grace.rs: Grace::count_down: fetch_sub without Acquire",
        "rcu::whoever_ends_a_grace_period_has_what_others_saw",
    ),
    row(
        "sync/rcu/grace.rs: Grace::count_down: fetch_sub without Release",
        "rcu::whoever_ends_a_grace_period_has_what_others_saw",
    ),
    row(
        "sync/rcu/numbers.rs: Numbers::ticket: fence without SeqCst",
        "rcu::polling_frees_after_a_grace_period_and_never_waits",
    ),
    row(
        "sync/rcu/numbers.rs: Numbers::look: load without Acquire",
        "rcu::a_grace_period_that_began_too_early_does_not_count",
    ),
    row(
        "sync/rcu/numbers.rs: Numbers::begin: fence without SeqCst",
        "rcu::polling_frees_after_a_grace_period_and_never_waits",
    ),
    row(
        "sync/rcu/numbers.rs: Numbers::end: store without Release",
        "rcu::a_grace_period_that_began_too_early_does_not_count",
    ),
    row("sync/rcu/reader.rs: Reader::enter: fence without SeqCst", "rcu::deferred_callbacks_run_after_a_grace_period"),
    row(
        "sync/rcu/reader.rs: Reader::enter_fenced: fence without SeqCst",
        "lookers::nothing_is_freed_under_one_who_looks",
    ),
    row("sync/rcu/reader.rs: Reader::note_inside: store without Release", "rcu::synchronize_waits_for_readers"),
    row("sync/rcu/reader.rs: Reader::leave: store without Release", "rcu::deferred_callbacks_run_after_a_grace_period"),
    row("sync/rcu/reader.rs: Reader::look: load without Acquire", "rcu::deferred_callbacks_run_after_a_grace_period"),
    row(
        "sync/rwsem/body.rs: Rwsem::try_take: compare_exchange without Acquire",
        "rwsem::spinners_that_hardly_overtake_four_threads",
    ),
    row(
        "sync/rwsem/body.rs: Rwsem::knock: fetch_add without Acquire",
        "rwsem::spinners_that_hardly_overtake_four_threads",
    ),
    row(
        "sync/rwsem/body.rs: Rwsem::release: fetch_sub without Release",
        "rwsem::spinners_that_hardly_overtake_four_threads",
    ),
    row(
        "sync/rwsem/bravo.rs: Rwsem::enter_place: fence without SeqCst",
        "rwsem::bravo_readers_in_the_table_keep_writers_out",
    ),
    row(
        "sync/rwsem/bravo.rs: Rwsem::enter_place: load without Acquire",
        "rwsem::bravo_the_bias_goes_and_comes_back_between_two_looks",
    ),
    row(
        "sync/rwsem/bravo.rs: Rwsem::leave_table: swap without Release",
        "rwsem::bravo_a_writer_that_sleeps_for_a_reader_is_woken",
    ),
    beyond("sync/rwsem/bravo.rs: Rwsem::leave_table: swap without Acquire", READ_BEFORE_MARK),
    row(
        "sync/rwsem/bravo.rs: Rwsem::turn_bias_on_if_due: store without Release",
        "rwsem::bravo_a_reader_that_never_touched_the_word_sees_the_last_writer",
    ),
    row(
        "sync/rwsem/bravo.rs: Rwsem::take_bias: fence without SeqCst",
        "rwsem::bravo_readers_in_the_table_keep_writers_out",
    ),
    row(
        "sync/rwsem/bravo.rs: Rwsem::is_in: load without Acquire",
        "rwsem::bravo_readers_in_the_table_keep_writers_out",
    ),
    beyond("sync/rwsem/bravo.rs: Rwsem::wait_for: compare_exchange without Release", READ_BEFORE_MARK),
    row("sync/rwsem/slow.rs: Rwsem::claim_for_reader: fetch_add without Acquire", "rwsem::rwsem_2012_two_threads"),
    row("sync/rwsem/slow.rs: Queued::as_reader: load without Acquire", "rwsem::rwsem_2012_two_threads"),
    row(
        "sync/rwsem/spin.rs: Rwsem::spin_for_write: fence without Release",
        "rwsem::a_spinner_that_gives_way_is_not_forgotten",
    ),
    row(
        "sync/rwsem/spin.rs: Rwsem::has_spinner: fence without Acquire",
        "rwsem::a_spinner_that_gives_way_is_not_forgotten",
    ),
    row("sync/rwsem/waiters.rs: Waiter::is_granted: load without Acquire", "rwsem::rwsem_2012_two_threads"),
    row("sync/rwsem/waiters.rs: Wake::run: swap without Release", "rwsem::rwsem_2012_two_threads"),
    row("sync/seqcount.rs: SeqCount::begin_write: fence without Release", "seqcount::reader_never_accepts_a_torn_pair"),
    row("sync/seqcount.rs: SeqCount::read: load without Acquire", "seqcount::reader_never_accepts_a_torn_pair"),
    row(
        "sync/seqcount.rs: SeqCount::is_unchanged: fence without Acquire",
        "seqcount::reader_never_accepts_a_torn_pair",
    ),
    row("sync/seqcount.rs: SeqCount::step: store without Release", "seqcount::reader_never_accepts_a_torn_pair"),
    row(
        "sync/spin/raw.rs: RawSpinLock::try_take: compare_exchange without Acquire",
        "spin::try_lock_excludes_and_may_fail",
    ),
    row("sync/spin/raw.rs: RawSpinLock::unlock: store without Release", "spin::try_lock_excludes_and_may_fail"),
    row(
        "sync/spin/rw.rs: RwSpinLock::try_enter_as_reader: fetch_add without Acquire",
        "spin::rw_lock_excludes_readers_and_writers",
    ),
    row(
        "sync/spin/rw.rs: RwSpinLock::try_enter_as_writer: compare_exchange without Acquire",
        "spin::rw_lock_excludes_readers_and_writers",
    ),
    row(
        "sync/spin/rw.rs: RwSpinReadGuard::drop: fetch_sub without Release",
        "spin::rw_lock_excludes_readers_and_writers",
    ),
    row(
        "sync/spin/rw.rs: RwSpinWriteGuard::drop: fetch_sub without Release",
        "spin::rw_lock_excludes_readers_and_writers",
    ),
    row("sync/spin/ticket.rs: TicketLock::try_lock: load without Acquire", "spin::tickets_are_served_one_at_a_time"),
    row("sync/spin/ticket.rs: TicketLock::is_serving: load without Acquire", "spin::tickets_are_served_one_at_a_time"),
    row("sync/spin/ticket.rs: TicketGuard::drop: store without Release", "spin::tickets_are_served_one_at_a_time"),
    row(
        "sync/stamp.rs: Stamp::read: load without Acquire",
        "stamp::what_is_recalled_beside_a_change_is_used_if_it_is_of_now",
    ),
    beyond("sync/stamp.rs: Stamp::note_change: fetch_add without Release", FENCED_BY_ANNOUNCEMENT),
    beyond("sync/stamp.rs: Stamp::note_change_alone: store without Release", FENCED_BY_ANNOUNCEMENT),
    row("sync/srcu.rs: Sides::enter: fence without SeqCst", "srcu::deferred_callbacks_run_after_a_grace_period"),
    row("sync/srcu.rs: Sides::is_empty: load without Acquire", "srcu::deferred_callbacks_run_after_a_grace_period"),
    row("sync/srcu.rs: bump: store without Release", "srcu::deferred_callbacks_run_after_a_grace_period"),
    row(
        "phys/chain.rs: ChainStack::push: compare_exchange_weak without Release",
        "chain::a_chain_that_is_taken_is_seen_whole",
    ),
    row("phys/chain.rs: ChainStack::pop: load without Acquire", "chain::a_chain_that_is_taken_is_seen_whole"),
    row(
        "phys/chain.rs: ChainStack::pop: compare_exchange_weak that fails without Acquire",
        "chain::what_is_put_back_is_not_lost_beside_another_chain",
    ),
    beyond("phys/reserve.rs: Reserve::take: load without Acquire", FENCED_BY_STEAL),
    beyond("phys/reserve.rs: Reserve::take: swap without Acquire", FENCED_BY_STEAL),
    row("phys/reserve.rs: Reserve::take: swap without Release", "stash::a_search_finds_what_comes_back_onto_the_list"),
    beyond("phys/reserve.rs: Reserve::put: store without Release", FENCED_BY_STEAL),
    row("phys/stash.rs: Stash::nr_gains: load without Acquire", "stash::a_search_finds_what_is_put_behind_the_list"),
    row("phys/stash.rs: Move::drop: store without Release", "stash::a_search_finds_what_comes_back_onto_the_list"),
    beyond("phys/stash.rs: Stash::push_all: load 2 without Acquire", READS_AHEAD),
    row(
        "phys/stash.rs: Stash::push_all: store 2 without Release",
        "stash::a_search_finds_what_comes_back_onto_the_list",
    ),
    row("phys/stash.rs: Stash::push: store 3 without Release", "stash::what_is_pushed_is_seen_whole"),
    row("phys/stash.rs: Stash::pop_if: store without Release", "stash::what_is_pushed_is_seen_whole"),
    row("phys/stash.rs: Stash::pop_if: fence without SeqCst", "stash::two_things_go_to_one_each"),
    row("phys/stash.rs: Stash::steal: fence without SeqCst", "stash::two_things_go_to_one_each"),
    row("phys/stash.rs: Stash::steal: load 2 without Acquire", "stash::what_is_pushed_is_seen_whole"),
    beyond("phys/stash.rs: Stash::push: load 2 without Acquire", READS_AHEAD),
    row(
        "phys/stash.rs: Stash::claim: compare_exchange without Release",
        "stash::a_search_finds_what_is_put_behind_the_list",
    ),
];
