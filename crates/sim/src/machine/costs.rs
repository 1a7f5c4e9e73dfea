//! A machine's numbers in picoseconds, as the engine adds them up.

use super::spec::{GovernorTable, IdleTable, Number, Spec, TransferTable};
use super::topology::NR_LEVELS;

/// Costs in ps, but where a name says otherwise.
pub(crate) struct Costs {
    /// The instructions before an access.
    pub(crate) between: u64,
    /// The instructions that fill a line of plain memory, besides.
    pub(crate) fill_line: u64,
    pub(crate) load: u64,
    pub(crate) store: u64,
    pub(crate) rmw: u64,
    pub(crate) fence: u64,
    pub(crate) pause: u64,
    pub(crate) clock: u64,
    /// What each other busy thread of a core adds, in 1024ths.
    pub(crate) sibling_share: u64,
    pub(crate) read: [u64; NR_LEVELS],
    pub(crate) write: [u64; NR_LEVELS],
    pub(crate) memory: [u64; NR_LEVELS],
    /// In 1024ths.
    pub(crate) hold_share: u64,
    pub(crate) read_occupancy: u64,
    pub(crate) invalidate_each: u64,
    pub(crate) notice: u64,
    pub(crate) is_migratory: bool,
    pub(crate) is_interleaved: bool,
    pub(crate) zero: PageCosts,
    pub(crate) copy: PageCosts,
    pub(crate) core_pages: u64,
    pub(crate) complex_pages: u64,
    /// A page's time on a socket's memory bus.
    pub(crate) page_transfer: u64,
    pub(crate) sleep: u64,
    pub(crate) wake: u64,
    pub(crate) wake_latency: u64,
    pub(crate) context_switch: u64,
    pub(crate) slice: u64,
    pub(crate) start: u64,
    pub(crate) send_each: u64,
    pub(crate) deliver: u64,
    pub(crate) deliver_remote: u64,
    pub(crate) handle: u64,
    pub(crate) exception: u64,
    pub(crate) call: u64,
    pub(crate) idle: Option<IdleCosts>,
}

/// Idle states, the shallowest first: how long it takes to leave each, and how long it must be idle to be worth it.
pub(crate) struct IdleCosts {
    pub(crate) tick: u64,
    /// How far a CPU's timers are apart, in us; with it the governor counts in whole numbers.
    pub(crate) timer_us: Option<u64>,
    pub(crate) states: [(u64, u64); 4],
}

impl IdleCosts {
    fn new(table: &IdleTable, governor: Option<&GovernorTable>) -> Self {
        let state = |exit: &Number, residency: &Number| (ps(exit), ps(residency));
        Self {
            tick: ps(&table.tick_ns),
            timer_us: governor.map(|table| table.timer_us.value.round() as u64),
            states: [
                state(&table.exit_1_ns, &table.residency_1_ns),
                state(&table.exit_2_ns, &table.residency_2_ns),
                state(&table.exit_3_ns, &table.residency_3_ns),
                state(&table.exit_4_ns, &table.residency_4_ns),
            ],
        }
    }

    /// Returns how much longer it takes to leave the state that a governor chooses than to leave the first one.
    pub(crate) fn exit_after(&self, expected_ps: f64, multiplier: f64) -> u64 {
        let fits = |&&(exit, residency): &&(u64, u64)| {
            residency as f64 <= expected_ps && exit as f64 * multiplier <= expected_ps
        };
        let chosen = self.states.iter().rfind(fits).unwrap_or(&self.states[0]);
        chosen.0.saturating_sub(self.states[0].0)
    }
}

/// What it takes to fill a page that lies in the core's cache, in the complex's, or in memory.
pub(crate) struct PageCosts {
    pub(crate) hot: u64,
    pub(crate) warm: u64,
    pub(crate) cold: u64,
}

impl PageCosts {
    fn new(numbers: [&Number; 3]) -> Self {
        let [hot, warm, cold] = numbers.map(ps);
        Self { hot, warm, cold }
    }
}

fn ps(number: &Number) -> u64 {
    (number.value * 1000.0).round() as u64
}

fn transfer(table: &TransferTable) -> [u64; NR_LEVELS] {
    let levels = [&table.sibling_ns, &table.complex_ns, &table.socket_ns, &table.remote_ns, &table.far_ns];
    let mut costs = [0; NR_LEVELS];
    costs[1..].iter_mut().zip(levels).for_each(|(cost, number)| *cost = ps(number));
    costs
}

impl Costs {
    pub(crate) fn new(spec: &Spec) -> Self {
        let (cpu, line, memory) = (&spec.cpu, &spec.line, &spec.memory);
        let (scheduler, interrupt) = (&spec.scheduler, &spec.interrupt);
        let local = ps(&memory.local_ns);
        Self {
            between: ps(&cpu.instructions_ns),
            fill_line: ps(&cpu.fill_line_ns),
            load: ps(&cpu.load_ns),
            store: ps(&cpu.store_ns),
            rmw: ps(&cpu.rmw_ns),
            fence: ps(&cpu.fence_ns),
            pause: ps(&cpu.pause_ns),
            clock: ps(&cpu.clock_ns),
            sibling_share: ((cpu.sibling_slowdown.value - 1.0) * 1024.0).round() as u64,
            read: transfer(&spec.read),
            write: transfer(&spec.write),
            memory: [local, local, local, local, ps(&memory.remote_ns), ps(&memory.far_ns)],
            hold_share: (line.hold_share.value * 1024.0) as u64,
            read_occupancy: ps(&line.read_occupancy_ns),
            invalidate_each: ps(&line.invalidate_each_ns),
            notice: ps(&line.notice_ns),
            is_migratory: line.migratory.value != 0.0,
            is_interleaved: memory.interleave.value != 0.0,
            zero: PageCosts::new([&memory.zero_hot_ns, &memory.zero_warm_ns, &memory.zero_cold_ns]),
            copy: PageCosts::new([&memory.copy_hot_ns, &memory.copy_warm_ns, &memory.copy_cold_ns]),
            core_pages: (memory.cache_kib_per_core.value / 4.0) as u64,
            complex_pages: (memory.cache_kib_per_complex.value / 4.0) as u64,
            page_transfer: (4096.0 * 1000.0 / memory.bandwidth_gb_per_s.value) as u64,
            sleep: ps(&scheduler.sleep_ns),
            wake: ps(&scheduler.wake_ns),
            wake_latency: ps(&scheduler.wake_latency_ns),
            context_switch: ps(&scheduler.context_switch_ns),
            slice: ps(&scheduler.slice_ns),
            start: ps(&scheduler.start_ns),
            send_each: ps(&interrupt.send_each_ns),
            deliver: ps(&interrupt.deliver_ns),
            deliver_remote: ps(&interrupt.deliver_remote_ns),
            handle: ps(&interrupt.handle_ns),
            exception: ps(&spec.entry.exception_ns),
            call: ps(&spec.entry.call_ns),
            idle: spec.idle.as_ref().map(|table| IdleCosts::new(table, spec.governor.as_ref())),
        }
    }
}
