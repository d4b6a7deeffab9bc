//! What the running kernel is, as far as the probes and the formula need to know it.
//!
//! Nothing here does I/O: whoever starts the daemon reads `/sys/kernel/btf/vmlinux`, resolves from it,
//! and drops its bytes.

pub mod btf;

#[cfg(test)]
mod synthetic;
