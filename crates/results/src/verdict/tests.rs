use super::*;
use crate::{MachineInfo, Mode};

fn set(arms: &[(&str, &[f64])]) -> ResultSet {
    let mut set = ResultSet::new("bench", 1, MachineInfo::default());
    set.results = arms.iter().map(|(design, samples)| arm(design, samples)).collect();
    set
}

fn arm(design: &str, samples: &[f64]) -> Measured {
    Measured {
        workload: "malloc1".into(),
        mode: Mode::Threads,
        design: design.into(),
        semaphore: None,
        cpus: 2,
        workers: None,
        metric: "ops_per_s".into(),
        unit: "ops/s".into(),
        samples: samples.to_vec(),
        counters: Default::default(),
        more: Default::default(),
    }
}

fn said(set: &ResultSet) -> String {
    upper(&rankings(set)[0].sentence())
}

const SLOW: [f64; 6] = [10.0, 11.0, 10.5, 10.2, 10.8, 10.1];
const FAST: [f64; 6] = [20.0, 21.0, 20.5, 20.2, 20.8, 20.1];

#[test]
fn a_lead_that_is_sure_is_named_with_its_interval() {
    let said = said(&set(&[("mmap-sem", &SLOW), ("faultless", &FAST)]));
    assert!(said.starts_with("faultless wins malloc1 on 2 CPUs: 1.9"), "{said}");
    assert!(said.contains(" times as fast as mmap-sem (95 % interval 1.") && said.contains("6 runs each"), "{said}");
}

#[test]
fn what_the_runs_do_not_tell_is_not_claimed() {
    let near: Vec<f64> = SLOW.iter().rev().copied().collect();
    let level = said(&set(&[("a", &SLOW), ("b", &near)]));
    assert!(level.starts_with("No winner in malloc1 on 2 CPUs: the runs do not tell the 2 designs apart"), "{level}");
    assert!(level.contains("1.000 times as fast") && level.contains("95 % interval"), "{level}");
    let shared = said(&set(&[("a", &SLOW), ("b", &near), ("c", &[1.0; 6])]));
    assert!(
        shared.starts_with("a is ahead in malloc1 on 2 CPUs, but the runs do not tell it from b: a may be 0.9"),
        "{shared}"
    );
    let few = said(&set(&[("a", &SLOW[..1]), ("b", &FAST)]));
    assert!(few.contains("b is ahead; but 1 run each are too few"), "{few}");
}

/// Three designs of which the second had not converged.
fn moving() -> ResultSet {
    let mut set = set(&[("a", &SLOW), ("b", &FAST), ("c", &[20.3, 20.4, 20.6, 20.1, 20.9, 19.0])]);
    set.results[0].more.insert("converged".into(), serde_json::json!([true, false]));
    set
}

#[test]
fn of_rates_that_had_not_converged_the_verdict_says_whose_and_how_far_ahead_the_best_is_nonetheless() {
    let set = moving();
    let told = said(&set);
    assert!(told.starts_with("Undecided in malloc1 on 2 CPUs: b is ahead, 1.0"), "{told}");
    assert!(told.contains(" times as fast as c, the next (95 % interval 0.9"), "{told}");
    assert!(told.contains("; but the rates of a had not converged; its lead over c may be none"), "{told}");
    let ranking = &rankings(&set)[0];
    let moving = vec!["a".to_owned()];
    assert_eq!(ranking.doubts, [Doubt::NotConverged(moving), Doubt::Overlap(vec!["c".into()])]);
    let readings: Vec<String> = ranking.places.iter().map(|place| place.reading(ranking)).collect();
    assert_eq!(readings, ["ahead, undecided", "undecided: runs overlap", "undecided: not converged"]);
    let all = lines(&set).join("\n");
    assert!(all.contains("b is so many times as fast (95 % interval): 1.0") && all.contains("as a (1.8"), "{all}");
    assert!(all.contains(", not converged)"), "the mark stands beside the factor: {all}");
}

