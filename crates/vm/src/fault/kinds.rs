//! A fault by value, and how it was handled.

use crate::access::Access;
use crate::addr::VirtAddr;

/// An access that the page tables did not allow: [`Design::fault`](crate::design::Design::fault) is called with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fault {
    /// The address.
    pub address: VirtAddr,
    /// What was tried.
    pub access: Access,
    /// Whether the entry was present, and forbade it.
    pub is_present: bool,
}

/// How a fault was handled: a [`Design::fault`](crate::design::Design::fault) returns it, [`FaultsTaken`](crate::FaultsTaken)
/// counts it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Handled {
    /// Without the address-space lock.
    Speculative,
    /// Under it.
    Classic,
}
