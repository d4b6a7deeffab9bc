//! What both sides of the kernel boundary agree on.
//!
//! - [`sample`]: [`Sample`], one reading of one socket, as the probes write it and the daemon reads it
//! - [`layout`]: [`SockMember`] and [`SockLayout`], which kernel struct members the probes read and where they are
//! - [`formula`]: [`Generation`] and [`GrowthInput`], the kernel's growth arithmetic, integer for integer
//! - [`counters`]: [`ProbeCounter`], what the probes count
//! - [`window`]: conversions between buffer space and window
//!
//! This crate is pure: no clock, no I/O, no allocation, no dependency.

#![no_std]
#![forbid(unsafe_code)]

#[cfg(test)]
extern crate std;

pub mod counters;
pub mod formula;
pub mod layout;
pub mod sample;
pub mod window;

pub use counters::ProbeCounter;
pub use formula::{Expected, Generation, GrowError, GrowthInput, Outcome};
pub use layout::{SockLayout, SockMember};
pub use sample::{Sample, SampleKind};
