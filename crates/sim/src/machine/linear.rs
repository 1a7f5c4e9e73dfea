//! What a machine can do at most, by arithmetic.

use super::spec::Spec;

/// What a page has.
const PAGE_BYTES: f64 = 4096.0;

impl Spec {
    /// Returns how many times as much as one CPU the first `nr_cpus` can do: one for each core, of which each further
    /// busy thread makes the others slower.
    ///
    /// ```
    /// let machine = faultless_sim::Spec::preset("epyc-384").expect("a preset");
    /// assert_eq!((machine.linear_factor(192), machine.linear_factor(384)), (192.0, 240.0));
    /// assert_eq!(machine.linear_factor(193), 191.0 + 1.25);
    /// ```
    pub fn linear_factor(&self, nr_cpus: usize) -> f64 {
        let nr_cores = self.cores_per_socket() * self.topology.sockets.value as usize;
        let threads_on = |core: usize| nr_cpus.saturating_sub(core).div_ceil(nr_cores) as f64;
        let slower = |threads: f64| 1.0 + (threads - 1.0) * (self.cpu.sibling_slowdown.value - 1.0);
        (0..nr_cores.min(nr_cpus)).map(|core| threads_on(core) / slower(threads_on(core))).sum()
    }

    /// Returns how many pages a second the memory buses of the first `nr_cpus` CPUs' sockets move.
    ///
    /// ```
    /// let machine = faultless_sim::Spec::preset("epyc-384").expect("a preset");
    /// assert_eq!(machine.pages_moved_per_s(96) * 2.0, machine.pages_moved_per_s(97));
    /// assert_eq!((machine.pages_moved_per_s(384) / 1e6).round(), 225.0);
    /// ```
    pub fn pages_moved_per_s(&self, nr_cpus: usize) -> f64 {
        let nr_sockets = nr_cpus.div_ceil(self.cores_per_socket()).min(self.topology.sockets.value as usize);
        nr_sockets as f64 * self.memory.bandwidth_gb_per_s.value * 1e9 / PAGE_BYTES
    }

    fn cores_per_socket(&self) -> usize {
        let table = &self.topology;
        table.complexes_per_socket.value as usize * table.cores_per_complex.value as usize
    }
}
