//! Machines as files.
//!
//! # Guarantee
//! A [`Spec`] is complete and sane: each number is in range, and each comes with its source or the word `guessed`. A
//! file that is not is refused with the key and the value.
//!
//! # Rooms
//! `spec` is the file; `draw` machines as a guess may have them; `linear` what a machine can do at most; `presets`
//! those that come with the program; `topology` and `costs` are the same facts as the engine reads them.

pub(crate) mod costs;
mod draw;
mod linear;
mod presets;
mod spec;
mod topology;

pub(crate) use costs::Costs;
pub use presets::MACHINES;
pub use spec::{Number, Spec, SpecError};
pub(crate) use topology::Topology;
