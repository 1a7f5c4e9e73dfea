//! The workload `refpage --touch renderer` does what `examples/renderer.trace` says, and nothing else.
//!
//! `FAULTLESS_WRITE_RENDERER=1 cargo test -p faultless-bench --test renderer` writes the workload's text anew.

use faultless_plan::{Losses, Options, Pace, plan};
use faultless_trace::{Access, Call, EventKind, Trace};
use faultless_workloads::{PAGE, RENDERER};
use std::fmt::Write;

const TRACE: &[u8] = include_bytes!("../../../examples/renderer.trace");
const TEXT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../workloads/src/renderer.txt");
/// Scudo's threshold, more or less: shorter blocks share mappings.
const THRESHOLD_BYTES: u64 = 64 << 10;

/// A block under its number, and of each page the last kind of access that faulted.
struct Block {
    number: usize,
    start: u64,
    pages: Vec<Option<char>>,
}

#[derive(Default)]
struct Script {
    lines: Vec<(char, usize, u64, u64)>,
    blocks: Vec<Block>,
    nr_blocks: usize,
}

impl Script {
    fn map(&mut self, start: u64, len_bytes: u64) -> usize {
        let nr_pages = len_bytes.div_ceil(PAGE);
        let number = self.nr_blocks;
        self.nr_blocks += 1;
        self.lines.push(('m', number, nr_pages, 0));
        self.blocks.push(Block { number, start, pages: vec![None; nr_pages as usize] });
        self.blocks.len() - 1
    }

    fn unmap(&mut self, start: u64) {
        if let Some(place) = self.blocks.iter().position(|block| block.start == start) {
            let block = self.blocks.remove(place);
            self.lines.push(('u', block.number, 0, 0));
        }
    }

    /// An allocator that maps each block makes a new one, copies what was written, and frees the old one.
    fn resize(&mut self, old: u64, new: u64, len_bytes: u64) {
        let Some(place) = self.blocks.iter().position(|block| block.start == old) else { return };
        let pages = self.blocks[place].pages.clone();
        let target = self.map(new, len_bytes);
        let written = (0..pages.len()).filter(|&page| pages[page] == Some('s'));
        written.for_each(|page| self.touch(target, page, 's'));
        let removed = self.blocks.remove(place);
        self.lines.push(('u', removed.number, 0, 0));
    }

    fn fault(&mut self, address: u64, kind: char) {
        let holds = |block: &Block| (block.start..block.start + block.pages.len() as u64 * PAGE).contains(&address);
        if let Some(place) = self.blocks.iter().position(holds) {
            let page = (address - self.blocks[place].start) / PAGE;
            self.touch(place, page as usize, kind);
        }
    }

    fn touch(&mut self, place: usize, page: usize, kind: char) {
        let block = &mut self.blocks[place];
        let before = block.pages[page].replace(kind);
        assert!(
            before.is_none() || (before, kind) == (Some('l'), 's'),
            "a page of a block faults once for each access"
        );
        match self.lines.last_mut() {
            Some((last, number, first, count))
                if (*last, *number, *first + *count) == (kind, block.number, page as u64) =>
            {
                *count += 1;
            }
            _ => self.lines.push((kind, block.number, page as u64, 1)),
        }
    }

    fn text(&self) -> String {
        self.lines.iter().fold(String::new(), |mut text, &(kind, block, first, count)| {
            let _ = match kind {
                'm' => writeln!(text, "m {first}"),
                'u' => writeln!(text, "u {block}"),
                _ => writeln!(text, "{kind} {block} {first} {count}"),
            };
            text
        })
    }
}

/// Says whether a call of mmap makes a block: private anonymous memory to write, anywhere, and no stack.
fn is_block([address, len_bytes, prot, flags, ..]: [u64; 6]) -> bool {
    const PRIVATE_ANONYMOUS: u64 = 0x22;
    address == 0 && prot & 2 != 0 && flags == PRIVATE_ANONYMOUS && len_bytes >= THRESHOLD_BYTES
}

fn script(trace: &Trace) -> String {
    let (mut script, mut args) = (Script::default(), [0; 6]);
    for event in &trace.events {
        match &event.kind {
            EventKind::CallEnter(enter) => args = enter.args,
            EventKind::CallExit(exit) if exit.is_error() => {}
            EventKind::CallExit(exit) => match exit.call {
                Call::Mmap if is_block(args) => drop(script.map(exit.result as u64, args[1])),
                Call::Munmap => script.unmap(args[0]),
                Call::Mremap => script.resize(args[0], exit.result as u64, args[2]),
                _ => {}
            },
            EventKind::Fault(fault) => {
                script.fault(fault.address, if fault.access() == Access::Write { 's' } else { 'l' });
            }
            _ => {}
        }
    }
    let left: Vec<u64> = script.blocks.iter().map(|block| block.start).collect();
    left.into_iter().for_each(|start| script.unmap(start));
    script.text()
}

fn computed_ns(trace: &Trace) -> u64 {
    let options = Options { pace: Pace::Recorded, losses: Losses::Refused };
    let plan = plan(trace, options).expect("it was replayed");
    plan.programs.iter().flat_map(|program| &program.steps).map(|step| step.work_ns).sum()
}

#[test]
fn the_renderers_blocks_are_the_recorded_ones() {
    let trace = Trace::read(TRACE).expect("an example");
    assert_eq!(trace.threads.len(), 1, "calls are paired by their order");
    let text = format!("cpu_ns {}\n{}", computed_ns(&trace), script(&trace));
    if std::env::var_os("FAULTLESS_WRITE_RENDERER").is_some() {
        std::fs::write(TEXT, &text).expect("the source can be written");
    }
    assert!(text == RENDERER, "renderer.txt is another recording's");
}
