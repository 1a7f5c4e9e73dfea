//! The machines that experiments run on, and what is known of them.
//!
//! # Guarantee
//! A name means one machine; what a run on it counts or watches has one name everywhere.
//!
//! # Rooms
//! * [`simulated`]: machines by name, this one among them; runs in parallel and runs again
//! * [`session`]: which arm runs when, here and on a simulated machine
//! * [`host`], [`info`]: what the host says of itself; a machine as results name it
//! * [`designs`], [`events`]: what can be run, and counted, by the names that users know
//! * [`host_frames`]: a virtual memory's frames for one run; [`high`]: memory without addresses of its own
//! * [`watch`]: locks and events while it runs; `windows`: kernel maps of this process's own address space

#![deny(unsafe_code)]

pub mod designs;
pub mod events;
pub mod high;
pub mod host;
pub mod host_frames;
pub mod info;
pub mod session;
pub mod simulated;
pub mod watch;
#[cfg(not(miri))]
pub mod windows;
