//! What each page of an object holds: the last store that reached it, and who looked at it since.
//!
//! # Guarantee
//! Two accesses to a page of an object, in whatever spaces, keep their planned order if one of them is a store that
//! reaches the object. So what the page holds before each access is known, and a replay can check it as it does for
//! private memory.
//!
//! Loads do not wait for each other, so a page that nobody stores to costs no waits.
//! ```text
//! space 1   store A ------ load ------------ store B
//! space 2          \ load (reads A) ------- / |
//! space 3            load (reads A) -------/  ' load (reads B)
//! ```

use rustc_hash::FxHashMap;

use super::edges::Wait;
use super::ids::{EventIndex, ObjectIndex};

/// A page of an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ObjectPage {
    /// The object.
    pub object: ObjectIndex,
    /// Which page of it.
    pub page_index: u32,
}

/// A store that reached an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stored {
    /// The event that it replays.
    pub event: EventIndex,
    /// Which of the page's words it wrote.
    pub word: u16,
    /// Its step.
    pub step: Wait,
}

#[derive(Clone, Debug, Default)]
struct Known {
    store: Option<Stored>,
    /// Who loaded since.
    loads: Vec<Wait>,
}

/// The pages of all objects.
#[derive(Clone, Debug, Default)]
pub struct Contents {
    pages: FxHashMap<ObjectPage, Known>,
}

impl Contents {
    /// Returns the last store into a page.
    pub fn stored(&self, page: ObjectPage) -> Option<Stored> {
        self.pages.get(&page)?.store
    }

    /// Collects what a load of the page must wait for.
    pub fn await_for_load(&self, page: ObjectPage, waits: &mut Vec<Wait>) {
        waits.extend(self.stored(page).map(|stored| stored.step));
    }

    /// Collects what a store into the page must wait for.
    pub fn await_for_store(&self, page: ObjectPage, waits: &mut Vec<Wait>) {
        self.await_for_load(page, waits);
        waits.extend(self.pages.get(&page).iter().flat_map(|known| &known.loads));
    }

    /// Notes a load.
    pub fn load(&mut self, page: ObjectPage, step: Wait) {
        let loads = &mut self.pages.entry(page).or_default().loads;
        // A thread's last step implies its earlier ones.
        loads.retain(|load| load.thread != step.thread);
        loads.push(step);
    }

    /// Notes a store.
    pub fn store(&mut self, page: ObjectPage, stored: Stored) {
        self.pages.insert(page, Known { store: Some(stored), loads: Vec::new() });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAGE: ObjectPage = ObjectPage { object: 3, page_index: 7 };

    fn step(thread: u32, step: u32) -> Wait {
        Wait { thread, step }
    }

    fn store(event: EventIndex, step: Wait) -> Stored {
        Stored { event, word: 5, step }
    }

    #[test]
    fn a_store_waits_for_all_before_it_and_a_load_for_the_last_store() {
        let mut contents = Contents::default();
        let for_load = |contents: &Contents| {
            let mut waits = Vec::new();
            contents.await_for_load(PAGE, &mut waits);
            waits
        };
        let for_store = |contents: &Contents| {
            let mut waits = Vec::new();
            contents.await_for_store(PAGE, &mut waits);
            waits
        };
        contents.load(PAGE, step(0, 1));
        contents.load(PAGE, step(1, 4));
        contents.load(PAGE, step(0, 2));
        assert_eq!(for_load(&contents), []);
        assert_eq!(for_store(&contents), [step(1, 4), step(0, 2)], "the later load of a thread implies the earlier");
        contents.store(PAGE, store(9, step(2, 1)));
        contents.load(PAGE, step(1, 6));
        assert_eq!(for_load(&contents), [step(2, 1)]);
        assert_eq!(for_store(&contents), [step(2, 1), step(1, 6)]);
        assert_eq!(contents.stored(PAGE), Some(store(9, step(2, 1))));
        assert_eq!(contents.stored(ObjectPage { page_index: 8, ..PAGE }), None);
    }
}
