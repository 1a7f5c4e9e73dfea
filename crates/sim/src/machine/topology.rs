//! Which CPU is how far from which.
//!
//! CPUs are numbered as Linux numbers them on most machines: one hardware thread of each core first, socket by socket,
//! then the second threads. So `n` CPUs of a machine are `n` cores as long as there are so many.

use super::spec::Spec;
use faultless_platform::{DISTANCE_LOCAL, Nodes};

/// Levels of distance: itself, the core's other thread, the complex, the socket, another socket, a far socket.
pub(crate) const NR_LEVELS: usize = 6;

/// Where the CPUs are.
pub(crate) struct Topology {
    /// Distance of each pair, in rows of `nr_cpus`.
    levels: Vec<u8>,
    /// For each CPU and level, who is at most that far, in words of 64.
    reach: Vec<u64>,
    sockets: Vec<u16>,
    complexes: Vec<u16>,
    /// The other threads of each CPU's core, in rows of `most_siblings`; itself where it has fewer.
    siblings: Vec<u16>,
    most_siblings: usize,
    nr_cpus: usize,
    nr_words: usize,
    pub(crate) nr_sockets: usize,
    pub(crate) nr_complexes: usize,
}

#[derive(Clone, Copy)]
struct Place {
    core: usize,
    complex: usize,
    socket: usize,
    group: usize,
}

impl Place {
    fn level_to(self, cpu: usize, other: Self, other_cpu: usize) -> usize {
        let differs = [
            cpu != other_cpu,
            self.core != other.core,
            self.complex != other.complex,
            self.socket != other.socket,
            self.group != other.group,
        ];
        differs.iter().rposition(|&differs| differs).map_or(0, |level| level + 1)
    }
}

impl Topology {
    /// Arranges the first `nr_cpus` CPUs of a machine.
    pub(crate) fn new(spec: &Spec, nr_cpus: usize) -> Self {
        let whole = |value: f64| value as usize;
        let table = &spec.topology;
        let cores_per_socket = whole(table.complexes_per_socket.value) * whole(table.cores_per_complex.value);
        let nr_sockets = whole(table.sockets.value);
        let places: Vec<Place> = (0..nr_cpus)
            .map(|cpu| {
                let core = cpu % (cores_per_socket * nr_sockets);
                let socket = core / cores_per_socket;
                let complex = core / whole(table.cores_per_complex.value);
                Place { core, complex, socket, group: socket / whole(table.sockets_per_group.value) }
            })
            .collect();
        let pairs = (0..nr_cpus).flat_map(|a| (0..nr_cpus).map(move |b| (a, b)));
        let levels: Vec<u8> = pairs.map(|(a, b)| places[a].level_to(a, places[b], b) as u8).collect();
        let mut topology = Self {
            reach: Vec::new(),
            sockets: places.iter().map(|place| place.socket as u16).collect(),
            complexes: places.iter().map(|place| place.complex as u16).collect(),
            siblings: Vec::new(),
            most_siblings: 0,
            levels,
            nr_cpus,
            nr_words: nr_cpus.div_ceil(64),
            nr_sockets,
            nr_complexes: nr_sockets * whole(table.complexes_per_socket.value),
        };
        topology.fill_reach();
        topology.fill_siblings();
        topology
    }

    fn fill_siblings(&mut self) {
        let (this, cpus) = (&*self, 0..self.nr_cpus);
        let siblings_of = |a: usize| (0..this.nr_cpus).filter(move |&b| this.level(a, b) == 1);
        let most = cpus.clone().map(|cpu| siblings_of(cpu).count()).max().unwrap_or(0);
        let row = |cpu| siblings_of(cpu).chain(std::iter::repeat(cpu)).take(most).map(|sibling| sibling as u16);
        let siblings = cpus.flat_map(row).collect();
        (self.siblings, self.most_siblings) = (siblings, most);
    }

    /// Returns the NUMA nodes: the sockets of the CPUs that take part, or one where the machine deals its memory out to
    /// all in turn.
    pub(crate) fn nodes(&self, spec: &Spec) -> Nodes {
        if spec.memory.interleave.value != 0.0 {
            return Nodes::one();
        }
        let nr_nodes = self.sockets.iter().max().map_or(1, |&socket| usize::from(socket) + 1);
        let node_of = |cpu| if cpu < self.nr_cpus { self.socket(cpu) } else { 0 };
        let memory = &spec.memory;
        let of_level = |level| if level > 4 { &memory.far_ns } else { &memory.remote_ns };
        let distance = |from: usize, to: usize| {
            let level = self.level_to_socket(usize::from(self.cpu_of_socket(from)), to);
            (f64::from(DISTANCE_LOCAL) * of_level(level).value / memory.local_ns.value).round() as u8
        };
        Nodes::new(nr_nodes, node_of, distance)
    }

