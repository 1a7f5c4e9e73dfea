//! A line of the area list, as Linux prints it.

use crate::addr::PageRange;
use crate::view::AreaFlags;
use core::fmt::{self, Write as _};

/// One line of the list.
///
/// ```
/// use faultless_vm::{AreaFlags, AreaLine, PAGE, Space};
/// # use faultless_phys::{Memory, Options};
/// # use faultless_platform::native::{HostRegion, Machine, Native};
/// # let region = HostRegion::reserve(64 << 20)?;
/// # Machine::new(2).attach(|| {
/// #     // SAFETY: the region is zeroed, ours alone, and outlives the instance.
/// #     let memory = unsafe { Memory::<Native>::new(region.base(), region.len_bytes(), 2, Options::default()) }?;
/// #     let vm = faultless_vm::Vm::<Native>::new(memory)?;
/// #     let space = vm.create_space(faultless_vm::Limits::default())?;
/// #     let guest = faultless_vm::Guest::new(&space);
/// #     let map = |len_bytes, protection| {
/// #         space.mmap(&faultless_vm::MapRequest {
/// #             placement: faultless_vm::Placement::Anywhere,
/// #             len_bytes,
/// #             protection,
/// #             options: faultless_vm::MapOptions::empty(),
/// #             backing: faultless_vm::Backing::Anonymous,
/// #             populate: faultless_vm::Populate::OnFault,
/// #         })
/// #     };
/// #     let both = faultless_vm::Protection::READ | faultless_vm::Protection::WRITE;
/// map(PAGE, both)?;
/// let mut lines: Vec<AreaLine> = Vec::new();
/// let space: &Space<Native> = &space;
/// space.for_each_area(|line| lines.push(line));
/// assert!(lines[0].flags.contains(AreaFlags::WRITE) && !lines[0].has_object);
/// // As /proc/PID/maps has it.
/// assert!(lines[0].to_string().contains("rw-p 00000000 00:00 0"));
/// #     Ok::<(), Box<dyn std::error::Error>>(())
/// # })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AreaLine {
    /// Where it is.
    pub range: PageRange,
    /// What it is and allows.
    pub flags: AreaFlags,
    /// Page offset of its first page.
    pub page_offset: u64,
    /// Whether an object stands behind it.
    pub has_object: bool,
    /// The name of the object behind it, as its maker gave it.
    pub identity: Option<u64>,
    /// Whether untouched pages read as a reference page.
    pub is_reference: bool,
    /// Whether the heap lies in it.
    pub is_heap: bool,
}

/// Column in which Linux begins the name.
const NAME_COLUMN: usize = 73;

/// Writes on, and counts.
struct CountedText<'a, 'b> {
    out: &'a mut fmt::Formatter<'b>,
    len: usize,
}

impl fmt::Write for CountedText<'_, '_> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.len += text.len();
        self.out.write_str(text)
    }
}

impl AreaLine {
    /// Returns the name at the line's end.
    fn name(&self) -> Option<&'static str> {
        match () {
            () if self.is_reference => Some("anon_inode:[refpage]"),
            () if self.is_heap => Some("[heap]"),
            () => None,
        }
    }
}

impl fmt::Display for AreaLine {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mark = |flag, letter| if self.flags.contains(flag) { letter } else { '-' };
        let kind = if self.flags.contains(AreaFlags::SHARED) { 's' } else { 'p' };
        let (read, write, execute) =
            (mark(AreaFlags::READ, 'r'), mark(AreaFlags::WRITE, 'w'), mark(AreaFlags::EXEC, 'x'));
        let offset =
            if self.has_object || self.is_reference { self.page_offset.wrapping_mul(crate::addr::PAGE) } else { 0 };
        let mut line = CountedText { out, len: 0 };
        write!(line, "{:08x}-{:08x} {read}{write}{execute}{kind} {offset:08x} ", self.range.start(), self.range.end())?;
        write!(line, "00:00 {} ", self.identity.unwrap_or(0))?;
        let padding = NAME_COLUMN.saturating_sub(line.len);
        match self.name() {
            Some(name) => write!(out, "{:padding$}{name}", ""),
            None => Ok(()),
        }
    }
}
