//! What the running kernel is, as far as the probes and the formula need to know it.
//!
//! ```text
//! BTF bytes -> btf::Btf -> layout::resolve    -> SockLayout   where the probes find each member
//!                       -> generation::detect -> Generation   which formula the kernel runs
//! ```
//!
//! Nothing here does I/O: whoever starts the daemon reads `/sys/kernel/btf/vmlinux`, resolves from it,
//! and drops its bytes.

pub mod btf;
pub mod generation;
pub mod layout;

#[cfg(test)]
mod synthetic;
