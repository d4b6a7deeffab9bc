//! What the daemon serves.

pub mod http;
