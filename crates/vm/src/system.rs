//! What an address space is made of: a platform, with its frames and its page tables.
//!
//! # Guarantee
//! [`System`] is all that this crate asks of its embedder, as a type: everything that depends on it is compiled for it.
//! A platform names its [`Embedding`]; [`Usual`] takes [`phys`' memory](faultless_phys::Memory) and x86-64's tables.

use faultless_phys::{FrameSource, Memory};
use faultless_platform::{Platform, Usual};

/// What a name for [`Platform::Embedding`] means on a platform.
///
/// An embedder with frames or tables of its own writes a type, implements this for it, and names it in its platform:
/// ```
/// use faultless_phys::Memory;
/// use faultless_platform::Platform;
/// use faultless_vm::{Embedding, X86_64};
///
/// struct Mine;
///
/// impl<P: Platform> Embedding<P> for Mine {
///     type Frames = Memory<P>;
/// }
/// ```
pub trait Embedding<P: Platform>: 'static {
    /// Where frames come from.
    type Frames: FrameSource<P>;
}

impl<P: Platform> Embedding<P> for Usual {
    type Frames = Memory<P>;
}

/// A platform whose frames and page tables this crate knows; never implemented by hand.
pub trait System: Platform {
    /// Where frames come from.
    type Frames: FrameSource<Self>;
}

impl<P: Platform<Embedding: Embedding<P>>> System for P {
    type Frames = <P::Embedding as Embedding<P>>::Frames;
}
