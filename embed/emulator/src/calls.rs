//! Linux's system calls, as RV64 numbers them: those on memory by the crate `abi`, the others by the host.
//!
//! # Guarantee
//! Any number and any arguments get an answer; a call that is not here gets ENOSYS, a buffer that isn't there EFAULT.
//! Files are the host's; what a program opens is closed with it.

use crate::memory::Memory;
use faultless_abi::{Answer, Calls};
use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io::{ErrorKind, Read, Seek, SeekFrom, Write};
use std::time::{Instant, SystemTime, UNIX_EPOCH};

const ENOENT: i64 = -2;
const EIO: i64 = -5;
const EBADF: i64 = -9;
const EACCES: i64 = -13;
const EFAULT: i64 = -14;
const EEXIST: i64 = -17;
const EINVAL: i64 = -22;
const ENOTTY: i64 = -25;
const ESPIPE: i64 = -29;
const ENOSYS: i64 = -38;
/// What a call copies at once.
const CHUNK: usize = 64 << 10;
/// The longest path.
const PATH_MAX: usize = 4096;

/// What a call leaves to be done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// The program goes on with this result.
    Value(i64),
    /// It ends with this status.
    Exit(i32),
    /// It is ended by this signal.
    Signal(i32),
}

/// A program's files and clocks.
pub(crate) struct Host<'o> {
    output: &'o mut dyn Write,
    error: &'o mut dyn Write,
    files: BTreeMap<i64, File>,
    begun: Instant,
    random: u64,
}

/// Reads a `struct iovec` of a vector: an address and a length in bytes.
fn vector_entry(memory: &mut Memory<'_>, vector: u64, place: u64) -> Option<(u64, u64)> {
    let entry = vector.wrapping_add(place * 16);
    Some((memory.load(entry).ok()?, memory.load(entry.wrapping_add(8)).ok()?))
}

/// What went wrong with the host's file.
fn errno_of(error: &std::io::Error) -> i64 {
    match error.kind() {
        ErrorKind::NotFound => ENOENT,
        ErrorKind::PermissionDenied => EACCES,
        ErrorKind::AlreadyExists => EEXIST,
        ErrorKind::InvalidInput => EINVAL,
        _ => error.raw_os_error().map_or(EIO, |errno| -i64::from(errno)),
    }
}

fn raw(answer: Answer) -> i64 {
    answer.map_or_else(|errno| errno.raw(), |value| value as i64)
}

impl<'o> Host<'o> {
    pub(crate) fn new(output: &'o mut dyn Write, error: &'o mut dyn Write) -> Self {
        Self { output, error, files: BTreeMap::new(), begun: Instant::now(), random: 0x9e37_79b9_7f4a_7c15 }
    }

    /// Carries a call out.
    pub(crate) fn call(&mut self, memory: &mut Memory<'_>, number: u64, arguments: [u64; 6]) -> Outcome {
        let [a, b, c, d, e, _] = arguments;
        Outcome::Value(match number {
            93 | 94 => return Outcome::Exit(a as i32 & 0xff),
            // kill, tkill, tgkill: of this process alone.
            129 | 130 if b != 0 => return Outcome::Signal(b as i32 & 0x7f),
            131 if c != 0 => return Outcome::Signal(c as i32 & 0x7f),
            214 => memory.call(|space| raw(Calls::new(space).brk(a))),
            215 => memory.call(|space| raw(Calls::new(space).munmap(a, b))),
            216 => memory.call(|space| raw(Calls::new(space).mremap([a, b, c, d, e]))),
            222 => memory.call(|space| raw(Calls::new(space).mmap(arguments, None))),
            226 => memory.call(|space| raw(Calls::new(space).mprotect(a, b, c))),
            227 => memory.call(|space| raw(Calls::new(space).msync(a, b, c))),
            228 => memory.call(|space| raw(Calls::new(space).mlock(a, b))),
            229 => memory.call(|space| raw(Calls::new(space).munlock(a, b))),
            233 => memory.call(|space| raw(Calls::new(space).madvise(a, b, c))),
            56 => self.open(memory, b, c),
            57 => {
                if self.files.remove(&(a as i64)).is_some() || a < 3 {
                    0
                } else {
                    EBADF
                }
            }
            62 => self.seek(a as i64, b as i64, c),
            63 => self.read(memory, a as i64, b, c),
            65 => self.read_vector(memory, a as i64, b, c),
            64 => self.write(memory, a as i64, b, c),
            66 => self.write_vector(memory, a as i64, b, c),
            29 => ENOTTY,
            80 => self.status(memory, a as i64, b),
            79 if d & 0x1000 != 0 && a as i32 >= 0 => self.status(memory, a as i64, c),
            // set_tid_address, gettid, getpid; getppid; users and groups.
            96 | 178 | 172 => 1000,
            173 => 1,
            174..=177 => 1000,
            // Signals have their default action alone.
            134 if b == 0 || memory.load::<u64>(b) == Ok(0) => 0,
            // set_robust_list, rt_sigprocmask.
            99 | 135 => 0,
            113 => self.clock(memory, a, b),
            169 => self.time_of_day(memory, a),
            160 => self.name(memory, a),
            261 => self.limit(memory, b, d),
            278 => self.fill_with_random(memory, a, b),
            124 => 0,
            _ => ENOSYS,
        })
    }

