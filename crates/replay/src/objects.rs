//! Files and shared memory, as objects of the instance.
//!
//! # Guarantee
//! What is mapped more than once is one object from the first pass event to the last; what is mapped once goes with its
//! last mapping, as unnamed memory does.

use faultless_phys::OutOfFrames;
use faultless_platform::{Platform, Usual};
use faultless_vm::design::Design;
use faultless_vm::{Backing, ObjectHandle, ObjectSpec, Pattern, ReferenceHandle, Vm, WriteNotice, ZeroSource};

use super::content::FileContent;
use faultless_pass::patterned::{Filling, Way};
use faultless_plan::ObjectPlan;
use faultless_plan::ids::ObjectIndex;

/// The objects of a pass.
pub(super) struct Objects<'vm, P: Platform<Embedding = Usual>, D: Design<P>> {
    vm: &'vm Vm<P, D>,
    plans: &'vm [ObjectPlan],
    kept: Vec<Option<ObjectHandle<'vm, P>>>,
    filling: Option<Filling>,
    /// The reference page that all mappings share, if they are to.
    reference: Option<ReferenceHandle<'vm, P>>,
}

/// An object for one call.
pub(super) enum Lent<'a, 'vm, P: Platform<Embedding = Usual>> {
    /// One that is kept.
    Kept(&'a ObjectHandle<'vm, P>),
    /// One that was made for this call, and lives on in its mapping.
    Fresh(ObjectHandle<'vm, P>),
}

impl<'vm, P: Platform<Embedding = Usual>> Lent<'_, 'vm, P> {
    /// Returns the object.
    pub(super) fn handle(&self) -> &ObjectHandle<'vm, P> {
        match self {
            Lent::Kept(handle) => handle,
            Lent::Fresh(handle) => handle,
        }
    }
}

impl<'vm, P: Platform<Embedding = Usual>, D: Design<P>> Objects<'vm, P, D> {
    /// Makes the objects that are kept.
    pub(super) fn new(
        vm: &'vm Vm<P, D>,
        plans: &'vm [ObjectPlan],
        filling: Option<Filling>,
    ) -> Result<Self, OutOfFrames> {
        let make = |(place, plan): (usize, &ObjectPlan)| match plan.nr_maps {
            0 | 1 => Ok(None),
            _ => vm.create_object(&spec(place, plan)).map(Some),
        };
        let kept = plans.iter().enumerate().map(make).collect::<Result<_, _>>()?;
        let is_refpage = filling.filter(|filling| filling.way == Way::Refpage);
        let make = |filling: Filling| vm.create_repeated(Pattern::Byte(filling.what.byte));
        let reference = is_refpage.map(make).transpose()?;
        Ok(Self { vm, plans, kept, filling, reference })
    }

    /// Returns what mappings start as, if not as zeros.
    pub(super) fn filling(&self) -> Option<Filling> {
        self.filling
    }

    /// Returns what stands behind an anonymous mapping that starts at an address; neighbours continue each other.
    pub(super) fn untouched(&self, filling: Option<Filling>, start: u64) -> Backing<'_, P> {
        match (filling.map(|filling| filling.way), &self.reference) {
            (Some(Way::Refpage), Some(handle)) => Backing::Reference(handle, start),
            (Some(Way::Pattern), _) => {
                filling.map_or(Backing::Anonymous, |filling| Backing::Pattern(Pattern::Byte(filling.what.byte)))
            }
            _ => Backing::Anonymous,
        }
    }

    /// Returns an object to map.
    pub(super) fn get(&self, object: ObjectIndex) -> Result<Lent<'_, 'vm, P>, OutOfFrames> {
        let place = object as usize;
        match &self.kept[place] {
            Some(handle) => Ok(Lent::Kept(handle)),
            None => self.vm.create_object(&spec(place, &self.plans[place])).map(Lent::Fresh),
        }
    }
}

/// Returns how an object is made; its place is its identity.
fn spec(place: usize, plan: &ObjectPlan) -> ObjectSpec {
    // As long as it can be: where a file ended at the time is not recorded, and no recorded access was a bus error.
    let size_bytes = u64::MAX;
    let identity = place as u64;
    if plan.is_memory {
        ObjectSpec { identity, size_bytes, source: &ZeroSource, write_notice: WriteNotice::None }
    } else {
        ObjectSpec { identity, size_bytes, source: &FileContent, write_notice: WriteNotice::Fault }
    }
}
