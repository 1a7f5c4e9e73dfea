//! The library on threads of the host, under every design: one program, so that each design is compiled once for all
//! these tests.
//!
//! * `semantics`: what the calls promise, drawn as before, call, after (`drawing`); `calls`: the same by hand
//! * `objects`, `spaces`, `populate`: memory objects, spaces that come and go, pages that are made at once
//! * `shootdown`, `removal`, `users`, `side_by_side`, `lane_index`, `credits`: what other CPUs see meanwhile
//! * `families`: page tables that a parent and its children have in common
//! * `world`: the small instance that they all test on; `designs`: what they are tested under

#[macro_use]
mod designs;
mod drawing;
mod world;

mod calls;
mod credits;
mod families;
mod lane_index;
mod objects;
mod placement;
mod populate;
mod removal;
mod semantics;
mod shootdown;
mod side_by_side;
mod spaces;
mod users;