    fn text(memory: &mut Memory<'_>, address: u64) -> Result<String, i64> {
        let mut bytes = Vec::new();
        while bytes.len() < PATH_MAX {
            match memory.load::<u8>(address.wrapping_add(bytes.len() as u64)).map_err(|_| EFAULT)? {
                0 => return String::from_utf8(bytes).map_err(|_| ENOENT),
                byte => bytes.push(byte),
            }
        }
        Err(-36)
    }

    fn open(&mut self, memory: &mut Memory<'_>, path: u64, flags: u64) -> i64 {
        let path = match Self::text(memory, path) {
            Ok(path) => path,
            Err(errno) => return errno,
        };
        let access = flags & 3;
        let file = OpenOptions::new()
            .read(access != 1)
            .write(access != 0 && flags & 0x400 == 0)
            .append(flags & 0x400 != 0)
            .create(flags & 0x40 != 0 && access != 0)
            .create_new(flags & 0xc0 == 0xc0 && access != 0)
            .truncate(flags & 0x200 != 0 && access != 0 && flags & 0x400 == 0)
            .open(path);
        match file {
            Ok(file) => {
                let number = (3..).find(|number| !self.files.contains_key(number)).unwrap_or(i64::MAX);
                self.files.insert(number, file);
                number
            }
            Err(error) => errno_of(&error),
        }
    }

    fn seek(&mut self, number: i64, offset: i64, whence: u64) -> i64 {
        let Some(file) = self.files.get_mut(&number) else { return if number < 3 { ESPIPE } else { EBADF } };
        let to = match whence {
            0 if offset >= 0 => SeekFrom::Start(offset as u64),
            1 => SeekFrom::Current(offset),
            2 => SeekFrom::End(offset),
            _ => return EINVAL,
        };
        file.seek(to).map_or_else(|error| errno_of(&error), |place| place as i64)
    }

    fn read(&mut self, memory: &mut Memory<'_>, number: i64, address: u64, len: u64) -> i64 {
        let mut bytes = vec![0; CHUNK.min(len as usize)];
        let read = match self.files.get_mut(&number) {
            Some(file) => file.read(&mut bytes),
            None if number == 0 => std::io::stdin().read(&mut bytes),
            None => return EBADF,
        };
        match read {
            Ok(len) if memory.write(address, &bytes[..len]).is_ok() => len as i64,
            Ok(_) => EFAULT,
            Err(error) => errno_of(&error),
        }
    }

    fn write(&mut self, memory: &mut Memory<'_>, number: i64, address: u64, len: u64) -> i64 {
        let mut bytes = vec![0; CHUNK.min(len as usize)];
        if memory.read(address, &mut bytes).is_err() {
            return EFAULT;
        }
        let written = match (number, self.files.get_mut(&number)) {
            (_, Some(file)) => file.write(&bytes),
            (1, None) => self.output.write_all(&bytes).and_then(|()| self.output.flush()).map(|()| bytes.len()),
            (2, None) => self.error.write_all(&bytes).map(|()| bytes.len()),
            _ => return EBADF,
        };
        written.map_or_else(|error| errno_of(&error), |len| len as i64)
    }

