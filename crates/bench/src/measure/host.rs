//! One run on the host's kernel: the same programs, the same loop, in processes made for it.
//!
//! # Guarantee
//! Threads of one address space are threads of one process that was made for the run; with [`Mode::Processes`] each
//! worker is a process. Nothing of the run is left in the process that asks.

use std::fs::File;
use std::sync::Mutex;

use faultless_linux::space::{self as host, Family, Together, Usage};
use faultless_platform::native::{Machine, Native};
use faultless_platform::{MAX_CPUS, Processor, Threads};
use faultless_workloads::{PAGE, Program, Refused, Seat, Worker};
use serde_json::{Value, json};

use super::compile;
use super::drive::{End, Tally, Window, drive};
use super::host_space::HostSpace;
use super::job::{Job, MeasureError, Run};
use super::site::{HostSite, Pinning, Site};
use super::vm::sum_up;
use faultless_results::stats::Histogram;

/// From the moment all workers are ready to the start: each of them has to look again first.
const START_NS: u64 = 500_000;

/// Runs a job once on the host's kernel.
pub fn once(job: &Job, pinning: Pinning) -> Result<Run, MeasureError> {
    if job.spec.workload.name == compile::NAME {
        return compile::once_on_host(job, &host::has_interrupt);
    }
    let common = host::memory_file().map_err(|errno| refused(Refused::Call { call: "memfd_create", errno }))?;
    let (nr_spaces, team) = job.spaces();
    check_room(job.frames() * PAGE)?;
    if team > MAX_CPUS {
        return Err(MeasureError::TooManyThreads(team));
    }
    let site = HostSite::new(pinning, job.cpus);
    let life = |space: usize, together: &Together| {
        let process = Process { job, common: &common, site: &site, together, space };
        process.live().to_string().into_bytes()
    };
    let messages = Family::run(nr_spaces, &life).map_err(MeasureError::Child)?;
    let mut said = Said::default();
    messages.iter().try_for_each(|message| said.add(message)).map_err(MeasureError::Message)?;
    if host::has_interrupt() && said.tallies.iter().all(|tally| tally.ops == 0) {
        return Err(MeasureError::Interrupted);
    }
    said.conclude(job)
}

/// Makes sure that the host has the memory that a run is about to touch.
pub(super) fn check_room(needed_bytes: u64) -> Result<(), MeasureError> {
    match faultless_machine::host::available_bytes() {
        Some(available_bytes) if available_bytes < needed_bytes => {
            Err(MeasureError::HostMemory { needed_bytes, available_bytes })
        }
        _ => Ok(()),
    }
}

fn refused(cause: Refused) -> MeasureError {
    MeasureError::Refused { cause, memory_bytes: None }
}

/// A measuring process.
struct Process<'a> {
    job: &'a Job,
    common: &'a File,
    site: &'a HostSite,
    together: &'a Together,
    space: usize,
}

impl Process<'_> {
    /// Lives; returns what to tell the parent.
    fn live(&self) -> Value {
        let (_, team) = self.job.spaces();
        let done: Mutex<Vec<(Tally, Usage)>> = Mutex::default();
        let children = Usage::of_children();
        match self.job.spec.prepare::<Native>(&HostSpace::new(self.common), team) {
            Err(cause) => {
                self.together.stop();
                json!({ "refused": words(cause) })
            }
            Ok(program) => {
                Native::run(&Machine::new(team), team, &|worker| {
                    let result = self.work(program.as_ref(), worker, team);
                    done.lock().expect("no worker panicked, or the run would").push(result);
                });
                let mut done = done.into_inner().expect("all workers have ended");
                // Whose children they were, the kernel does not tell.
                if let Some((_, usage)) = done.first_mut() {
                    *usage = usage.and(Usage::of_children().since(children));
                }
                Value::Array(done.iter().map(|(tally, usage)| tell(tally, *usage)).collect())
            }
        }
    }

    fn work(&self, program: &dyn Program<Native>, worker: usize, team: usize) -> (Tally, Usage) {
        let seat = Seat { worker, team, global: self.space * team + worker };
        self.site.settle(seat.global, self.job.nr_workers());
        Native::enter();
        let view = HostSpace::new(self.common);
        let result = match program.worker(seat, &view) {
            Ok(mut worker) => self.measure(worker.as_mut(), &view),
            Err(cause) => {
                self.together.stop();
                (Tally::failed(cause), Usage::default())
            }
        };
        Native::leave();
        result
    }

    fn measure(&self, worker: &mut dyn Worker, view: &HostSpace<'_>) -> (Tally, Usage) {
        let start_ns = self.together.arrive(self.job.nr_workers(), || Native::now() + START_NS);
        let Some(start_ns) = start_ns else { return Default::default() };
        Native::spin_until_deadline(start_ns, || false);
        let window = Window {
            start_ns: 0,
            end: End::At(start_ns + self.job.length.least_ns()),
            steps_per_timing: self.job.spec.workload.steps_per_timing,
            has_stopped: &|| self.together.has_stopped(),
        };
        let (delay, before) = (self.site.begin(), Usage::of_this_thread());
        let mut tally = drive::<Native>(worker, &window);
        let usage = Usage::of_this_thread().since(before).since(view.used_aside());
        tally.run_delay_ns = delay.and_then(|delay| delay.since_begin_ns());
        if tally.refused.is_some() {
            self.together.stop();
        }
        worker.finish();
        (tally, usage)
    }
}

