//! The small worlds: what is there at the beginning, and which operations threads may do.

use faultless_vm::{Limits, PlacementPolicy};

use super::model::{State, WORDS};
use super::ops::{self, Op, Part};

/// CPUs of every world, and most threads of a program.
pub const NR_CPUS: usize = 3;

/// The thread that is a space's first user where the others come late: another one than began it, whose CPU is a user.
pub const FIRST_USER: usize = 1;

/// The page of an object that a moody source never gives.
pub const BROKEN_PAGE: usize = 2;
/// The page of an object that a moody source gives at every second attempt.
pub const LATE_PAGE: usize = 1;

/// A small world.
#[derive(Debug)]
pub struct World {
    /// Its name.
    pub name: &'static str,
    /// What it is about.
    pub about: &'static str,
    /// Pages of the window; page 2 stands in another page table than page 1.
    pub nr_pages: usize,
    /// Bits of a frame's reference count.
    pub refcount_bits: u32,
    /// Pages of the object, which its mappings repeat.
    pub object_pages: usize,
    /// Whether the object's source refuses [`BROKEN_PAGE`], and puts [`LATE_PAGE`] off.
    pub is_moody: bool,
    /// How many pages a stack may grow, if there is one.
    pub stack_limit: Option<usize>,
    /// Whether forks share tables, however little is mapped there, under designs that can.
    pub shares_tables: bool,
    /// Whether mappings are spread, so that page 2 is the first of the last CPU's range.
    pub has_lanes: bool,
    /// Whether page 2 lies below all of these, where a lane of named addresses may begin.
    pub is_below_lanes: bool,
    /// Whether they come with the second user: all threads but [`FIRST_USER`] come while it runs.
    pub have_late_users: bool,
    /// How many areas Linux has after the prologue, where that is the point. Spaces that are listed keep them.
    pub nr_areas: Option<u64>,
    /// How many turns it gets where others get one: more where few schedules matter.
    pub weight: usize,
    /// Chances in four that a thread's TLB is filled before it begins.
    pub warmth: [u64; NR_CPUS],
    /// An order of priorities that promises most, if any does.
    pub likely: &'static [usize],
    /// What one thread does before the others come.
    prologue: &'static str,
    /// What each thread may do; what stands there twice is twice as likely.
    menus: &'static [&'static str],
}

/// A plain world of anonymous pages.
const PLAIN: World = World {
    name: "",
    about: "",
    nr_pages: 2,
    refcount_bits: 31,
    object_pages: 64,
    is_moody: false,
    stack_limit: None,
    shares_tables: false,
    has_lanes: false,
    is_below_lanes: false,
    have_late_users: false,
    nr_areas: None,
    weight: 1,
    warmth: [2; NR_CPUS],
    likely: &[],
    prologue: "m0-1+s0+s1",
    menus: &[],
};

