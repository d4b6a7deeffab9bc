//! autotune

#![forbid(unsafe_code)]

pub mod kernel;
