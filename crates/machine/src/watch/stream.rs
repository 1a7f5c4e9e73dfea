//! Events as they happen: a line for each, with time and address.
//!
//! # Guarantee
//! Lines come in the order of their times, each whole. Once somebody refuses them, no more are written, and the run
//! goes on.

use std::io::{self, Write};
use std::sync::Mutex;

use faultless_platform::Tracepoint;
use faultless_platform::watched::{Happening, Sink};

use super::{BEGIN, END};

/// Writes the events of those names.
pub struct Stream<W> {
    names: Vec<String>,
    state: Mutex<State<W>>,
}

struct State<W> {
    out: W,
    began_ns: Option<u64>,
    error: Option<io::Error>,
}

impl<W: Write> Stream<W> {
    /// Returns a stream of the events of those names.
    pub fn new(names: Vec<String>, out: W) -> Self {
        Self { names, state: Mutex::new(State { out, began_ns: None, error: None }) }
    }

    /// Hands on what was written so far; returns why the stream broke off, if it did.
    pub fn flush(&self) -> Option<io::Error> {
        let mut state = self.state.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        let flushed = state.out.flush().err();
        state.error.take().or(flushed)
    }
}

impl<W: Write + Send> Sink for Stream<W> {
    fn note(&self, happening: &Happening) {
        let Tracepoint::Point { name, value } = happening.event else { return };
        let is_edge = name == BEGIN || name == END;
        if !is_edge && !self.names.iter().any(|wanted| wanted == name) {
            return;
        }
        let Ok(mut state) = self.state.lock() else { return };
        // Read under the lock, so that times go up.
        let now_ns = (happening.now)();
        match state.began_ns {
            None if name == BEGIN => state.began_ns = Some(now_ns),
            Some(_) if name == END => state.began_ns = None,
            Some(began_ns) if state.error.is_none() => {
                let (seconds, ns) = ((now_ns - began_ns) / 1_000_000_000, (now_ns - began_ns) % 1_000_000_000);
                let (cpu, thread) = (happening.cpu, happening.thread.bits());
                let written = writeln!(
                    state.out,
                    "[{seconds:>5}.{ns:09}] cpu {cpu:<3} thread {thread:<4} {name:<26} address {value:#x}"
                );
                state.error = written.err();
            }
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use faultless_platform::ThreadToken;

    #[derive(Clone, Default)]
    struct Shared(std::sync::Arc<Mutex<Vec<u8>>>);

    impl Write for Shared {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().expect("no panic").write(bytes)
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    fn happening(name: &'static str, value: u64, now: fn() -> u64) -> Happening {
        Happening { event: Tracepoint::Point { name, value }, cpu: 1, thread: ThreadToken::from_bits(3), now }
    }

    #[test]
    fn chosen_events_of_the_window_are_written_with_time_and_address() {
        let out = Shared::default();
        let stream = Stream::new(vec!["spf".into()], out.clone());
        stream.note(&happening("spf", 1, || 5));
        stream.note(&happening(BEGIN, 0, || 10));
        stream.note(&happening("spf", 0x7000, || 1_000_000_035));
        stream.note(&happening("cow", 0x8000, || 1_000_000_036));
        stream.note(&happening(END, 0, || 1_000_000_040));
        stream.note(&happening("spf", 2, || 1_000_000_050));
        assert!(stream.flush().is_none());
        let expected = "[    1.000000025] cpu 1   thread 3    spf                        address 0x7000\n";
        assert_eq!(String::from_utf8_lossy(&out.0.lock().expect("no panic")), expected);
    }

    #[test]
    fn a_reader_that_goes_away_ends_the_stream_alone() {
        let stream = Stream::new(vec!["spf".into()], &mut [][..]);
        stream.note(&happening(BEGIN, 0, || 10));
        (0..3).for_each(|_| stream.note(&happening("spf", 0, || 20)));
        assert!(stream.flush().is_some());
    }
}