#[test]
fn a_lead_that_is_known_is_told_although_another_design_had_not_converged() {
    let mut set = set(&[("a", &SLOW), ("b", &FAST), ("c", &SLOW)]);
    set.results[0].more.insert("converged".into(), serde_json::json!([true, false]));
    let told = said(&set);
    assert!(told.starts_with("b is ahead of c for sure in malloc1 on 2 CPUs, 1.9"), "{told}");
    assert!(told.ends_with("; undecided against a, whose rates had not converged"), "{told}");
    assert_eq!(headline(&rankings(&set)), "b is ahead in malloc1 on 2 CPUs, undecided against a");
    set.results[1].more.insert("converged".into(), serde_json::json!([false]));
    assert!(!said(&set).contains("for sure"), "the best had not converged either");
}

#[test]
fn a_table_says_of_whom_the_best_is_ahead_and_who_is_in_doubt() {
    let mut set = set(&[("a", &SLOW), ("b", &FAST), ("c", &SLOW)]);
    set.results[0].more.insert("converged".into(), serde_json::json!([true, false]));
    let ranking = &rankings(&set)[0];
    assert_eq!(ranking.doubts_in_short(), "from c yes; undecided: a not converged");
    let standings: Vec<Standing> = ranking.places.iter().map(|place| place.standing).collect();
    assert_eq!(standings, [Standing::Best, Standing::Open, Standing::Slower], "c is slower whatever becomes of a");
    let moving = rankings(&moving()).remove(0);
    assert_eq!(moving.doubts_in_short(), "undecided: a not converged; not told from c");
}

#[test]
fn a_place_is_shared_by_designs_that_are_near_each_other_alone() {
    let around = |middle: f64| [0.999, 0.9995, 1.0, 1.0005, 1.001].map(|share| share * middle);
    let near = &rankings(&set(&[("a", &around(100.0)), ("b", &around(100.02)), ("c", &[1.0; 5])]))[0];
    assert!(near.sentence().starts_with("b and a share the first place in malloc1 on 2 CPUs: "), "{}", near.sentence());
    assert_eq!(
        (near.first(), headline(std::slice::from_ref(near))),
        ("b and a".into(), "b and a share the first place in malloc1 on 2 CPUs".into())
    );
    let wild = [1.0, 19.0, 20.9, 30.0, 9.0, 21.5];
    let far = &rankings(&set(&[("fast", &FAST), ("slow", &SLOW), ("wild", &wild)]))[0];
    assert!(!far.sentence().contains("share"), "{}", far.sentence());
    assert_eq!(far.first(), "undecided between fast and wild");
}

#[test]
fn runs_that_fall_into_two_groups_are_told_to_page_and_terminal() {
    let set = set(&[("a", &FAST), ("b", &[1.9, 2.0, 4.1, 1.95, 4.4])]);
    let told = rankings(&set)[0].scattered().expect("b is in two states");
    let groups = "under b (two groups, 3 from 1.90/s to 2.00/s and 2 from 4.10/s to 4.40/s)";
    assert!(told.ends_with(groups), "{told}");
    assert!(lines(&set).iter().any(|line| line.contains(groups)), "{:?}", lines(&set));
}

#[test]
fn every_reason_against_a_winner_is_named() {
    let mut set = set(&[("a", &[20.4, 20.2]), ("b", &[20.3, 21.0]), ("c", &[1.0, 1.1])]);
    set.results[2].more.insert("converged".into(), serde_json::json!([false]));
    let said = said(&set);
    let few = "2 runs each are too few to tell a winner (5 are the fewest)";
    assert!(said.contains(few), "{said}");
    assert!(said.contains("the rates of c had not converged"), "{said}");
    assert!(!said.contains("times as fast"), "of so few runs no difference is printed: {said}");
}

