//! autotune watches the Linux kernel tune TCP receive buffers and checks every growth against the
//! kernel's own formula.
//!
//! Data takes one path:
//!
//! ```text
//! tracepoint -> probe (autotune-ebpf) -> Sample (autotune-common) -> ring buffer
//!   -> source -> flow table -> formula -> verdict -> sinks
//! ```
//!
//! In the order of that path:
//!
//! - [`kernel`]: what the running kernel is: where it keeps what the probes read, which formula it runs,
//!   whether it lets us observe
//! - [`probe`]: loads, attaches and asks the probes
//! - [`source`]: where samples come from
//! - [`observe`]: the flow table and the verdict, pure
//! - [`sink`]: metrics and the growth log
//! - [`serve`]: what is served over HTTP
//! - [`cli`]: the commands, thin callers of all this

#![deny(unsafe_code)]

pub mod cli;
pub mod exit;
pub mod kernel;
pub mod observe;
pub mod probe;
pub mod serve;
pub mod sink;
pub mod source;
