//! autotune
fn main() {}
