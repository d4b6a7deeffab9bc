//! Where samples come from.

pub mod ring;
