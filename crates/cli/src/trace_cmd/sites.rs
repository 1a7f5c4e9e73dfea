//! Where in a program's code a memory call or a fault came from, as people read it.
//!
//! # Guarantee
//! A name that is printed is the function's that the trace holds; where it holds none, the file and the address in it
//! stand there.

use faultless_trace::stacks::{Reach, Sample};
use faultless_trace::text::printable;
use faultless_trace::{Frame, Stacks, Trace};

/// The C library and the dynamic linker: who asked them is of interest, not that they were asked.
const BASE_LIBRARIES: [&str; 5] = ["libc.so", "libc-", "ld-linux", "ld-musl", "libpthread"];

/// The function of the C library that calls `main`, which has no name in a program without symbols.
const CALLS_MAIN: &str = "__libc_start_call_main";

/// The call chains of a trace.
pub struct Sites<'a> {
    trace: &'a Trace,
}

impl<'a> Sites<'a> {
    /// Returns the sites of a trace, or nothing if it was recorded without stacks.
    pub fn of(trace: &'a Trace) -> Option<Self> {
        (!trace.stacks.is_empty()).then_some(Self { trace })
    }

    fn stacks(&self) -> &'a Stacks {
        &self.trace.stacks
    }

    /// Returns for how many faults of a thread one with a chain stands.
    pub fn fault_period(&self) -> u64 {
        self.stacks().fault_period.max(1)
    }

    fn sample(&self, event: u64) -> Option<&'a Sample> {
        let samples = &self.stacks().samples;
        samples.binary_search_by_key(&event, |sample| sample.event).ok().map(|place| &samples[place])
    }

    /// Returns whom to ask about an event: the innermost function outside of the C library, or the innermost of all.
    pub fn site(&self, event: u64) -> Option<String> {
        let chain = self.sample(event)?.chain;
        let is_own = |frame: &&Frame| !self.is_base(frame);
        let mut frames = self.stacks().frames_of(chain);
        frames.find(is_own).or_else(|| self.stacks().frames_of(chain).next()).map(|frame| self.name(frame))
    }

    /// Returns the functions that led to an event, from the outermost to the innermost.
    pub fn path(&self, event: u64) -> Option<Vec<String>> {
        let sample = self.sample(event)?;
        let mut frames: Vec<&Frame> = self.stacks().frames_of(sample.chain).collect();
        frames.reverse();
        let mut names: Vec<String> = Vec::new();
        names.extend((sample.reach == Reach::Cut).then(|| "[callers unknown]".into()));
        for frame in frames {
            let is_main = frame.function.is_none() && names.last().is_some_and(|caller| caller == CALLS_MAIN);
            names.push(if is_main { "main".into() } else { self.name(frame) });
        }
        Some(names)
    }

    fn file_name(&self, frame: &Frame) -> Option<&'a str> {
        let file = self.trace.files.get(frame.file? as usize)?;
        Some(file.path.rsplit('/').next().unwrap_or(&file.path))
    }

    fn is_base(&self, frame: &Frame) -> bool {
        self.file_name(frame).is_some_and(|name| BASE_LIBRARIES.iter().any(|base| name.starts_with(base)))
    }

    fn name(&self, frame: &Frame) -> String {
        match (&frame.function, self.file_name(frame)) {
            (Some(function), _) => printable(function).to_string(),
            (None, Some(file)) => format!("{}+{:#x}", printable(file), frame.address),
            (None, None) => format!("{:#x}", frame.address),
        }
    }
}

#[cfg(test)]
mod tests {
    use faultless_trace::stacks::StackMethod;
    use faultless_trace::{Chain, File};

    use super::*;

    fn trace() -> Trace {
        let file = |path: &str| File { inode: 1, path: path.into(), ..File::default() };
        let frame =
            |function: Option<&str>, file, address| Frame { function: function.map(str::to_owned), file, address };
        let frames = vec![
            frame(Some("main"), Some(0), 0x1100),
            frame(Some("malloc"), Some(1), 0x9000),
            frame(None, Some(1), 0x9100),
            frame(None, None, 0x7f00),
        ];
        let chain = |frame, caller| Chain { frame, caller };
        let chains = vec![chain(0, None), chain(1, Some(0)), chain(2, Some(1)), chain(1, None), chain(3, None)];
        let sample = |event, chain, reach| Sample { event, chain, reach };
        let samples = vec![sample(4, 2, Reach::Whole), sample(9, 3, Reach::Cut), sample(11, 4, Reach::Whole)];
        let stacks = Stacks { method: Some(StackMethod::Dwarf), fault_period: 7, lost: 0, frames, chains, samples };
        Trace { files: vec![file("/bin/x"), file("/usr/lib/libc.so.6")], stacks, ..Trace::default() }
    }

    #[test]
    fn the_site_is_whoever_asked_the_c_library() {
        let trace = trace();
        let sites = Sites::of(&trace).expect("it has stacks");
        assert_eq!(sites.site(4).as_deref(), Some("main"));
        assert_eq!(sites.site(9).as_deref(), Some("malloc"), "nobody is known to have asked");
        assert_eq!(sites.site(11).as_deref(), Some("0x7f00"));
        assert_eq!(sites.site(5), None);
        assert!(Sites::of(&Trace::default()).is_none());
    }

    #[test]
    fn paths_begin_with_the_outermost() {
        let trace = trace();
        let sites = Sites::of(&trace).expect("it has stacks");
        assert_eq!(sites.path(4), Some(vec!["main".into(), "malloc".into(), "libc.so.6+0x9100".into()]));
        assert_eq!(sites.path(9), Some(vec!["[callers unknown]".into(), "malloc".into()]));
    }
}