fn words(cause: Refused) -> Value {
    match cause {
        Refused::Call { call, errno } => json!({ "call": call, "errno": errno }),
        other => json!({ "call": other.to_string(), "errno": 0 }),
    }
}

fn tell(tally: &Tally, usage: Usage) -> Value {
    json!({
        "ops": tally.ops,
        "began_ns": tally.began_ns,
        "ended_ns": tally.ended_ns,
        "ops_in_window": tally.ops_in_window,
        "aside_in_window_ns": tally.aside_in_window_ns,
        "aside_ns": tally.aside_ns,
        "was_cut": tally.was_cut,
        "run_delay_ns": tally.run_delay_ns,
        "refused": tally.refused.map(words),
        "latency": tally.latency.pairs().collect::<Vec<_>>(),
        "faults": usage.faults,
        "sleeps": usage.sleeps,
        "preemptions": usage.preemptions,
        "cpu_ns": usage.cpu_ns,
    })
}

/// What the measuring processes said.
#[derive(Default)]
struct Said {
    tallies: Vec<Tally>,
    usage: Usage,
    refusal: Option<String>,
}

impl Said {
    fn add(&mut self, message: &[u8]) -> Result<(), String> {
        let value: Value = serde_json::from_slice(message).map_err(|error| error.to_string())?;
        self.refuse(&value["refused"]);
        for worker in value.as_array().into_iter().flatten() {
            self.refuse(&worker["refused"]);
            self.tallies.push(heard(worker));
            self.usage.faults += number(worker, "faults");
            self.usage.sleeps += number(worker, "sleeps");
            self.usage.preemptions += number(worker, "preemptions");
            self.usage.cpu_ns += number(worker, "cpu_ns");
        }
        Ok(())
    }

    fn refuse(&mut self, words: &Value) {
        if let Some(call) = words["call"].as_str() {
            let errno = words["errno"].as_i64().unwrap_or(0) as i32;
            let error = std::io::Error::from_raw_os_error(errno);
            self.refusal.get_or_insert(if errno == 0 { call.into() } else { format!("{call}: {error}") });
        }
    }

    fn conclude(self, job: &Job) -> Result<Run, MeasureError> {
        if let Some(refusal) = self.refusal {
            return Err(MeasureError::Message(refusal));
        }
        let mut run = sum_up(&self.tallies, job).map_err(refused)?;
        let Usage { faults, sleeps, preemptions, cpu_ns } = self.usage;
        run.counters = vec![("faults", faults), ("sleeps", sleeps), ("preemptions", preemptions), ("cpu_ns", cpu_ns)];
        Ok(run)
    }
}

fn number(value: &Value, key: &str) -> u64 {
    value[key].as_u64().unwrap_or(0)
}

fn heard(worker: &Value) -> Tally {
    let pairs = worker["latency"].as_array().into_iter().flatten();
    let pairs = pairs.filter_map(|pair| Some((pair[0].as_u64()?, pair[1].as_u64()?)));
    Tally {
        ops: number(worker, "ops"),
        began_ns: number(worker, "began_ns"),
        ended_ns: number(worker, "ended_ns"),
        ops_in_window: worker["ops_in_window"].as_f64().unwrap_or(0.0),
        aside_in_window_ns: worker["aside_in_window_ns"].as_f64().unwrap_or(0.0),
        was_cut: worker["was_cut"] == true,
        aside_ns: number(worker, "aside_ns"),
        latency: Histogram::from_pairs(pairs),
        run_delay_ns: worker["run_delay_ns"].as_u64(),
        refused: None,
    }
}
