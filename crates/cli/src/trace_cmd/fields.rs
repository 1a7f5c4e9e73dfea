//! An event as named fields, for every format alike.
//!
//! # Guarantee
//! Every field of an event appears under one name, with its unit in it; addresses and flags are hexadecimal texts, so
//! that no reader of JSON rounds them.

use faultless_trace::{Access, Event, EventKind, Fault, Mapped, Reader, Side, SwitchReason};
use serde_json::{Value, json};

/// The fields that any event may have, in the order of columns.
pub const COLUMNS: [&str; 23] = [
    "event",
    "time_ns",
    "thread",
    "tid",
    "on_cpu_ns",
    "kind",
    "address",
    "ip",
    "error_code",
    "access",
    "side",
    "call",
    "args",
    "result",
    "len_bytes",
    "file_offset",
    "prot",
    "flags",
    "file",
    "path",
    "child",
    "reason",
    "woken",
];

/// A field's name and value.
pub type Field = (&'static str, Value);

/// Returns an event's fields, in the order of [`COLUMNS`].
pub fn fields<R: std::io::Read>(number: u64, event: &Event, reader: &Reader<R>) -> Vec<Field> {
    let tid = reader.threads().get(event.thread as usize).map_or(0, |thread| thread.tid);
    let mut fields = vec![
        ("event", json!(number)),
        ("time_ns", json!(event.time_ns)),
        ("thread", json!(event.thread)),
        ("tid", json!(tid)),
        ("on_cpu_ns", json!(event.on_cpu_ns)),
        ("kind", json!(kind_name(&event.kind))),
    ];
    fields.extend(content(&event.kind, reader));
    fields
}

/// Returns the name of a kind of event.
pub fn kind_name(kind: &EventKind) -> &'static str {
    match kind {
        EventKind::Fault(_) => "fault",
        EventKind::CallEnter(_) => "enter",
        EventKind::CallExit(_) => "leave",
        EventKind::Mapped(_) => "mapped",
        EventKind::Clone(_) => "clone",
        EventKind::Exec => "exec",
        EventKind::Exit => "exit",
        EventKind::SwitchOut(_) => "switch-out",
        EventKind::SwitchIn => "switch-in",
        EventKind::Wake { .. } => "wake",
    }
}

fn content<R: std::io::Read>(kind: &EventKind, reader: &Reader<R>) -> Vec<Field> {
    match kind {
        EventKind::Fault(fault) => fault_fields(fault),
        EventKind::CallEnter(enter) => {
            let args: Vec<_> = enter.args[..enter.call.arity()].iter().map(|&arg| hex(arg)).collect();
            vec![("call", json!(enter.call.name())), ("args", json!(args))]
        }
        EventKind::CallExit(exit) => vec![("call", json!(exit.call.name())), ("result", result(exit.result))],
        EventKind::Mapped(mapped) => mapped_fields(mapped, reader),
        EventKind::Clone(clone) => vec![("flags", hex(clone.flags)), ("child", json!(clone.child))],
        EventKind::SwitchOut(SwitchReason::Blocked) => vec![("reason", json!("blocked"))],
        EventKind::SwitchOut(SwitchReason::Preempted) => vec![("reason", json!("preempted"))],
        EventKind::Wake { woken } => vec![("woken", json!(woken))],
        EventKind::Exec | EventKind::Exit | EventKind::SwitchIn => Vec::new(),
    }
}

fn fault_fields(fault: &Fault) -> Vec<Field> {
    let access = match fault.access() {
        Access::Read => "read",
        Access::Write => "write",
        Access::Fetch => "fetch",
    };
    let side = match fault.side {
        Side::User => "user",
        Side::Kernel => "kernel",
    };
    vec![
        ("address", hex(fault.address)),
        ("ip", hex(fault.ip)),
        ("error_code", hex(u64::from(fault.error_code))),
        ("access", json!(access)),
        ("side", json!(side)),
    ]
}

fn mapped_fields<R: std::io::Read>(mapped: &Mapped, reader: &Reader<R>) -> Vec<Field> {
    let mut fields = vec![
        ("address", hex(mapped.start)),
        ("len_bytes", json!(mapped.len_bytes)),
        ("file_offset", json!(mapped.file_offset)),
        ("prot", hex(u64::from(mapped.prot))),
        ("flags", hex(u64::from(mapped.flags))),
    ];
    if let Some(file) = mapped.file {
        let path = reader.files().get(file as usize).map_or("", |file| &file.path);
        fields.extend([("file", json!(file)), ("path", json!(path))]);
    }
    fields
}

/// A small result or an error as a number, an address as hexadecimal text.
fn result(result: i64) -> Value {
    if (-4095..4096).contains(&result) { json!(result) } else { hex(result as u64) }
}

fn hex(value: u64) -> Value {
    json!(format!("{value:#x}"))
}

/// Returns a value as plain text.
pub fn plain(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Array(values) => values.iter().map(plain).collect::<Vec<_>>().join(" "),
        other => other.to_string(),
    }
}