/// All worlds.
pub static WORLDS: &[World] = &[
    World {
        name: "zap",
        about: "loads and stores while pages are dropped, unmapped and mapped again",
        weight: 2,
        prologue: "m0-1+s1",
        menus: &["d1+d0-1+u0+u1+u0-1+m0-1", "l0+l1+s0+s1+d1", "l0+l1+s0+s1+d1"],
        ..PLAIN
    },
    World {
        name: "twice",
        about: "pages that two threads drop at a time",
        prologue: "m0+s0",
        nr_pages: 1,
        menus: &["d0", "d0+l0+l0", "s0+l0+d0"],
        likely: &[0, 1, 2],
        warmth: [2, 4, 2],
        ..PLAIN
    },
    World {
        name: "protect",
        about: "loads and stores while rights come and go",
        weight: 2,
        prologue: "m0-1+s1",
        menus: &["r0+r1+r0-1+u0-1+n0-1+m0-1", "l0+s0+s0+s1", "s0+s1+l1+w0-1"],
        likely: &[1, 0, 2],
        ..PLAIN
    },
    World {
        name: "fork",
        about: "stores to private memory while it is forked",
        weight: 4,
        nr_pages: 4,
        prologue: "m0-3+s0+s0.1+s1+s2+s3",
        menus: &["f", "s0.1", "s0+s0+l0"],
        likely: &[0, 1, 2],
        warmth: [2, 0, 4],
        ..PLAIN
    },
    World {
        name: "share",
        about: "stores to pages that children share, and by children",
        prologue: "m0+s0+f",
        nr_pages: 1,
        menus: &["d0+f+c0+x", "s0+s0.1+l0+d0", "s0+s0.1+l0"],
        ..PLAIN
    },
    World {
        name: "family",
        about: "a table that a parent and its children have, while all of them store, and children end",
        weight: 3,
        nr_pages: 4,
        shares_tables: true,
        prologue: "m2-3+s2+s3+f",
        menus: &["f+x+c2+c3+f+x", "s2+s3+s2.1+l3", "s3+s2+l2+s3.1"],
        likely: &[0, 1, 2],
        warmth: [2, 2, 4],
        ..PLAIN
    },
    World {
        name: "heirs",
        about: "calls about pages of a table that children have, too, beside stores",
        weight: 2,
        nr_pages: 4,
        shares_tables: true,
        prologue: "m2-3+s2+s3+f",
        menus: &["f+d2+u3+m3+r2+w2+x+v2=1", "s2+l3+s3+f+d3", "l2+s3+s2+l3+c2"],
        likely: &[0, 1, 2],
        ..PLAIN
    },
    World {
        name: "stray",
        about: "a walk to a table that one thread's call leaves to a child, which stores there",
        nr_pages: 4,
        shares_tables: true,
        prologue: "m2-3+s2",
        menus: &["f+c2", "d3", "l2"],
        likely: &[2, 0, 1],
        warmth: [2, 2, 0],
        ..PLAIN
    },
    World {
        name: "move",
        about: "pages that move to and fro, while they are used and dropped at either place",
        weight: 3,
        prologue: "m0-2+s0+s2",
        nr_pages: 3,
        menus: &["v0=2+v2=0", "d2+d0+s0+l2+m0", "s0+s2+l0+l2"],
        likely: &[0, 1, 2],
        warmth: [2, 2, 3],
        ..PLAIN
    },
    World {
        name: "keep",
        about: "pages whose content moves to and fro, while they are used and dropped at either place",
        weight: 2,
        prologue: "m0+m2+s0+s2",
        nr_pages: 3,
        menus: &["V0=2+V2=0", "d2+d0+s0+l2+m0", "s0+s2+l0+l2"],
        likely: &[0, 1, 2],
        warmth: [2, 2, 3],
        ..PLAIN
    },
    World {
        name: "carry",
        about: "pages that a child shares and that move, while stores make copies of them",
        prologue: "m0-2+s0+s2+f",
        nr_pages: 3,
        menus: &["v0=2+V0=2", "s0+s0.1+l0", "s0+l2+s2"],
        likely: &[1, 0, 2],
        warmth: [2, 0, 2],
        ..PLAIN
    },
    World {
        name: "tables",
        about: "page tables that empty and fill",
        weight: 3,
        prologue: "m0-3+s0+s2",
        nr_pages: 4,
        menus: &["u0-1+u0-3+u2-3+m0-3+g", "l1+s1+s3+l3", "l1+s3+u0-3+m2-3"],
        likely: &[1, 0, 2],
        warmth: [2, 0, 2],
        ..PLAIN
    },
    World {
        name: "grace",
        about: "lookups and walks beside removals whose grace period ends at once",
        weight: 2,
        prologue: "m0-3+s0+s1+s2+s3",
        nr_pages: 4,
        menus: &["u0-3+g+g+u0-1", "l1+s1+l3+s3", "s3+l0+u2-3+g"],
        likely: &[1, 0, 2],
        warmth: [2, 0, 0],
        ..PLAIN
    },
    World {
        name: "late",
        about: "first accesses to an area beside its removal, whose grace period ends at once",
        weight: 7,
        prologue: "m0-3+s0",
        nr_pages: 4,
        menus: &["u0-3+g+u1-2", "l1+s1+l3+s3", "s3+u2-3+g"],
        likely: &[1, 0, 2],
        warmth: [2, 0, 0],
        ..PLAIN
    },
    World {
        name: "object",
        about: "private and shared mappings of an object's pages",
        prologue: "o0+O1+l1",
        menus: &["d0+o0+r0+w0+f+u1", "s0+l0+l1+d0", "s0+l0+O1"],
        ..PLAIN
    },
    World {
        name: "stack",
        about: "a stack that grows below an index of two levels",
        prologue: "m0+m2+m4+m6+m8+m10+m12+m14+m16+m18+m20+m22+m24+m26+m28+m30+m32",
        nr_pages: 33,
        stack_limit: Some(3),
        menus: &["k1+k2+k3+k5+g", "k2+l0+s16+s32", "l32+s0+u16+m16+k3"],
        ..PLAIN
    },
    World {
        name: "narrow",
        about: "frames of which four bits count the references",
        prologue: "m0+s0+m1+s1+i0+i0+i0+i0+i0+i0+i0+i0+i0+i0+i0+i0+i0",
        refcount_bits: 4,
        menus: &["i0+l0+f+s0", "f+x+i0+l0", "s1+l1+s0+f+u0"],
        ..PLAIN
    },
    World {
        name: "exit",
        about: "a space that its threads leave one by one",
        nr_pages: 1,
        prologue: "m0+s0",
        menus: &["e", "e+e+l0", "e+s0+f+g"],
        ..PLAIN
    },
    World {
        name: "cut",
        about: "areas that are cut from behind, once and again",
        weight: 4,
        prologue: "m0-3+n0-1+s2+w0-1+s0+d0-3",
        nr_pages: 4,
        nr_areas: Some(1),
        menus: &["u3+u2+u1+u1-2+r3+r2", "s1+l1+s2+l2", "s1+g+s2+m3"],
        likely: &[1, 0, 2],
        ..PLAIN
    },
    World {
        name: "merge",
        about: "areas that become one while their first pages are made",
        weight: 2,
        prologue: "m0-3+r2-3",
        nr_pages: 4,
        menus: &["w2-3+r2-3+w0-3+r0-1", "s0+s1+s2", "s1+s3+l0+f"],
        likely: &[0, 1, 2],
        ..PLAIN
    },
    World {
        name: "bridge",
        about: "first pages of an area beside calls that join it with one that has pages, and cut them",
        weight: 2,
        nr_pages: 4,
        prologue: "m0+m2-3+s2",
        menus: &["m1+u1+m1+n2+w2", "s0+s1+u0+m0+w0-3", "s0.1+s3+r0+w0+v0=1"],
        likely: &[1, 0, 2],
        ..PLAIN
    },
    World {
        name: "depart",
        about: "pages of two tables that are unmapped at once, while others use and map them",
        weight: 2,
        nr_pages: 4,
        prologue: "m0-3+s0+s1+s2+s3",
        menus: &["u0-3+m0-3+u1-2+m1-2", "s0+l3+m0-3+u0-3+m2-3+d0-3", "s2+l1+s3.1+r0-3+w0-3+f"],
        likely: &[0, 1, 2],
        ..PLAIN
    },
    World {
        name: "lanes",
        about: "pages of two lanes that one thread unmaps, maps and protects, while others use a lane for the first time",
        weight: 2,
        nr_pages: 4,
        has_lanes: true,
        prologue: "m0-3+s0+s1+s2+s3",
        menus: &["u0-3+m0-3+r2-3+w0-3+d0-3+u2-3+f", "s3+l0+s1+l2+s3", "l2+s0+u2-3+m2-3+s2"],
        likely: &[1, 0, 2],
        warmth: [2, 0, 1],
        ..PLAIN
    },
    World {
        name: "span",
        about: "page tables of two lanes that go with the last of their pages, while others walk them",
        weight: 2,
        nr_pages: 4,
        has_lanes: true,
        prologue: "m0-3+s0+s2",
        menus: &["u2-3+u0-1+g+u0-3", "l3+l2+l3+s2", "l1+u0-1+g+m0+l3"],
        likely: &[1, 0, 2],
        warmth: [2, 0, 0],
        ..PLAIN
    },
    World {
        name: "busy",
        about: "pages of one lane that are dropped and unmapped, while another CPU's first fault there is under way",
        nr_pages: 6,
        has_lanes: true,
        prologue: "m3-5+s3+s4",
        menus: &["d3+d4+u5+u5+m5", "s5+l5+s5", "d4+d3+u5"],
        likely: &[1, 0, 2],
        warmth: [2, 4, 2],
        ..PLAIN
    },
    World {
        name: "lately",
        about: "pages that are mapped, and others unmapped, beside another CPU's first fault in their lane",
        nr_pages: 6,
        has_lanes: true,
        prologue: "m4-5+s4",
        menus: &["m3+u5+m3+u5", "s5+l5+s5", "l5+s4+u3"],
        likely: &[1, 0, 2],
        warmth: [2, 0, 0],
        ..PLAIN
    },
    World {
        name: "recall",
        about: "pages that are unmapped, mapped and protected, beside others' faults, each behind one in the same area",
        nr_pages: 6,
        has_lanes: true,
        prologue: "m3-5",
        menus: &["u5+m5+r5+w5+r5+w5+r3-5+w3-5", "s3+s4+s5+s3+s4+s5+d3-5+d3-5+l5", "d3-5+l4"],
        likely: &[1, 0, 2],
        warmth: [2, 2, 2],
        ..PLAIN
    },
    World {
        name: "verge",
        about: "page tables of two lanes that go with the last page of one, while others walk them for the other",
        nr_pages: 3,
        has_lanes: true,
        prologue: "m2+s2",
        menus: &["u2+u2+g+m2", "l0+l1+l0+s2", "l1+g+l2+m2"],
        likely: &[1, 0, 2],
        warmth: [2, 0, 0],
        ..PLAIN
    },
    World {
        name: "return",
        about: "a fork, which asks all CPUs, while others come back and use their lane",
        nr_pages: 4,
        has_lanes: true,
        prologue: "m0-3+s0+s1+s2+s3",
        menus: &["f+f+l0", "s2+l0+m2-3+s3", "m2-3+l2+s2+l3"],
        likely: &[0, 1, 2],
        warmth: [4, 4, 4],
        ..PLAIN
    },
    World {
        name: "hint",
        about: "pages that are mapped where nothing is, while others unmap and map them",
        nr_pages: 4,
        prologue: "m0+m2-3+s2+s3",
        menus: &["u2+m2+u2-3+y2", "y2+s2+l2+u2", "y3+y1+u1+m2-3+s3"],
        likely: &[0, 1, 2],
        ..PLAIN
    },
    World {
        name: "bounds",
        about: "areas at both sides of a lane's bound, and across it, that threads unmap and map side by side",
        weight: 2,
        nr_pages: 5,
        has_lanes: true,
        prologue: "m0+m4+s0+s4",
        menus: &["u0+m0+s0+m1+u1+r0", "u4+m4+s4+m2+u2+m3", "m1-2+u0-4+m0-4+r1-2+l4+s0+u1-2"],
        warmth: [2, 2, 3],
        ..PLAIN
    },
    World {
        name: "annex",
        about: "areas below the lowest lane, which get a lane of their own as soon as two threads wait for each other",
        weight: 2,
        nr_pages: 3,
        has_lanes: true,
        prologue: "m0+s0",
        menus: &["u0+m0+s0+l0+r0", "u0+m0+l0+w0+s0", "m0+u0+m1+u1+u0-1+l0"],
        likely: &[0, 1, 2],
        ..PLAIN
    },
    World {
        name: "seam",
        about: "an area that threads change and use at both sides of a bound, where it is cut once they wait for each other",
        weight: 2,
        nr_pages: 5,
        has_lanes: true,
        is_below_lanes: true,
        prologue: "m0-4",
        menus: &["u0+m0+s1+u0+m0+l2", "u4+m4+u3+m3+s3+r4+w4", "u1-2+m1-2+r1-2+w2+s2+u2+m2"],
        likely: &[0, 1, 2],
        ..PLAIN
    },
    World {
        name: "second",
        about: "users that come, and bring lanes, while the first one uses pages that others drop and unmap",
        weight: 2,
        nr_pages: 4,
        has_lanes: true,
        have_late_users: true,
        prologue: "m0-1+m2+m3+s0+s2",
        menus: &["d0+u2+m2+s2+d2", "l0+s2+s0+l2+l0.1", "u2+m2+u0-1+m0+d0"],
        likely: &[1, 0, 2],
        warmth: [0; NR_CPUS],
        ..PLAIN
    },
    World {
        name: "apart",
        about: "areas of two tables, with a hole between them, that threads unmap, map and protect side by side",
        weight: 2,
        nr_pages: 4,
        prologue: "m0+m2-3+s0+s2+s3",
        menus: &["u0+m0+r0+w0+s0", "u2+g+m2+g+r3+u3+m3+g", "s0+s2+l3+u0-3+m1+u1+g"],
        likely: &[0, 1, 2],
        warmth: [2, 2, 3],
        ..PLAIN
    },
    World {
        name: "beside",
        about: "areas of one table, with holes between them, that threads unmap and map side by side",
        weight: 2,
        nr_pages: 8,
        prologue: "m2+m4+m7+s2+s4+s7",
        menus: &["u2+m2+m3+u3+s2", "u4+m4+r4+w4+s4", "u7+m5+u5+m7+s7+u2-7+f+l2"],
        warmth: [2, 2, 3],
        ..PLAIN
    },
    World {
        name: "shrink",
        about: "an object that shrinks, grows and loses pages while they are used",
        weight: 2,
        nr_pages: 3,
        object_pages: 2,
        prologue: "t2+Q0+o1+Q2+s0+s1.1",
        menus: &["t0+t2+t1.1+t0.1+p0-1", "s0+l1+s0.1+s1+s2.1+l2+R1+R0.1", "p0+p1+t2+t0+l0+s1+R0+o1"],
        likely: &[0, 1, 2],
        ..PLAIN
    },
    World {
        name: "leave",
        about: "an object's pages of two tables that are unmapped at once, while they are cut off and used",
        nr_pages: 4,
        object_pages: 4,
        prologue: "t4+Q0+Q1+Q2+Q3+s0+s1+s2+s3",
        menus: &["u0-3+u1-2+Q1+Q2", "t0+t4+p0-3+p1-2", "s2+l1+s1+l3+s0.1"],
        likely: &[0, 1, 2],
        warmth: [2, 2, 4],
        ..PLAIN
    },
    World {
        name: "tail",
        about: "the last page of an object, whose end is cut off and comes back, while it is punched and used",
        nr_pages: 1,
        object_pages: 1,
        prologue: "t1+Q0+s0+s0.1",
        menus: &["t0.1+t0.1+t1", "p0+p0+t1+t0", "s0.1+s0+l0.1+R0.1"],
        likely: &[0, 1, 2],
        ..PLAIN
    },
    World {
        name: "fetch",
        about: "pages that are fetched, put off or not to be had, beside truncations and holes",
        weight: 2,
        nr_pages: 3,
        object_pages: 3,
        is_moody: true,
        prologue: "t3+Q0+o1+Q2",
        menus: &["p0-1+p0-2+t0+t3+t1.1", "l0+l1+s1.1+l2+s2", "R0+R1+R2+l1+s0.1"],
        warmth: [0; NR_CPUS],
        likely: &[1, 0, 2],
        ..PLAIN
    },
    World {
        name: "brood",
        about: "spaces that are made, listed and ended while the object that they map is cut",
        weight: 2,
        nr_pages: 4,
        object_pages: 4,
        nr_areas: Some(2),
        prologue: "t4+m0+s0+o2+o3+s2+l3",
        menus: &["f+f+x", "t0+t4+t3+a", "a+s0+l3+e+g"],
        likely: &[0, 1, 2],
        ..PLAIN
    },
    World {
        name: "last",
        about: "a space that its last user leaves while it is listed and its object is cut",
        nr_pages: 4,
        object_pages: 4,
        nr_areas: Some(2),
        prologue: "t4+m0+s0+o2+o3+s2+l3",
        menus: &["e+a", "e+a+t0+t4", "e+f+x+g"],
        ..PLAIN
    },
    World {
        name: "spare",
        about: "stores to a page that one thread gives up and another drops",
        nr_pages: 1,
        prologue: "m0+s0+s0.1+F0",
        menus: &["P0+P0+F0", "P0+F0+d0+l0", "s0.1+s0.1+l0"],
        likely: &[0, 2, 1],
        warmth: [0, 0, 2],
        ..PLAIN
    },
    World {
        name: "copies",
        about: "stores by a third thread to a page of which two others make copies",
        nr_pages: 1,
        prologue: "m0+s0+f",
        menus: &["s0+s0+f", "s0+f+c0+x", "s0.1"],
        likely: &[0, 2, 1],
        warmth: [2, 2, 3],
        ..PLAIN
    },
    World {
        name: "carries",
        about: "stores by a third thread to pages that two others move to and fro",
        nr_pages: 3,
        prologue: "m0-2+s0+s2",
        menus: &["v0=2+V0=2+v0=1", "v2=0+V2=0+v1=2", "s0.1+s2.1+s1.1"],
        likely: &[0, 2, 1],
        warmth: [2, 0, 3],
        ..PLAIN
    },
    World {
        name: "gathers",
        about: "stores by a third thread to pages around those that two others drop and unmap",
        nr_pages: 4,
        prologue: "m0-3+s0+s1+s2+s3",
        menus: &["d0-1+d1-2+u1+m1", "d1-2+d2-3+u2-3+m2-3", "s0+s1+s2+s3"],
        likely: &[0, 2, 1],
        warmth: [2, 0, 3],
        ..PLAIN
    },
    World {
        name: "refpage",
        about: "areas of two reference pages and of a pattern, side by side: used, dropped, replaced and moved",
        weight: 2,
        nr_pages: 4,
        prologue: "q0-1+z2-3+s1+l0+l2",
        menus: &["d0-1+d1+u0+q0-1+j1+z0+v0=2", "s0+s0.1+l0+l1+s1+i0", "l2+l1+s2+s1.1+r0-1+w0-1+q2"],
        likely: &[1, 0, 2],
        ..PLAIN
    },
    World {
        name: "inherit",
        about: "reference pages that children inherit, while they are stored to and their handle goes",
        nr_pages: 2,
        prologue: "q0-1+s0+l1",
        menus: &["f+f+c1+x", "s0.1+s1+l1+d0+d1", "h+i1+l1+u1+q1"],
        likely: &[1, 0, 2],
        ..PLAIN
    },
    World {
        name: "pinned",
        about: "a reference page that pins hold beside its last mapping and its handle",
        weight: 2,
        nr_pages: 1,
        prologue: "q0+l0",
        menus: &["i0+i0+s0", "h+u0+g", "u0+h+q0+l0"],
        likely: &[0, 1, 2],
        ..PLAIN
    },
    World {
        name: "owner",
        about: "a semaphore by itself, whose owner is put off its CPU",
        weight: 2,
        nr_pages: 1,
        prologue: "",
        menus: &["B+B+D", "A+A+C+B", "A+C+D"],
        warmth: [0; NR_CPUS],
        ..PLAIN
    },
];