    fn read_vector(&mut self, memory: &mut Memory<'_>, number: i64, vector: u64, len: u64) -> i64 {
        if len > 1024 {
            return EINVAL;
        }
        let mut total = 0;
        for place in 0..len {
            let Some((address, len)) = vector_entry(memory, vector, place) else { return EFAULT };
            match self.read(memory, number, address, len) {
                count if count < 0 => return if total > 0 { total } else { count },
                count => {
                    total += count;
                    // The end of the file, or all that is there now.
                    if (count as u64) < len {
                        return total;
                    }
                }
            }
        }
        total
    }

    fn write_vector(&mut self, memory: &mut Memory<'_>, number: i64, vector: u64, len: u64) -> i64 {
        if len > 1024 {
            return EINVAL;
        }
        let mut total = 0;
        for place in 0..len {
            let Some((address, len)) = vector_entry(memory, vector, place) else { return EFAULT };
            let mut done = 0;
            while done < len {
                match self.write(memory, number, address.wrapping_add(done), len - done) {
                    count if count > 0 => done += count as u64,
                    error => return if total + done as i64 > 0 { total + done as i64 } else { error },
                }
            }
            total += done as i64;
        }
        total
    }

    /// fstat(2): a character device, or the host's file.
    fn status(&mut self, memory: &mut Memory<'_>, number: i64, address: u64) -> i64 {
        let (mode, len) = match self.files.get(&number).map(File::metadata) {
            Some(Ok(status)) => (0o100_644_u32, status.len()),
            Some(Err(error)) => return errno_of(&error),
            None if (0..3).contains(&number) => (0o020_620, 0),
            None => return EBADF,
        };
        let mut bytes = [0; 128];
        bytes[16..20].copy_from_slice(&mode.to_le_bytes());
        bytes[20] = 1;
        bytes[48..56].copy_from_slice(&len.to_le_bytes());
        bytes[56..60].copy_from_slice(&4096_u32.to_le_bytes());
        bytes[64..72].copy_from_slice(&len.div_ceil(512).to_le_bytes());
        if memory.write(address, &bytes).is_ok() { 0 } else { EFAULT }
    }

    fn put(memory: &mut Memory<'_>, address: u64, words: [u64; 2]) -> i64 {
        let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        if address == 0 || memory.write(address, &bytes).is_ok() { 0 } else { EFAULT }
    }

    fn clock(&mut self, memory: &mut Memory<'_>, clock: u64, address: u64) -> i64 {
        let time = match clock {
            0 | 5 => SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default(),
            _ => self.begun.elapsed(),
        };
        Self::put(memory, address, [time.as_secs(), u64::from(time.subsec_nanos())])
    }

    fn time_of_day(&mut self, memory: &mut Memory<'_>, address: u64) -> i64 {
        let time = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Self::put(memory, address, [time.as_secs(), u64::from(time.subsec_micros())])
    }

    fn name(&mut self, memory: &mut Memory<'_>, address: u64) -> i64 {
        let mut bytes = [0; 65 * 6];
        for (place, text) in ["Linux", "emulator", "6.18.0", "#1", "riscv64", ""].into_iter().enumerate() {
            bytes[place * 65..place * 65 + text.len()].copy_from_slice(text.as_bytes());
        }
        if memory.write(address, &bytes).is_ok() { 0 } else { EFAULT }
    }

    /// prlimit64(2), to ask: a stack of 8 MiB, no limit else.
    fn limit(&mut self, memory: &mut Memory<'_>, resource: u64, old: u64) -> i64 {
        let limit = if resource == 3 { 8 << 20 } else { u64::MAX };
        Self::put(memory, old, [limit, u64::MAX])
    }

    fn fill_with_random(&mut self, memory: &mut Memory<'_>, address: u64, len: u64) -> i64 {
        let len = len.min(256);
        let bytes: Vec<u8> = (0..len)
            .map(|_| {
                self.random = self.random.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(1);
                (self.random >> 56) as u8
            })
            .collect();
        if memory.write(address, &bytes).is_ok() { len as i64 } else { EFAULT }
    }
}
