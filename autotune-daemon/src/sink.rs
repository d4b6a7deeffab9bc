//! Where findings go.

pub mod growth_log;
pub mod growth_writer;
pub mod metrics;
