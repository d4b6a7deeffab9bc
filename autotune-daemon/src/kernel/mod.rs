//! What the running kernel is, as far as the probes and the formula need to know it.
//!
//! ```text
//! BTF bytes -> btf::Btf -> layout::resolve    -> SockLayout   where the probes find each member
//! ```
//!
//! Nothing here does I/O: whoever starts the daemon reads `/sys/kernel/btf/vmlinux`, resolves from it,
//! and drops its bytes.

pub mod btf;
pub mod layout;

#[cfg(test)]
mod synthetic;
