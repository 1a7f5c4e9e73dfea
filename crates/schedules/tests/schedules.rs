//! Exploring schedules, through the crate's face.

use faultless_machine::designs::{DESIGNS, SEMAPHORES};
use faultless_schedules::explore::{self, CellOutcome, ExploreError, ExploreSetup};
use faultless_schedules::line;
use faultless_schedules::worlds::WORLDS;

fn names(all: &[&str]) -> Vec<String> {
    all.iter().map(|name| (*name).to_owned()).collect()
}

fn setup(runs: u64) -> ExploreSetup {
    ExploreSetup {
        designs: names(DESIGNS),
        semaphores: names(SEMAPHORES),
        worlds: WORLDS.iter().collect(),
        seed: 1,
        runs,
        mutant: None,
        jobs: 2,
    }
}

fn explored(setup: &ExploreSetup) -> Vec<CellOutcome> {
    explore::explore(setup, &|_| ()).expect("room, and names that are known")
}

/// `FAULTLESS_SCHEDULES` sets how many schedules of each design run; 1,000 unless said.
#[test]
fn no_schedule_of_any_design_fails() {
    let runs = std::env::var("FAULTLESS_SCHEDULES").ok().and_then(|runs| runs.parse().ok()).unwrap_or(1000);
    let cells = explored(&setup(runs));
    assert_eq!(cells.len(), DESIGNS.len() * WORLDS.len());
    assert_eq!(cells.iter().map(|cell| cell.runs).sum::<u64>(), runs * DESIGNS.len() as u64);
    for cell in cells {
        if let Some((number, failed)) = cell.failed {
            panic!("schedule {number}: {}\n--replay {}", failed.failure, failed.line);
        }
    }
}

#[test]
fn a_mutant_needs_a_program_that_has_it() {
    let line = line::parse("schedule-1:spf-v11:rwsem-v8:zap:gathers-ignored:W+s0_d0-1:0:").expect("a line");
    let error = explore::replay_line(&line);
    match cfg!(feature = "mutants") {
        true => assert!(error.is_ok(), "{error:?}"),
        false => assert!(matches!(error, Err(ExploreError::NoMutants)), "{error:?}"),
    }
    let line = line::parse("schedule-1:spf-v11:rwsem-v8:zap:no-such:W+s0_d0-1:0:").expect("a line");
    assert!(matches!(explore::replay_line(&line), Err(ExploreError::UnknownMutant(_))));
}

#[test]
fn a_program_that_makes_no_sense_is_run_all_the_same() {
    for line in
        ["schedule-1:vma-lock:rwsem-2012:zap:-:_:7:9@9-9", "schedule-1:mmap-sem:rwsem-v8:fork:-:x+c0_f+x+x+c0:0:"]
    {
        let line = line::parse(line).expect("a line");
        assert!(explore::replay_line(&line).expect("room").is_none());
    }
}

/// A thread reads a file's page that another one is dropping, while a third has stored to its own copy already.
#[test]
fn what_advice_drops_may_be_a_file_s() {
    let line = "schedule-1:spf-srcu:rwsem-v8+bravo:object:-:d0+w0_W+s0+l1+s0_W+l0+l0:2:2@4-0,0@84-1";
    let line = line::parse(line).expect("a line");
    assert!(explore::replay_line(&line).expect("room").is_none());
}

/// A hole swallows one page after the other: one that the source refuses may be refused while others are zero.
#[test]
fn a_hole_takes_a_refused_page_away_when_it_ends() {
    for line in [
        "schedule-1:vma-lock:rwsem-v8-p9:fetch:-:p0-2_l1+s2_R1:0:0@212-2,2@64-1",
        "schedule-1:faultless:rwsem-steal+p9:fetch:-:p0-2_l2_R0+R2:1:1@655-0,0@28-2",
    ] {
        let line = line::parse(line).expect("a line");
        assert!(explore::replay_line(&line).expect("room").is_none());
    }
}

#[cfg(feature = "mutants")]
mod with_mutants {
    use super::*;
    use faultless_platform::mutants::Mutant;
    use faultless_schedules::mutants::{self, Entry, Step};
    use faultless_schedules::worlds::World;
    use std::sync::atomic::{AtomicU64, Ordering};

    fn put_before_flush() -> ExploreSetup {
        ExploreSetup { mutant: Some(Mutant::PutBeforeFlush), ..setup(600) }
    }

    fn first_lines(setup: &ExploreSetup) -> Vec<String> {
        let cells = explored(setup);
        cells.iter().filter_map(|cell| cell.failed.as_ref()).map(|(_, failed)| failed.line.to_string()).collect()
    }

