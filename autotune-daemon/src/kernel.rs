//! What the running kernel is, as far as the probes and the formula need to know it.
//!
//! ```text
//! BTF bytes -> btf::Btf -> layout::resolve    -> SockLayout   where the probes find each member
//!                       -> generation::detect -> Generation   which formula the kernel runs
//! ```
//!
//! [`running`] reads the running kernel's BTF and puts the two together; [`preflight`] checks whether the
//! kernel and this process can observe. Nothing else here does I/O.

pub mod btf;
pub mod generation;
pub mod layout;
pub mod preflight;
pub mod running;

#[cfg(test)]
mod synthetic;