#[test]
fn why_is_told_where_nobody_can_tell_who_wins_too() {
    let mut set = moving();
    for (name, share) in [("a", 0.5), ("b", 0.01), ("c", 0.0)] {
        let waited = arm(name, &[share; 6]);
        set.results.push(Measured { metric: "lock_wait_share".into(), unit: "share".into(), ..waited });
    }
    let why = rankings(&set)[0].why().expect("a reason");
    assert!(why.contains("Under c, the next, it takes") && why.contains("Under a, the last, it takes"), "{why}");
}

#[test]
fn a_replay_s_verdict_says_whether_it_is_faithful_in_the_same_breath() {
    let mut set = set(&[("mmap-sem", &SLOW), ("faultless", &FAST)]);
    set.command = "replay".into();
    set.results.iter_mut().for_each(|result| (result.metric, result.unit) = ("elapsed_ns".into(), "ns".into()));
    set.checks.insert("faults_recorded".into(), 1.into());
    let told = lines(&set);
    assert!(
        told[1].starts_with("* mmap-sem wins malloc1 on 2 CPUs: 1.9"),
        "against the best, as on the page: {told:?}"
    );
    assert_eq!(told[2], "* the replay is faithful: 0 mismatches in 0 events.");
    set.results.truncate(1);
    let alone = lines(&set);
    let said = "Verdict: there is one design, so nothing to compare; the replay is faithful: 0 mismatches in 0 events.";
    assert_eq!(alone, [said]);
}

#[test]
fn from_thirty_runs_on_it_is_said_whether_two_designs_are_within_two_per_cent() {
    let around = |middle: f64| (0..30).map(|step| middle * (1.0 + f64::from(step) / 1e5)).collect::<Vec<f64>>();
    let lines = lines(&set(&[("a", &around(100.0)), ("b", &around(100.5))]));
    assert!(lines.iter().any(|line| line.contains("within 2 %: holds")), "{lines:?}");
}

#[test]
fn designs_that_are_as_near_as_a_few_per_cent_are_said_to_be() {
    let around = |middle: f64| [0.999, 0.9995, 1.0, 1.0005, 1.001].map(|share| share * middle);
    let said = said(&set(&[("a", &around(100.0)), ("b", &around(100.02))]));
    assert!(
        said.starts_with("No winner in malloc1 on 2 CPUs: all 2 designs are within 0.2 % of b (95 % interval"),
        "{said}"
    );
}

#[test]
fn a_winner_beats_each_of_the_others_not_only_the_next() {
    let wild = [1.0, 19.0, 20.9, 30.0, 9.0, 21.5];
    let set = set(&[("fast", &FAST), ("slow", &SLOW), ("wild", &wild)]);
    let ranking = &rankings(&set)[0];
    assert_eq!(ranking.finding, Finding::Level(2));
    assert_eq!(ranking.leaders(), ["fast", "wild"]);
    let standings: Vec<Standing> = ranking.places.iter().map(|place| place.standing).collect();
    assert_eq!(standings, [Standing::Best, Standing::Level, Standing::Slower]);
}

#[test]
fn less_time_wins() {
    let mut set = set(&[("slow", &FAST), ("quick", &SLOW)]);
    set.command = "replay".into();
    set.results.iter_mut().for_each(|result| (result.metric, result.unit) = ("elapsed_ns".into(), "ns".into()));
    assert!(said(&set).starts_with("quick wins malloc1 on 2 CPUs: 1.9"), "{}", said(&set));
}

