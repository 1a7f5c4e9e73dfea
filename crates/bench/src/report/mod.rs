//! What workloads showed, for people and as result sets.

pub mod bench;
pub mod stat;