    fn fill_reach(&mut self) {
        self.reach = vec![0; self.nr_cpus * NR_LEVELS * self.nr_words];
        for a in 0..self.nr_cpus {
            for b in 0..self.nr_cpus {
                for level in self.level(a, b)..NR_LEVELS {
                    self.reach[(a * NR_LEVELS + level) * self.nr_words + b / 64] |= 1 << (b % 64);
                }
            }
        }
    }

    /// Returns the distance of two CPUs.
    #[inline]
    pub(crate) fn level(&self, a: usize, b: usize) -> usize {
        usize::from(self.levels[a * self.nr_cpus + b])
    }

    /// Returns the other threads of a CPU's core.
    #[inline]
    pub(crate) fn siblings(&self, cpu: usize) -> impl Iterator<Item = usize> {
        let row = &self.siblings[cpu * self.most_siblings..(cpu + 1) * self.most_siblings];
        row.iter().map(|&sibling| usize::from(sibling)).filter(move |&sibling| sibling != cpu)
    }

    /// Returns a CPU's socket.
    #[inline]
    pub(crate) fn socket(&self, cpu: usize) -> usize {
        usize::from(self.sockets[cpu])
    }

    /// Returns a CPU of a socket; the first one if none of it takes part.
    pub(crate) fn cpu_of_socket(&self, socket: usize) -> u16 {
        (0..self.nr_cpus).find(|&cpu| self.socket(cpu) == socket).unwrap_or(0) as u16
    }

    /// Returns a CPU's complex.
    #[inline]
    pub(crate) fn complex(&self, cpu: usize) -> usize {
        usize::from(self.complexes[cpu])
    }

    /// Returns the distance of two sockets, by any CPUs of theirs that take part; the same as another socket's if there
    /// are none.
    pub(crate) fn level_to_socket(&self, cpu: usize, socket: usize) -> usize {
        let there = (0..self.nr_cpus).find(|&other| self.socket(other) == socket);
        there.map_or(4, |other| self.level(cpu, other).max(3))
    }

    fn reach(&self, cpu: usize, level: usize) -> &[u64] {
        let start = (cpu * NR_LEVELS + level) * self.nr_words;
        &self.reach[start..start + self.nr_words]
    }

    /// Returns the distance of the nearest CPU of a set but `cpu` itself.
    pub(crate) fn nearest(&self, cpu: usize, set: &[u64]) -> Option<usize> {
        (1..NR_LEVELS).find(|&level| {
            let near = self.reach(cpu, level).iter().zip(self.reach(cpu, 0)).map(|(near, own)| near & !own);
            near.zip(set).any(|(near, set)| near & set != 0)
        })
    }

    /// Returns the distance of the farthest CPU of a set; 0 if it is empty.
    pub(crate) fn farthest(&self, cpu: usize, set: &[u64]) -> usize {
        let is_beyond = |level: usize| self.reach(cpu, level).iter().zip(set).any(|(near, set)| set & !near != 0);
        (0..NR_LEVELS).find(|&level| !is_beyond(level)).unwrap_or(NR_LEVELS - 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nodes_are_the_sockets_in_use() {
        let nodes = |name: &str, nr_cpus| {
            let spec = Spec::preset(name).expect("a preset");
            Topology::new(&spec, nr_cpus).nodes(&spec)
        };
        let both = nodes("epyc-384", 384);
        assert_eq!((both.len(), both.of_cpu(95), both.of_cpu(96), both.of_cpu(192)), (2, 0, 1, 0));
        assert_eq!((both.distance(0, 0), both.distance(0, 1)), (10, 17), "200 ns beside 115");
        assert_eq!((nodes("epyc-384", 96).len(), nodes("epyc-384", 97).len()), (1, 2));
        assert_eq!(nodes("xeon-40", 1).len(), 1);
    }

    #[test]
    fn distances_follow_the_machine_file() {
        let spec = Spec::preset("skylake-192").expect("a preset");
        let topology = Topology::new(&spec, 192);
        assert_eq!(topology.level(0, 0), 0);
        assert_eq!(topology.level(0, 96), 1, "the second thread of the same core");
        assert_eq!(topology.level(0, 1), 2);
        assert_eq!(topology.level(0, 24), 4);
        let mut set = vec![0_u64; 3];
        assert_eq!((topology.nearest(0, &set), topology.farthest(0, &set)), (None, 0));
        set[0] |= 1 | 1 << 30;
        assert_eq!((topology.nearest(0, &set), topology.farthest(0, &set)), (Some(4), 4));
        set[0] |= 1 << 5;
        assert_eq!((topology.nearest(0, &set), topology.farthest(0, &set)), (Some(2), 4));
    }
}
