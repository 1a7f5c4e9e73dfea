//! Every design, for the tests of this program.

const _: () = assert!(faultless_vm::registry::DESIGNS.len() == 7, "`for_each_design` has all that are registered");

/// Makes a test of each design, over one semaphore or the other.
macro_rules! for_each_design {
    ($name:ident, $design:ident, $body:block) => {
        mod $name {
            #[allow(unused_imports, reason = "what a body needs differs")]
            use super::*;
            use faultless_sync::Rwsem;
            use faultless_vm::design::{FaultlessQueued, Faultless, MmapSem, SpfSrcu, SpfV9, SpfV11, VmaLock};

            fn run<$design: Tested>() $body

            #[test]
            fn mmap_sem() {
                run::<MmapSem<Rwsem<Native>>>();
            }

            #[test]
            fn spf_srcu() {
                run::<SpfSrcu<Rwsem<Native>>>();
            }

            #[test]
            fn spf_v9() {
                run::<SpfV9<Rwsem<Native>>>();
            }

            #[test]
            fn spf_v11() {
                run::<SpfV11<Rwsem<Native>>>();
            }

            #[test]
            fn vma_lock() {
                run::<VmaLock<Rwsem<Native>>>();
            }

            #[test]
            fn faultless_queued() {
                run::<FaultlessQueued<Rwsem<Native>>>();
            }

            #[test]
            fn faultless() {
                run::<Faultless<Rwsem<Native>>>();
            }
        }
    };
}
