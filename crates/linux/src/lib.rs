//! All that talks to the host.
