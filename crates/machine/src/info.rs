//! A machine as results name it: a simulated one with every parameter, and where it comes from.

use std::io::{self, Write};

use serde_json::{Map, Value, json};

use crate::simulated::{MachineChoice, Spec};
use faultless_results::MachineInfo;

/// What stands behind a number that nobody has measured.
const GUESSED: &str = "*";

/// Returns the machine that this runs on.
pub fn native() -> MachineInfo {
    let machine = crate::host::machine();
    MachineInfo {
        name: "native".into(),
        simulated: false,
        cpus: machine.cpus as usize,
        model: machine.model,
        kernel: machine.kernel,
        more: Map::new(),
    }
}

/// Returns the chosen machine.
pub fn of(choice: &MachineChoice) -> MachineInfo {
    choice.simulated().map_or_else(native, of_simulated)
}

fn of_simulated(spec: &Spec) -> MachineInfo {
    let mut parameters = Map::new();
    spec.for_each_number(|key, number| {
        let mut told = json!({ "value": number.value, "source": number.source });
        if let Some(range) = number.range {
            told["range"] = json!(range);
            told["because"] = json!(number.because);
        }
        parameters.insert(key.to_owned(), told);
    });
    MachineInfo {
        name: spec.name().to_owned(),
        simulated: true,
        cpus: spec.nr_cpus(),
        model: spec.description().to_owned(),
        kernel: String::new(),
        more: Map::from_iter([("parameters".to_owned(), Value::Object(parameters))]),
    }
}

/// Writes a simulated machine's parameters, a line for each table of its file; nothing for a real one.
pub fn write_parameters(machine: &MachineInfo, out: &mut (impl Write + ?Sized)) -> io::Result<()> {
    let Some(Value::Object(parameters)) = machine.more.get("parameters") else { return Ok(()) };
    writeln!(out, "\nparameters of the simulated machine ({GUESSED} guessed, the others measured or published):")?;
    let entries: Vec<(&String, &Value)> = parameters.iter().collect();
    for table in entries.chunk_by(|one, other| table_of(one.0) == table_of(other.0)) {
        let numbers: Vec<String> = table.iter().map(|(key, number)| shown(key, number)).collect();
        writeln!(out, "  {:<10} {}", table_of(table[0].0), numbers.join(", "))?;
    }
    Ok(())
}

fn table_of(key: &str) -> &str {
    key.split('.').next().unwrap_or(key)
}

fn shown(key: &str, number: &Value) -> String {
    let name = key.split_once('.').map_or(key, |(_, name)| name);
    let is_guessed = number["source"].as_str().is_some_and(|source| source.starts_with("guessed"));
    format!("{name} {}{}", number["value"], if is_guessed { GUESSED } else { "" })
}
