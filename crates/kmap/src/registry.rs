//! The schemes by name.

use faultless_platform::Platform;

use crate::Scheme;
use crate::own::{Atomic, Local, PercpuPinned};
use crate::pool::{PerProcess, Pool, PoolHalves, PoolInvlpg, PoolLazy};

/// Does something with a scheme; compiled once for each.
pub trait SchemeVisitor<P: Platform> {
    /// What comes of it.
    type Output;
    /// Called with the scheme as the type parameter.
    fn visit<S: Scheme<P>>(self) -> Self::Output;
}

macro_rules! schemes {
    ($($name:literal => $scheme:ident),* $(,)?) => {
        /// The names, the oldest scheme first.
        pub const SCHEMES: &[&str] = &[$($name),*];

        /// Calls the visitor with the scheme of that name; nothing if there is none.
        pub fn with_scheme<P: Platform, V: SchemeVisitor<P>>(name: &str, visitor: V) -> Option<V::Output> {
            match name {
                $($name => {
                    const { assert!(is_same(<$scheme<P> as Scheme<P>>::NAME, $name)) };
                    Some(visitor.visit::<$scheme<P>>())
                })*
                _ => None,
            }
        }
    };
}

/// Says whether the maps of the scheme of that name sleep until there is a slot; nothing if there is none.
pub fn map_sleeps<P: Platform>(name: &str) -> Option<bool> {
    struct Sleeps;
    impl<P: Platform> SchemeVisitor<P> for Sleeps {
        type Output = bool;
        fn visit<S: Scheme<P>>(self) -> bool {
            S::MAP_SLEEPS
        }
    }
    with_scheme::<P, _>(name, Sleeps)
}

/// Says whether threads may sleep while they hold maps of the scheme of that name; nothing if there is none.
pub fn may_sleep<P: Platform>(name: &str) -> Option<bool> {
    struct MaySleep;
    impl<P: Platform> SchemeVisitor<P> for MaySleep {
        type Output = bool;
        fn visit<S: Scheme<P>>(self) -> bool {
            S::MAY_SLEEP
        }
    }
    with_scheme::<P, _>(name, MaySleep)
}

const fn is_same(one: &str, other: &str) -> bool {
    let (one, other) = (one.as_bytes(), other.as_bytes());
    let mut place = 0;
    while place < one.len() && place < other.len() && one[place] == other[place] {
        place += 1;
    }
    place == one.len() && place == other.len()
}

schemes! {
    "pool" => Pool,
    "pool-halves" => PoolHalves,
    "pool-lazy" => PoolLazy,
    "pool-invlpg" => PoolInvlpg,
    "atomic" => Atomic,
    "percpu-pinned" => PercpuPinned,
    "per-process" => PerProcess,
    "local" => Local,
}
