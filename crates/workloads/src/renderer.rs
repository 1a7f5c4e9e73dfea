//! What a PDF renderer asks of its allocator, as recorded: the blocks of 64 KiB and more of a pdftoppm that renders
//! twelve slides, and the first touch of each of their pages.
//!
//! # Source
//! `examples/renderer.trace`, whose blocks a mapping each holds, as the author's Scudo has it for large blocks
//! (`MALLOC_MMAP_THRESHOLD_=65536`). `renderer.txt` is made from it, and `bench/tests/renderer.rs` checks that it is.
//!
//! ```text
//! cpu_ns N       what the program computed between its calls and faults
//! m PAGES        maps a block; blocks are numbered from 0 on
//! s BLOCK FIRST COUNT      stores to pages of it
//! l BLOCK FIRST COUNT      loads from pages of it
//! u BLOCK        unmaps it
//! ```

use alloc::vec::Vec;
use core::ops::Range;

/// The recording as text.
pub const RENDERER: &str = include_str!("renderer.txt");

/// Something that the renderer did; pages are counted from the block's begin.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum RendererStep {
    Map { nr_pages: u64 },
    Store { block: usize, pages: Range<u64> },
    Load { block: usize, pages: Range<u64> },
    Unmap { block: usize },
}

/// Returns what the renderer computes between its calls and faults, in ns, as recorded.
pub fn renderer_cpu_ns() -> u64 {
    let first = RENDERER.lines().next().and_then(|line| line.strip_prefix("cpu_ns "));
    first.and_then(|number| number.parse().ok()).expect("the recording begins with it")
}

/// Returns all that it did, in order.
pub(crate) fn acts() -> Vec<RendererStep> {
    RENDERER.lines().skip(1).map(|line| act(line).expect("the recording is well formed")).collect()
}

fn act(line: &str) -> Option<RendererStep> {
    let mut words = line.split(' ');
    let kind = words.next()?;
    let mut number = || words.next()?.parse::<u64>().ok();
    let first = number()?;
    let block = first as usize;
    Some(match kind {
        "m" => RendererStep::Map { nr_pages: first },
        "u" => RendererStep::Unmap { block },
        _ => {
            let from = number()?;
            let pages = from..from + number()?;
            match kind {
                "s" => RendererStep::Store { block, pages },
                "l" => RendererStep::Load { block, pages },
                _ => return None,
            }
        }
    })
}

/// Returns how many pages are mapped at once at most.
pub(crate) fn pages_at_once() -> u64 {
    let (mut lengths, mut mapped, mut most) = (Vec::new(), 0, 0);
    for act in acts() {
        match act {
            RendererStep::Map { nr_pages } => {
                lengths.push(nr_pages);
                mapped += nr_pages;
            }
            RendererStep::Unmap { block } => mapped -= lengths[block],
            RendererStep::Store { .. } | RendererStep::Load { .. } => {}
        }
        most = most.max(mapped);
    }
    most
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_block_is_touched_inside_its_life_and_unmapped() {
        let mut blocks: Vec<Option<u64>> = Vec::new();
        for act in acts() {
            match act {
                RendererStep::Map { nr_pages } => blocks.push(Some(nr_pages)),
                RendererStep::Unmap { block } => assert!(blocks[block].take().is_some()),
                RendererStep::Store { block, pages } | RendererStep::Load { block, pages } => {
                    assert!(pages.start < pages.end && Some(pages.end) <= blocks[block]);
                }
            }
        }
        assert!(blocks.len() > 100 && blocks.iter().all(Option::is_none));
        assert!(pages_at_once() > 1000 && renderer_cpu_ns() > 100_000_000);
        assert_eq!([act("x 1 2 3"), act("s 1 2"), act("")], [None, None, None]);
    }
}
