//! Whether a replay is the recorded program, by what was checked.

use serde_json::Value;

use crate::ResultSet;

/// Says whether a replay is the recorded program, and all that speaks against it.
pub fn faith(set: &ResultSet) -> String {
    let count = |name: &str| set.checks.get(name).and_then(Value::as_u64).unwrap_or(0);
    let doubts = doubts(set);
    match () {
        () if !doubts.is_empty() => format!("the replay is not the recorded program: {}", doubts.join(", ")),
        () if count("faults_recorded") > 0 && set.checks.get("strict").and_then(Value::as_u64) == Some(0) => format!(
            "nothing was checked: none of the {} faults is certain enough to be compared",
            crate::grouped(count("faults_recorded"))
        ),
        () if set.is_interrupted() => "the replay is faithful as far as it went: 0 mismatches".into(),
        () => format!("the replay is faithful: 0 mismatches in {} events", crate::grouped(count("events"))),
    }
}

/// Returns whether nothing speaks against a replay's being the recorded program.
pub fn is_faithful(set: &ResultSet) -> bool {
    doubts(set).is_empty()
}

fn doubts(set: &ResultSet) -> Vec<String> {
    let count = |name: &str| set.checks.get(name).and_then(Value::as_u64).unwrap_or(0);
    let shown = |name: &str| crate::grouped(count(name));
    let skipped = set.checks.get("skipped").and_then(Value::as_object);
    let skipped: Vec<&str> = skipped.into_iter().flatten().map(|(kind, _)| kind.as_str()).collect();
    let said = [
        (count("mismatches") > 0).then(|| format!("{} mismatches", shown("mismatches"))),
        (!skipped.is_empty()).then(|| format!("not replayed: {}", skipped.join(", "))),
        (count("faults_recorded") == 0).then(|| "the trace holds no fault, so nothing was checked".to_owned()),
        (count("lost") > 0).then(|| format!("{} records are missing from the recording", shown("lost"))),
    ];
    said.into_iter().flatten().collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::MachineInfo;
    use serde_json::json;

    #[test]
    fn every_doubt_is_named() {
        let mut set = ResultSet::new("replay", 1, MachineInfo::default());
        let mut say = |checks: Value| {
            set.checks = checks.as_object().cloned().unwrap_or_default();
            faith(&set)
        };
        let good = json!({ "events": 52589, "faults_recorded": 3, "mismatches": 0, "skipped": {}, "lost": 0 });
        assert_eq!(say(good), "the replay is faithful: 0 mismatches in 52,589 events");
        let unchecked = json!({ "events": 9, "faults_recorded": 1234, "strict": 0, "mismatches": 0, "skipped": {} });
        assert_eq!(say(unchecked), "nothing was checked: none of the 1,234 faults is certain enough to be compared");
        let bad = json!({ "events": 9, "faults_recorded": 0, "mismatches": 2, "skipped": { "mseal": 1 }, "lost": 4 });
        let said = "the replay is not the recorded program: 2 mismatches, not replayed: mseal, the trace holds no fault, \
                    so nothing was checked, 4 records are missing from the recording";
        assert_eq!(say(bad), said);
    }
}
