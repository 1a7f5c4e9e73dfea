//! The library's own tests of mmap, munmap, mprotect, faults and the list, under the design.
//!
//! The files are those of `faultless-vm`. Of their tests those run that the list below names: the others are about
//! memory or calls that the design refuses. Rows of drawings that show such memory are left out by `World::draws`.
#![allow(
    dead_code,
    unused_imports,
    unused_macros,
    reason = "tests that do not apply are left out, and what they use is not"
)]

use faultless_embed_design::ByEntry;

/// Makes a macro as the library's tests have one, for the tests that are named.
macro_rules! tests_that_apply {
    (($dollar:tt) $($name:ident)*) => {
        macro_rules! for_each_design {
            $(($name, $dollar design:ident, $dollar body:block) => {
                mod $name {
                    use super::*;

                    fn run<$dollar design: Tested>() $dollar body

                    #[test]
                    fn by_entry() {
                        run::<faultless_embed_design::ByEntry<faultless_sync::Rwsem<Native>>>();
                    }
                }
            };)*
            ($dollar other:ident, $dollar design:ident, $dollar body:block) => {};
        }
    };
}

tests_that_apply! { ($)
    // calls
    a_page_faults_once_and_keeps_its_value
    a_load_then_a_store_of_fresh_memory_are_two_faults
    unmapping_the_middle_splits_and_loses_the_pages
    ranges_over_many_tables_are_unmapped_whole
    a_shortage_is_an_error_and_what_waits_for_readers_comes_back
    bytes_are_read_and_written_across_pages_and_an_error_says_how_many_were
    protection_is_enforced_and_an_upgrade_needs_no_fault
    limits_are_errors_with_their_value
    // semantics::answers
    more_rights_take_no_translation_away
    // semantics::drawings
    unmapping
    mapping_over_and_beside_others
    changing_rights_cuts_and_joins
    no_translation_outlives_the_right_to_it
    // semantics::edges
    words_that_leave_a_page_go_on_in_the_next_one
    guests_and_references_may_be_forgotten
    calls_take_any_addresses_and_lengths
    // semantics::gaps
    the_highest_gap_that_is_long_enough_is_taken
    many_areas_leave_their_gaps_to_who_fits
    a_place_to_keep_free_is_refused_if_a_page_of_it_is_taken
    // semantics::limits
    mmap_exceeds_the_limit_of_areas_by_one_and_no_more
    unmapping_the_middle_needs_room_for_an_area
    // shootdown
    no_store_succeeds_after_mprotect_returns
    no_load_succeeds_after_munmap_returns
    a_cpu_whose_program_sleeps_is_asked_once
    a_cpu_whose_program_has_left_the_space_is_not_asked
    a_cpu_that_is_given_up_and_taken_again_has_no_old_translation
    // users
    a_second_user_waits_for_the_writer_at_work
    what_another_cpu_looks_at_waits_for_a_grace_period
}

#[path = "../../../crates/vm/tests/native/calls/mod.rs"]
mod calls;
#[path = "../../../crates/vm/tests/native/drawing.rs"]
mod drawing;
#[path = "../../../crates/vm/tests/native/semantics/mod.rs"]
mod semantics;
#[path = "../../../crates/vm/tests/native/shootdown.rs"]
mod shootdown;
#[path = "../../../crates/vm/tests/native/users.rs"]
mod users;
#[path = "../../../crates/vm/tests/native/world.rs"]
mod world;

/// A decision that panics: what was changed before is counted.
#[test]
fn a_cursor_whose_caller_panics_counts_what_it_has_changed() {
    use faultless_phys::{Memory, Options};
    use faultless_platform::native::{HostRegion, Machine, Native};
    use faultless_vm::design::{EntryChange, Promises};
    use faultless_vm::{
        Backing, Guest, Limits, MapOptions, MapRequest, PAGE, PageRange, Placement, Populate, Protection, VirtAddr, Vm,
        check,
    };
    use std::panic::{AssertUnwindSafe, catch_unwind};

    const START: VirtAddr = VirtAddr::new(0x1000_0000);
    let rights = Protection::READ | Protection::WRITE;
    let region = HostRegion::reserve(8 << 20).expect("the host has room");
    Machine::new(1).attach(|| {
        // SAFETY: the region is zeroed, ours alone, and outlives the instance.
        let memory = unsafe { Memory::new(region.base(), region.len_bytes(), 1, Options::default()) };
        let memory = memory.expect("large enough");
        let vm = Vm::<Native, ByEntry<faultless_sync::Rwsem<Native>>>::new(memory).expect("room");
        let space = vm.create_space(Limits::default()).expect("room");
        let request = MapRequest {
            placement: Placement::Fixed(START),
            len_bytes: 4 * PAGE,
            protection: rights,
            options: MapOptions::empty(),
            backing: Backing::Anonymous,
            populate: Populate::OnFault,
        };
        space.mmap(&request).expect("room");
        let guest = Guest::new(&space);
        guest.store(START, 1).expect("mapped");
        let view = Promises::of(&space);
        let range = PageRange::new(START, 4 * PAGE).expect("in user memory");
        let panicked = catch_unwind(AssertUnwindSafe(|| {
            view.cursor(range).change(|page, _| match page {
                START => EntryChange::Unmap,
                _ => panic!("as wanted"),
            });
        }));
        assert!(panicked.is_err() && guest.load(START).is_err());
        view.cursor(range)
            .change(|page, _| if page == START { EntryChange::Promise(rights) } else { EntryChange::Keep });
        assert_eq!((guest.load(START).expect("promised again").0, space.resident_pages()), (0, 0));
        // SAFETY: no other thread runs.
        unsafe { check::invariants(&vm) }.unwrap_or_else(|broken| panic!("{broken}"));
    });
}