#[test]
fn several_workloads_are_counted() {
    let mut two = set(&[("mmap-sem", &SLOW), ("faultless", &FAST)]);
    let other = two.results.clone().into_iter().map(|result| Measured { workload: "mmap1".into(), ..result });
    two.results.extend(other.collect::<Vec<_>>());
    let said = |set: &ResultSet| headline(&rankings(set));
    let said_of_two = said(&two);
    assert!(said_of_two.starts_with("On 2 CPUs faultless wins malloc1, 1.9"), "{said_of_two}");
    assert!(said_of_two.contains("; faultless wins mmap1, 1.9"), "{said_of_two}");
    let many = |place: usize| {
        two.results[..2].iter().map(move |one| Measured { workload: format!("w{place}"), ..one.clone() })
    };
    let four = ResultSet { results: (0..4).flat_map(many).collect(), ..set(&[]) };
    assert_eq!(said(&four), "On 2 CPUs faultless wins 4 of 4 workloads");
}

#[test]
fn machines_that_were_drawn_are_compared_draw_by_draw() {
    // Machines differ tenfold, the designs by a tenth on each.
    let slow: Vec<f64> = (1..=20).map(|draw| f64::from(draw) * 100.0).collect();
    let fast: Vec<f64> = slow.iter().map(|rate| rate * 1.1).collect();
    let mut drawn = set(&[("a", &slow), ("b", &fast)]);
    assert!(said(&drawn).starts_with("No winner"), "as runs they would not be told apart");
    drawn.machine.simulated = true;
    drawn.results[0].more.insert("sensitivity".into(), serde_json::json!([]));
    let said = said(&drawn);
    assert!(said.starts_with("b wins malloc1 on 2 CPUs: 1.10 times as fast as a"), "{said}");
    assert!(said.contains("of 90 % of the machines 1.10 to 1.10, 20 drawn machines each"), "{said}");
}

/// Two designs whose operations take a worker 500 and 1000 ns, with waiting and counters.
fn explained(waits: [f64; 2], lockless: [u64; 2]) -> Ranking {
    let rates = [4e6, 2e6].map(|rate| [0.99, 0.995, 1.0, 1.005, 1.01].map(|share| share * rate));
    let mut set = set(&[("quick", &rates[0]), ("slow", &rates[1])]);
    for (place, name) in ["quick", "slow"].into_iter().enumerate() {
        set.results[place].counters = [("faults".to_owned(), 1000), ("spf".to_owned(), lockless[place])].into();
        let waited = arm(name, &[waits[place]; 5]);
        set.results.push(Measured { metric: "lock_wait_share".into(), unit: "share".into(), ..waited });
    }
    rankings(&set).remove(0)
}

#[test]
fn why_says_how_much_of_the_time_between_two_designs_is_waiting() {
    let all = explained([0.0, 0.49], [995, 0]).why().expect("a reason");
    assert!(
        all.starts_with("An operation takes a worker 500 ns on average under quick. Under slow it takes 1.00 us: "),
        "{all}"
    );
    assert!(all.contains("nearly all of the 500 ns between is waiting for the address-space lock (490 ns"), "{all}");
    assert!(all.contains("slow handles none of its faults without that lock, quick 99.5 %"), "{all}");
    let half = explained([0.1, 0.3], [0, 0]).why().expect("a reason");
    assert!(half.contains("of the 500 ns between 50.0 % is waiting") && !half.contains("handles"), "{half}");
    let none = explained([0.5, 0.25], [0, 0]).why().expect("a reason");
    assert!(
        none.contains(
            "which waiting for the address-space lock does not explain (250 ns under slow, 250 ns under quick)"
        ),
        "{none}"
    );
}

#[test]
fn a_reason_is_what_the_faster_design_pays_less_of() {
    let signed = explained([0.0, 0.49], [0, 995]).why().expect("a reason");
    assert!(!signed.contains("without that lock"), "the slower design does without it more often: {signed}");
    let rates = [4e6, 3.96e6].map(|rate| [0.99, 0.995, 1.0, 1.005, 1.01].map(|share| share * rate));
    let mut near = set(&[("quick", &rates[0]), ("next", &rates[1]), ("last", &[1e6; 5])]);
    for (name, share) in [("quick", 0.3), ("next", 0.0), ("last", 0.9)] {
        let waited = arm(name, &[share; 5]);
        near.results.push(Measured { metric: "lock_wait_share".into(), unit: "share".into(), ..waited });
    }
    let why = rankings(&near)[0].why().expect("a reason");
    assert!(why.contains("Under next, the next, it takes 505 ns, 5.05 ns longer: too little to ask why."), "{why}");
    assert!(why.contains("Under last, the last, it takes 2.00 us: nearly all"), "{why}");
}