    #[test]
    fn semaphores_whose_owner_is_put_off_show_their_known_bugs() {
        let owner = World::named("owner").expect("a world");
        for mutant in [Mutant::OwnerStale, Mutant::OwnerTrusted, Mutant::StealForgetsLine] {
            let setup = ExploreSetup {
                designs: names(&["vma-lock"]),
                worlds: vec![owner],
                mutant: Some(mutant),
                ..setup(2000)
            };
            let survived = explored(&setup)[0].failed.as_ref().map(|(number, _)| *number);
            println!("{mutant:?} survives {survived:?} schedules");
            assert!(survived.is_some(), "{mutant:?} is not found");
        }
    }

    #[test]
    fn the_same_seed_fails_in_the_same_way_with_any_number_of_jobs() {
        let lines = first_lines(&put_before_flush());
        assert!(!lines.is_empty());
        assert_eq!(lines, first_lines(&ExploreSetup { jobs: 1, ..put_before_flush() }));
        assert_ne!(lines, first_lines(&ExploreSetup { seed: 2, ..put_before_flush() }));
    }

    #[test]
    fn a_failure_is_shortened_and_both_lines_replay_it() {
        let setup = put_before_flush();
        let cells = explored(&setup);
        let (_, failed) = cells.iter().find_map(|cell| cell.failed.clone()).expect("a bug that is found");
        let both = explore::shortened(&setup, &failed).expect("room");
        // Fewer operations may need more switches.
        let size = |line: &line::Line| {
            (line.program.parts.iter().map(|part| part.ops.len()).sum::<usize>(), line.switches.len())
        };
        assert!(size(&both.shortest.line) <= size(&both.failed.line));
        for failed in [&both.failed, &both.shortest] {
            let line = line::parse(&failed.line.to_string()).expect("what was printed");
            let again = explore::replay_line(&line).expect("room").expect("it fails again");
            assert_eq!((&again.failure, again.nr_steps), (&failed.failure, failed.nr_steps));
            // Without the mutant the same schedule passes.
            let sound = line::parse(&line.to_string().replace(":put-before-flush:", ":-:")).expect("a line");
            assert!(explore::replay_line(&sound).expect("room").is_none());
        }
    }

    #[test]
    fn every_known_bug_has_a_row_and_every_mutant_stands_for_one() {
        let numbers: Vec<u32> = mutants::KNOWN_BUGS.iter().filter_map(|bug| bug.number).collect();
        assert_eq!(numbers, (1..=22).collect::<Vec<_>>());
        for mutant in Mutant::ALL {
            let is_it = |entry: Entry| matches!(entry, Entry::PutBack(other, _) if other == mutant);
            assert_eq!(mutants::KNOWN_BUGS.iter().filter(|bug| is_it(bug.entry)).count(), 1, "{mutant:?}");
        }
    }

    #[test]
    fn rare_bugs_are_found_in_their_own_worlds() {
        let rare: Vec<_> = mutants::KNOWN_BUGS.iter().filter(|bug| !bug.worlds.is_empty()).collect();
        assert!(!rare.is_empty());
        for bug in rare {
            let Entry::PutBack(mutant, _) = bug.entry else { panic!("{} is excluded", bug.name) };
            let world = |name: &&str| World::named(name).unwrap_or_else(|| panic!("no world {name}"));
            let worlds: Vec<_> = bug.worlds.iter().map(world).collect();
            let of_design = |design| ExploreSetup {
                designs: vec![design],
                worlds: worlds.clone(),
                mutant: Some(mutant),
                jobs: 2,
                ..setup(5_000)
            };
            let is_found = |design| explored(&of_design(design)).iter().any(|cell| cell.failed.is_some());
            // Most are about what the last ones alone have.
            assert!(setup(0).designs.into_iter().rev().any(is_found), "{mutant:?} survives");
        }
    }

    #[test]
    fn the_table_tells_those_that_are_found_from_those_that_survive() {
        let setup = setup(20);
        let (seeds, rows) = (AtomicU64::new(0), AtomicU64::new(0));
        let told = |step: Step<'_>| match step {
            Step::Begun(_) => 0,
            Step::Seed => seeds.fetch_add(1, Ordering::Relaxed),
            Step::Ended(_) => rows.fetch_add(1, Ordering::Relaxed),
        };
        let table = mutants::table(&setup, 2, &|step| {
            told(step);
        })
        .expect("room");
        let unbroken = table.unbroken.as_ref().expect("nothing interrupted it");
        // Twenty among all worlds, and twenty among those of rare bugs.
        assert_eq!((unbroken.nr_killed, unbroken.worst()), (0, Some(40)));
        assert!(!table.is_clean(), "twenty schedules do not find them all");
        let (seeds, nr_rows) = (seeds.load(Ordering::Relaxed), rows.load(Ordering::Relaxed));
        assert_eq!((seeds, nr_rows), (mutants::nr_steps(2), mutants::KNOWN_BUGS.len() as u64 + 1));
        let counted = table.rows.iter().find(|row| row.bug.number == Some(16)).expect("listed");
        assert!(counted.is_settled() && counted.worst() < Some(20));
    }
}
