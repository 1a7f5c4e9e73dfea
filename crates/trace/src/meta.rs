//! The header and the tables as bytes.
//!
//! # Guarantee
//! What [`Trace`](crate::Trace)'s header and tables say comes back equal; nothing else is accepted.
//!
//! `FORMAT.md` beside this crate's manifest lists the fields in their order.

use crate::header::{Costs, Ending, File, Header, HugePages, Limits, Machine, Missing, Mode, Pace, Thread};
use crate::varint::{Cursor, Decoded, Malformed, put, put_text};

/// Returns the header's bytes.
pub(crate) fn encode_header(header: &Header) -> Vec<u8> {
    let mut out = Vec::new();
    put(&mut out, header.command.len() as u64);
    header.command.iter().for_each(|word| put_text(&mut out, word));
    put_machine(&mut out, &header.machine);
    put(&mut out, header.mode as u64);
    put(&mut out, header.missing.len() as u64);
    header.missing.iter().for_each(|&missing| put(&mut out, missing as u64));
    put(&mut out, header.huge_pages as u64);
    put(&mut out, header.pace as u64);
    put(&mut out, header.time_unit_ns);
    put(&mut out, header.lost);
    put_ending(&mut out, header.ending);
    put(&mut out, u64::from(header.is_interrupted));
    put(&mut out, header.clock_error_ns);
    for cost in [header.costs.fault_ns, header.costs.fault_tracing_ns, header.costs.call_tracing_ns] {
        put(&mut out, cost);
    }
    limits_in_order(&header.limits).into_iter().for_each(|limit| put_option(&mut out, limit));
    out
}

/// Reads a header back.
pub(crate) fn decode_header(bytes: &[u8]) -> Decoded<Header> {
    let mut input = Cursor::new(bytes);
    let header = Header {
        command: list(&mut input, Cursor::text)?,
        machine: machine(&mut input)?,
        mode: one_of(&mut input, &[Mode::Privileged, Mode::Unprivileged])?,
        missing: list(&mut input, |input| one_of(input, Missing::ALL))?,
        huge_pages: one_of(&mut input, &[HugePages::Off, HugePages::AsSystem])?,
        pace: one_of(&mut input, &[Pace::Absent, Pace::Stored])?,
        time_unit_ns: input.int()?,
        lost: input.int()?,
        ending: ending(&mut input)?,
        is_interrupted: one_of(&mut input, &[false, true])?,
        clock_error_ns: input.int()?,
        costs: Costs { fault_ns: input.int()?, fault_tracing_ns: input.int()?, call_tracing_ns: input.int()? },
        limits: limits(&mut input)?,
    };
    input.end()?;
    Ok(header)
}

/// Appends one entry of the thread table.
pub(crate) fn put_thread(out: &mut Vec<u8>, thread: &Thread) {
    put(out, u64::from(thread.pid));
    put(out, u64::from(thread.tid));
    put_text(out, &thread.name);
}

/// Reads a block of the thread table.
pub(crate) fn decode_threads(bytes: &[u8]) -> Decoded<Vec<Thread>> {
    all(bytes, |input| Ok(Thread { pid: input.int32()?, tid: input.int32()?, name: input.text()? }))
}

/// Appends one entry of the file table.
pub(crate) fn put_file(out: &mut Vec<u8>, file: &File) {
    put(out, u64::from(file.major));
    put(out, u64::from(file.minor));
    put(out, file.inode);
    put(out, file.generation);
    put_option(out, file.size_bytes);
    put_text(out, &file.path);
}

/// Reads a block of the file table.
pub(crate) fn decode_files(bytes: &[u8]) -> Decoded<Vec<File>> {
    all(bytes, |input| {
        Ok(File {
            major: input.int32()?,
            minor: input.int32()?,
            inode: input.int()?,
            generation: input.int()?,
            size_bytes: option(input)?,
            path: input.text()?,
        })
    })
}

fn put_machine(out: &mut Vec<u8>, machine: &Machine) {
    put(out, u64::from(machine.cpus));
    put_text(out, &machine.model);
    put_text(out, &machine.kernel);
    put(out, machine.page_size_bytes);
}

fn machine(input: &mut Cursor<'_>) -> Decoded<Machine> {
    Ok(Machine { cpus: input.int32()?, model: input.text()?, kernel: input.text()?, page_size_bytes: input.int()? })
}

fn put_ending(out: &mut Vec<u8>, ending: Ending) {
    let (code, value) = match ending {
        Ending::Unknown => (0, 0),
        Ending::Exited(code) => (1, code),
        Ending::Killed(signal) => (2, signal),
    };
    out.extend_from_slice(&[code, value]);
}

fn ending(input: &mut Cursor<'_>) -> Decoded<Ending> {
    match (input.byte()?, input.byte()?) {
        (0, 0) => Ok(Ending::Unknown),
        (1, code) => Ok(Ending::Exited(code)),
        (2, signal) => Ok(Ending::Killed(signal)),
        _ => Err(Malformed),
    }
}

fn limits_in_order(limits: &Limits) -> [Option<u64>; 7] {
    [
        limits.overcommit,
        limits.mmap_min_addr,
        limits.max_map_count,
        limits.stack_bytes,
        limits.address_space_bytes,
        limits.data_bytes,
        limits.memlock_bytes,
    ]
}

fn limits(input: &mut Cursor<'_>) -> Decoded<Limits> {
    Ok(Limits {
        overcommit: option(input)?,
        mmap_min_addr: option(input)?,
        max_map_count: option(input)?,
        stack_bytes: option(input)?,
        address_space_bytes: option(input)?,
        data_bytes: option(input)?,
        memlock_bytes: option(input)?,
    })
}

/// Appends 0 for nothing, or 1 and the value.
fn put_option(out: &mut Vec<u8>, value: Option<u64>) {
    match value {
        None => out.push(0),
        Some(value) => {
            out.push(1);
            put(out, value);
        }
    }
}

fn option(input: &mut Cursor<'_>) -> Decoded<Option<u64>> {
    match input.byte()? {
        0 => Ok(None),
        1 => input.int().map(Some),
        _ => Err(Malformed),
    }
}

fn one_of<T: Copy>(input: &mut Cursor<'_>, values: &[T]) -> Decoded<T> {
    let code = usize::try_from(input.int()?).map_err(|_| Malformed)?;
    values.get(code).copied().ok_or(Malformed)
}

/// Reads items whose number stands before them; each takes at least one byte, so no number can make this allocate much.
fn list<'a, T>(input: &mut Cursor<'a>, item: impl Fn(&mut Cursor<'a>) -> Decoded<T>) -> Decoded<Vec<T>> {
    let count = input.int()?;
    if count > input.remaining() as u64 {
        return Err(Malformed);
    }
    (0..count).map(|_| item(input)).collect()
}

/// Reads items until nothing is left.
fn all<'a, T>(bytes: &'a [u8], item: impl Fn(&mut Cursor<'a>) -> Decoded<T>) -> Decoded<Vec<T>> {
    let mut input = Cursor::new(bytes);
    let mut items = Vec::new();
    while input.remaining() > 0 {
        items.push(item(&mut input)?);
    }
    Ok(items)
}
