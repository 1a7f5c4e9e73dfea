//! Pages of memory that starts out as something else than zeros: reference areas, and areas with a pattern.
//!
//! | area | load, fetch | store |
//! |---|---|---|
//! | reference | the reference page, read-only, special: not counted | a frame of its own with the page's content |
//! | reference, shared and writable (forced: mmap makes none) | a bus error | a bus error |
//! | pattern | a frame of its own with the pattern | the same |
//!
//! A store to a reference page that a load had mapped comes by `copy`, and gets its content here.
//!
//! The reference page is the area's own, which holds it: an entry that a walk saw may be another area's by the time.

#[cfg(feature = "mutants")]
use super::known;
use super::untouched::no_page;
use super::{EntryLock, PageFault, Stop, anonymous};
use crate::entry::{Entry, EntryFlags};
use crate::reference::ReferenceRef;
use crate::system::System;
use crate::view::AreaFlags;
use faultless_platform::mutant;

/// Fills an empty entry of a reference area.
pub(super) fn fill<P: System>(
    page: &PageFault<'_, P>,
    lock: &impl EntryLock<P>,
    reference: &ReferenceRef<P>,
) -> Result<(), Stop> {
    if is_forced(page) {
        return Err(no_page(page));
    }
    if page.fault.access.is_write() {
        return anonymous::make_private(page, lock);
    }
    let entry = Entry::new(reference.page(), page.view.read_only_entry() | EntryFlags::SPECIAL);
    mutant!(ReferencePageCounted => return known::map_counted(page, lock, entry));
    page.install(lock, mutant!(ReferenceZeroAfterDontNeed, entry => known::zero_once_touched(page, entry)))?;
    Ok(())
}

/// Says whether the page is one of a shared writable reference area.
fn is_forced<P: System>(page: &PageFault<'_, P>) -> bool {
    page.view.flags & (AreaFlags::SHARED | AreaFlags::DENY_WRITE) == AreaFlags::SHARED
}

#[cfg(test)]
mod tests {
    use crate::addr::{AddressRange, VirtAddr};
    use crate::design::{Design, GenerationOf};
    use crate::registry::{DESIGNS, DesignVisitor, with_design};
    use crate::{
        AccessError, Advice, AreaFlags, AreaView, Backing, CallError, Guest, Limits, MapRequest, PAGE, Pattern,
        Placement, Populate, Signal, Vm,
    };
    use faultless_phys::{Memory, Options};
    use faultless_platform::native::{HostRegion, Machine, Native};

    const START: u64 = 0x1000_0000;

    /// Makes a shared reference area writable, which no call does.
    fn force<D: Design<Native>>(guest: &Guest<'_, Native, D>) {
        let found = guest.space().index().containing(START).expect("mapped");
        // SAFETY: nobody else uses the space.
        let area = unsafe { found.area.as_ref() };
        let view = area.view();
        let flags = (view.flags | AreaFlags::WRITE) - AreaFlags::DENY_WRITE;
        let _announced = area.announce_change(guest.space());
        area.set(&AreaView { flags, ..view });
    }

    fn bus_errors<D: Design<Native>>(semaphore: GenerationOf<Native, D>) {
        let region = HostRegion::reserve(16 << 20).expect("the host has room");
        Machine::new(1).attach(|| {
            // SAFETY: the region is zeroed, ours alone, and outlives the instance.
            let memory = unsafe { Memory::new(region.base(), region.len_bytes(), 1, Options::default()) };
            let vm = Vm::<Native, D>::with_semaphore(memory.expect("large enough"), semaphore).expect("room");
            let handle = vm.create_repeated(Pattern::Byte(7)).expect("room");
            let space = vm.create_space(Limits::default()).expect("room");
            let request = MapRequest {
                placement: Placement::Fixed(VirtAddr::new(START)),
                len_bytes: 2 * PAGE,
                protection: (AreaFlags::READ | AreaFlags::SHARED).protection(),
                options: (AreaFlags::READ | AreaFlags::SHARED).options(),
                backing: Backing::Reference(&handle, 0),
                populate: Populate::OnFault,
            };
            space.mmap(&request).expect("room");
            // Two users: faults of the series' designs are speculative.
            let (guest, _other) = (Guest::new(&space), Guest::new(&space));
            guest.load(VirtAddr::new(START)).expect("mapped");
            force(&guest);
            let bus_error = |address| Err(AccessError::NoPage { address });
            assert_eq!(
                guest.load(VirtAddr::new(START + PAGE)).map(drop),
                bus_error(VirtAddr::new(START + PAGE)),
                "{}",
                D::NAME
            );
            assert_eq!(guest.store(VirtAddr::new(START + PAGE), 1).map(drop), bus_error(VirtAddr::new(START + PAGE)));
            assert_eq!(
                guest.store(VirtAddr::new(START), 1).map(drop),
                bus_error(VirtAddr::new(START)),
                "the page is mapped to be read"
            );
            let signal = AccessError::NoPage { address: VirtAddr::new(START) }.signal();
            assert_eq!(signal, Some(Signal::BusAdrErr { address: VirtAddr::new(START) }));
            let populated = space.madvise(AddressRange::new(VirtAddr::new(START), 2 * PAGE), Advice::PopulateWrite);
            assert_eq!(populated, Err(CallError::NoPage { address: VirtAddr::new(START) }));
            assert!(handle.is_intact(vm.memory()));
        });
    }

    struct BusErrors;

    impl DesignVisitor<Native> for BusErrors {
        type Output = ();
        fn visit<D: Design<Native>>(self, semaphore: GenerationOf<Native, D>) {
            bus_errors::<D>(semaphore);
        }
    }

    #[test]
    fn a_shared_writable_reference_area_gives_bus_errors() {
        for design in DESIGNS {
            with_design::<Native, _>(design, "rwsem-v8", BusErrors).expect("registered");
        }
    }
}