impl World {
    /// Returns the world of a name.
    pub fn named(name: &str) -> Option<&'static Self> {
        WORLDS.iter().find(|world| world.name == name)
    }

    /// Returns what each thread may do.
    pub fn menus(&self) -> Vec<Vec<Op>> {
        self.menus.iter().map(|menu| part(menu).ops).collect()
    }

    /// Returns what one thread does before the others come.
    pub fn prologue(&self) -> Vec<Op> {
        part(self.prologue).ops
    }

    /// Returns the limits of the world's spaces.
    pub fn limits(&self) -> Limits {
        let shared_table_bytes = if self.shares_tables { 0 } else { Limits::default().shared_table_bytes };
        if !self.has_lanes {
            return Limits { shared_table_bytes, ..Limits::default() };
        }
        let placement = if self.have_late_users { PlacementPolicy::Auto } else { PlacementPolicy::Spread };
        // The largest ranges of which three CPUs get one each, and one is nobody's, are 2^38 bytes long; or twice that.
        let mmap_base = if self.is_below_lanes { 10 << 38 } else { 5 << 38 };
        Limits { placement, mmap_base, shared_table_bytes, ..Limits::default() }
    }

    /// Returns the plain model of the world, before the prologue.
    pub fn state(&self) -> State {
        let state = State::new(self.nr_pages, self.object_pages, self.stack_limit.unwrap_or(0));
        let state = if self.is_moody { state.with_broken_page(BROKEN_PAGE) } else { state };
        if self.has_changing_children() { state.with_changing_children() } else { state }
    }

    /// Says whether threads do what children see.
    pub fn has_changing_children(&self) -> bool {
        let part = self.prologue();
        part.iter().chain(self.menus().iter().flatten()).any(Op::is_seen_by_children)
    }

    /// Says whether an operation stays inside what the world has.
    pub fn has_room_for(&self, op: &Op) -> bool {
        let has_stack = !matches!(op, Op::Grow(_)) || self.stack_limit.is_some();
        let object_pages = self.object_pages.min(self.nr_pages);
        op.last_page() < self.nr_pages && op.object_end() <= object_pages && op.word() < WORDS && has_stack
    }
}

/// Reads operations that are written above.
fn part(text: &str) -> Part {
    ops::parse_part(text).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_above_are_operations_within_the_window() {
        for world in WORLDS {
            for text in world.menus.iter().chain([&world.prologue]) {
                let part = ops::parse_part(text).expect(world.name);
                assert!(part.ops.iter().all(|op| world.has_room_for(op)), "{}", world.name);
            }
            assert!(world.menus().len() == NR_CPUS && World::named(world.name).is_some());
        }
    }
}