#[test]
fn a_replay_s_rival_that_the_runs_do_not_tell_apart_has_no_reason_that_points_the_other_way() {
    let mut set =
        set(&[("a", &[10.0, 12.0, 30.0, 11.0, 12.0]), ("b", &[11.0, 13.0, 29.0, 12.0, 13.0]), ("c", &[90.0; 5])]);
    set.command = "replay".into();
    set.results.iter_mut().for_each(|result| (result.metric, result.unit) = ("elapsed_ns".into(), "ns".into()));
    for (name, share) in [("a", 0.4), ("b", 0.1), ("c", 0.9)] {
        let waited = arm(name, &[share; 5]);
        set.results.push(Measured { metric: "lock_wait_share".into(), unit: "share".into(), ..waited });
    }
    let why = rankings(&set)[0].why().expect("of the last there is a reason");
    assert!(why.starts_with("Under c, the last, threads wait for the address-space lock 90.0 %"), "{why}");
    assert!(!why.contains("Under b"), "{why}");
}

/// Gives a rate the books of a simulated machine: ns of 10,000 in waits, a line that two CPUs write, and the bus.
fn keep_books(rate: &mut Measured, (writers, readers, line, bus): (u64, u64, u64, u64)) {
    rate.more.insert("ops".into(), serde_json::json!([10]));
    let one = serde_json::json!({ "transfers": 15, "ns": line, "writers": 2 });
    let profile = serde_json::json!({
        "thread_ns": 10_000, "bus_ns": bus, "interrupted_ns": 0,
        "waits": [{ "for": "mmap_sem:write", "ns": writers }, { "for": "mmap_sem:read", "ns": readers }],
        "lines": [{ "name": "a counter", "transfers": 20, "ns": line, "hottest": one }],
    });
    rate.more.insert(crate::set::PROFILE.into(), profile);
}

#[test]
fn why_names_the_line_that_all_cpus_write_the_bus_and_who_waits_where_books_were_kept() {
    let mut set = set(&[("slow", &[1e6; 5]), ("quick", &[2e6, 2e6, 2e6, 2e6, 2.0001e6])]);
    keep_books(&mut set.results[0], (100, 0, 6000, 500));
    keep_books(&mut set.results[1], (1500, 500, 0, 7000));
    set.results[1].more.insert("linear".into(), serde_json::json!({ "set_by": "memory bus", "reached": 0.95 }));
    let ranking = rankings(&set).remove(0);
    let why = ranking.why().expect("a reason");
    let own = "An operation takes a worker 1.00 us on average under quick: 70.0 % waiting for the memory bus; 20.0 % \
               waiting for the address-space lock (75.0 % of that in calls that change the map, the rest in page faults); \
               10.0 % work. quick is at the memory bus: 95.0 % of what it lets through.";
    assert!(why.starts_with(own), "{why}");
    let other = "Under slow it takes 2.00 us, 1.00 us longer: 1.20 us more fetching one line that all 2 CPUs write: a \
                 counter, 2.00 transfers an operation; 580 ns more work; all else takes 780 ns less.";
    assert!(why.ends_with(other), "{why}");
    for place in &ranking.places {
        let sum: f64 = place.cost.parts.iter().map(|part| part.ns).sum();
        assert!((sum - place.cost.op_ns.expect("a rate")).abs() < 1e-6, "the parts add up: {:?}", place.cost);
    }
    set.results[0].more["profile"]["lines"][0]["hottest"]["ns"] = 600.into();
    let why = rankings(&set)[0].why().expect("a reason");
    assert!(why.contains("more fetching lines that other CPUs had: a counter"), "it is not one line: {why}");
    set.results[0].more.remove("profile");
    assert_eq!(rankings(&set)[0].why(), None, "nothing is said that was not measured");
}

