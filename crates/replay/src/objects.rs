//! Files and shared memory, as objects of the instance.
//!
//! # Guarantee
//! What is mapped more than once is one object from the first pass event to the last; what is mapped once goes with its
//! last mapping, as unnamed memory does.

use faultless_phys::OutOfFrames;
use faultless_platform::Platform;
use faultless_vm::design::Design;
use faultless_vm::{ObjectHandle, ObjectSpec, Vm, WriteNotice, ZeroSource};

use super::content::FileContent;
use faultless_plan::ObjectPlan;
use faultless_plan::ids::ObjectIndex;

/// The objects of a pass.
pub(super) struct Objects<'vm, P: Platform, D: Design<P>> {
    vm: &'vm Vm<P, D>,
    plans: &'vm [ObjectPlan],
    kept: Vec<Option<ObjectHandle<'vm, P>>>,
}

/// An object for one call.
pub(super) enum Lent<'a, 'vm, P: Platform> {
    /// One that is kept.
    Kept(&'a ObjectHandle<'vm, P>),
    /// One that was made for this call, and lives on in its mapping.
    Fresh(ObjectHandle<'vm, P>),
}

impl<'vm, P: Platform> Lent<'_, 'vm, P> {
    /// Returns the object.
    pub(super) fn handle(&self) -> &ObjectHandle<'vm, P> {
        match self {
            Lent::Kept(handle) => handle,
            Lent::Fresh(handle) => handle,
        }
    }
}

impl<'vm, P: Platform, D: Design<P>> Objects<'vm, P, D> {
    /// Makes the objects that are kept.
    pub(super) fn new(vm: &'vm Vm<P, D>, plans: &'vm [ObjectPlan]) -> Result<Self, OutOfFrames> {
        let make = |(place, plan): (usize, &ObjectPlan)| match plan.nr_maps {
            0 | 1 => Ok(None),
            _ => vm.create_object(&spec(place, plan)).map(Some),
        };
        let kept = plans.iter().enumerate().map(make).collect::<Result<_, _>>()?;
        Ok(Self { vm, plans, kept })
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
