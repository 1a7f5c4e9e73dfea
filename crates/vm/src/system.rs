//! What an address space is made of: a platform, with its frames and its page tables.
//!
//! # Guarantee
//! [`System`] is all that this crate asks of its embedder, as a type: everything that depends on it is compiled for it.
//! A platform names its [`Embedding`]; [`Usual`] takes [`phys`' memory](faultless_phys::Memory) and x86-64's tables.

use crate::addr::PageRange;
use crate::format::{TableFormat, X86_64};
use crate::tlb::SpaceId;
use faultless_phys::{FrameSource, Memory, Pfn};
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
///     type Format = X86_64;
/// }
/// ```
///
/// # Who calls what
/// | callers | functions |
/// |---|---|
/// | a new space | `share_root` |
/// | a CPU that serves a shootdown, or leaves a space | `flush` |
/// | a shootdown that chooses whom to wait for | `WAITS_FOR_LOADED` |
pub trait Embedding<P: Platform>: 'static {
    /// Where frames come from.
    type Frames: FrameSource<P>;
    /// How the hardware writes entries.
    type Format: TableFormat;

    /// Fills what all spaces share into a new root, before anybody walks it: a kernel's half. The root's frame is all
    /// zeros; entries of user memory, below [`USER_END`](crate::USER_END), stay so. Nobody touches the others later.
    fn share_root(_frames: &Self::Frames, _root: Pfn) {}

    /// Whether a shootdown must reach every CPU that has a space's tables loaded, in whatever state it is: hardware
    /// walks them at any time. Then the platform's `shoot_down` waits for all targets, and no CPU is taken out of a
    /// space's set but by itself.
    const WAITS_FOR_LOADED: bool = false;

    /// Makes the calling CPU's hardware forget translations of a space: those of a range, or all; of all spaces, if
    /// `space` is 0. Nothing where the only TLB is the library's. Called with interrupts off, or in a wait.
    #[inline(always)]
    fn flush(_space: SpaceId, _range: Option<PageRange>) {}
}

impl<P: Platform> Embedding<P> for Usual {
    type Frames = Memory<P>;
    type Format = X86_64;
}

/// A platform whose frames and page tables this crate knows; never implemented by hand.
///
/// Code that is generic over an instance asks for it; all but the types, `WAITS_FOR_LOADED`, `share_root` and `flush`,
/// is [`Platform`]'s.
///
/// ```
/// use faultless_vm::{CallError, Limits, SpaceRef, System, Vm, design::Design};
///
/// fn two_spaces<P: System, D: Design<P>>(vm: &Vm<P, D>) -> Result<[SpaceRef<'_, P, D>; 2], CallError> {
///     Ok([vm.create_space(Limits::default())?, vm.create_space(Limits::default())?])
/// }
/// ```
pub trait System: Platform {
    /// Where frames come from.
    type Frames: FrameSource<Self>;
    /// How the hardware writes entries.
    type Format: TableFormat;

    /// See [`Embedding::WAITS_FOR_LOADED`], which is asked by way of it.
    const WAITS_FOR_LOADED: bool;

    /// See [`Embedding::share_root`], which is called by way of it.
    fn share_root(frames: &Self::Frames, root: Pfn);
    /// See [`Embedding::flush`], which is called by way of it.
    fn flush(space: SpaceId, range: Option<PageRange>);
}

impl<P: Platform<Embedding: Embedding<P>>> System for P {
    type Frames = <P::Embedding as Embedding<P>>::Frames;
    type Format = <P::Embedding as Embedding<P>>::Format;
    const WAITS_FOR_LOADED: bool = <P::Embedding as Embedding<P>>::WAITS_FOR_LOADED;

    #[inline(always)]
    fn flush(space: SpaceId, range: Option<PageRange>) {
        <P::Embedding as Embedding<P>>::flush(space, range);
    }

    fn share_root(frames: &Self::Frames, root: Pfn) {
        <P::Embedding as Embedding<P>>::share_root(frames, root);
    }
}