#[test]
fn the_median_of_a_timed_step_is_that_of_all_runs_together() {
    let mut set = set(&[("a", &SLOW), ("b", &FAST)]);
    let steps = arm("a", &[100.0, 900.0, 900.0]);
    set.results.push(Measured { metric: "op_p50_ns".into(), unit: "ns".into(), ..steps });
    let median = |set: &ResultSet| rankings(set)[0].places[1].cost.step_ns;
    assert_eq!(median(&set), Some(900.0), "of the runs' medians, where there is nothing else");
    let all = serde_json::json!([[100, 90], [900, 20]]);
    set.results[2].more.insert(crate::set::DISTRIBUTION.into(), all);
    assert_eq!(median(&set), Some(101.0), "to a thirty-second");
}

#[test]
fn headlines_are_short_and_sentences_say_how_sure_that_is() {
    let one = set(&[("mmap-sem", &SLOW), ("faultless", &FAST)]);
    let said = headline(&rankings(&one));
    assert!(said.starts_with("faultless wins malloc1 on 2 CPUs, 1.9") && said.ends_with(" as mmap-sem"), "{said}");
    let few = headline(&rankings(&set(&[("a", &SLOW[..1]), ("b", &FAST)])));
    assert_eq!(few, "Undecided in malloc1 on 2 CPUs: b is ahead");
    let mut two = one.clone();
    let level =
        one.results.iter().map(|arm| Measured { workload: "mmap1".into(), samples: SLOW.into(), ..arm.clone() });
    two.results.extend(level);
    assert!(headline(&rankings(&two)).ends_with("; mmap1 has no winner"), "{}", headline(&rankings(&two)));
}

#[test]
fn where_nobody_wins_why_says_that_there_was_little_to_win_or_that_runs_vary() {
    let same = [0.99, 0.995, 1.0, 1.005, 1.01];
    let mut set = set(&[("a", &same), ("b", &same)]);
    for name in ["a", "b"] {
        let waited = arm(name, &[0.001; 5]);
        set.results.push(Measured { metric: "lock_wait_share".into(), unit: "share".into(), ..waited });
    }
    let why = rankings(&set)[0].why().expect("a reason");
    assert!(why.contains("at most 0.100 % of the time under any design"), "{why}");
    assert!(why.starts_with("Runs of one design vary more than the designs do: those of "), "{why}");
}

#[test]
fn a_terminal_is_told_who_wins_on_the_most_cpus_and_who_is_first_on_fewer() {
    let mut curve = set(&[("mmap-sem", &SLOW), ("faultless", &FAST)]);
    let mut more = set(&[("mmap-sem", &FAST), ("faultless", &SLOW)]).results;
    more.iter_mut().for_each(|result| result.cpus = 1);
    curve.results.extend(more);
    let lines = lines(&curve);
    assert_eq!(lines[0], "Verdict:");
    assert!(lines[1].starts_with("* faultless wins malloc1 on 2 CPUs: "), "{lines:?}");
    assert_eq!(lines[2], "  First on fewer CPUs: mmap-sem on 1.");
    let alone = super::lines(&set(&[("a", &SLOW)]));
    assert_eq!(alone, ["Verdict: there is one design, so nothing to compare."]);
    let few = super::lines(&set(&[("a", &[1.0]), ("b", &[2.0])]));
    let told = "* undecided in malloc1 on 2 CPUs: b is ahead.";
    assert_eq!(few, ["Verdict: undecided: it takes 5 runs to tell a winner (-r 5).", told]);
}
