//! Random sequences of calls, byte for byte against a plain model: vectors that are filled.
//!
//! A failure names its seed; `FAULTLESS_SEED=N cargo test -p faultless-refpage --test model` repeats it.

use faultless_refpage::{Fallback, Mapping, Options, TileLen};

const SEEDS: u64 = 100;
const CALLS: usize = 40;
const LONGEST: usize = 600_000;

struct Random(u64);

impl Random {
    fn below(&mut self, limit: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % limit
    }

    /// Lengths of whole pages, their neighbours, and any.
    fn len(&mut self) -> usize {
        let any = 1 + self.below(LONGEST);
        let page = any.next_multiple_of(4096);
        [any, page, page + 1, page - 1][self.below(4)]
    }

    fn range(&mut self, len: usize) -> std::ops::Range<usize> {
        let ends = [self.below(len + 1), self.below(len + 1)].map(|end| end.min(len));
        ends[0].min(ends[1])..ends[0].max(ends[1])
    }
}

struct Pair {
    content: Vec<u8>,
    memory: Mapping,
    model: Vec<u8>,
}

impl Pair {
    fn new(random: &mut Random) -> Pair {
        let pattern_len = [1, 2, 12, 4096, 1 + random.below(9_000)][random.below(5)];
        let content: Vec<u8> = (0..pattern_len).map(|_| random.below(256) as u8).collect();
        let tile_len = [TileLen::Auto, TileLen::AtLeast(1 + random.below(LONGEST))][random.below(2)];
        let options = Options::new().tile_len(tile_len).fallback(Fallback::Fill);
        let len = random.len();
        let align = 1 << random.below(23);
        let memory = options.create(&content).unwrap().map_aligned(len, align).unwrap();
        assert_eq!(memory.as_ptr().addr() % align, 0);
        let model = expected(&content, 0..len).collect();
        Pair { content, memory, model }
    }

    fn act(&mut self, random: &mut Random) {
        let range = random.range(self.model.len());
        match random.below(4) {
            0 | 1 => {
                let byte = random.below(256) as u8;
                self.memory[range.clone()].fill(byte);
                self.model[range].fill(byte);
            }
            2 => {
                self.memory.reset(range.clone()).unwrap();
                let fresh: Vec<u8> = expected(&self.content, range.clone()).collect();
                self.model[range].copy_from_slice(&fresh);
            }
            _ => {
                let (old, new) = (self.model.len(), random.len());
                self.memory.resize(new).unwrap();
                self.model.truncate(new);
                self.model.extend(expected(&self.content, old.min(new)..new));
            }
        }
    }
}

fn expected(content: &[u8], range: std::ops::Range<usize>) -> impl Iterator<Item = u8> + '_ {
    range.map(|i| content[i % content.len()])
}

fn run(seed: u64) {
    let mut random = Random(seed);
    let mut pairs = [Pair::new(&mut random), Pair::new(&mut random)];
    for call in 0..CALLS {
        pairs[random.below(2)].act(&mut random);
        for pair in &pairs {
            assert_eq!(pair.memory.len(), pair.model.len(), "seed {seed}, call {call}");
            let wrong = pair.memory.iter().zip(&pair.model).position(|(is, wanted)| is != wanted);
            assert_eq!(wrong, None, "seed {seed}, call {call}, pattern of {} bytes", pair.content.len());
        }
    }
}

#[test]
fn memory_is_what_a_plain_model_says() {
    match std::env::var("FAULTLESS_SEED") {
        Ok(seed) => run(seed.parse().unwrap()),
        Err(_) => (1..=SEEDS).for_each(run),
    }
}
