//! autotune
