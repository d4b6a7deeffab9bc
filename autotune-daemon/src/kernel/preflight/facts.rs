//! What the checks look at, gathered in one place.

use std::{
    io,
    path::{Path, PathBuf},
};

use super::parse;
use crate::kernel::running::{self, KernelError, Survey};

/// The text of a small file, or why it cannot be read.
pub type Text = Result<String, io::ErrorKind>;

/// What the checks look at.
#[derive(Debug)]
pub struct Facts {
    /// `uname -r`.
    pub release: String,
    /// The file that the BTF was taken from.
    pub btf: PathBuf,
    /// What the BTF says.
    pub kernel: Result<Survey, KernelError>,
    /// Bytes in a page.
    pub page_size: u64,
    /// `RLIMIT_MEMLOCK`, bytes; `u64::MAX` is no limit.
    pub memlock: Option<u64>,
    /// `/proc/self/status`.
    pub status: Text,
    /// `/proc/self/uid_map`.
    pub uid_map: Text,
    /// Target of `/proc/self/ns/net`.
    pub net_namespace: Text,
    /// `/sys/kernel/security/lockdown`.
    pub lockdown: Text,
    /// `/proc/self/mounts`.
    pub mounts: Text,
    /// Whether `events/tcp` can be seen in the tracefs that `mounts` has.
    pub tcp_events: Result<(), io::ErrorKind>,
    /// Whether `events/tcp/tcp_rcvbuf_grow` can be seen there.
    pub grow_event: Result<(), io::ErrorKind>,
    /// `net.core.bpf_jit_enable`.
    pub bpf_jit_enable: Text,
    /// `kernel.bpf_stats_enabled`.
    pub bpf_stats_enabled: Text,
    /// `net.ipv4.tcp_rmem`.
    pub tcp_rmem: Text,
    /// `net.ipv4.tcp_window_scaling`.
    pub tcp_window_scaling: Text,
    /// `net.ipv4.tcp_moderate_rcvbuf`.
    pub tcp_moderate_rcvbuf: Text,
    /// `net.ipv4.tcp_rcvbuf_low_rtt`.
    pub tcp_rcvbuf_low_rtt: Text,
    /// `net.ipv4.tcp_shrink_window`.
    pub tcp_shrink_window: Text,
    /// `net.ipv4.tcp_mem`.
    pub tcp_mem: Text,
    /// `net.core.rmem_max`.
    pub rmem_max: Text,
}

impl Facts {
    /// Reads everything. What cannot be read is told by its check.
    #[must_use]
    pub fn gather(btf: &Path) -> Self {
        let mounts = text("/proc/self/mounts");
        let events = mounts
            .as_deref()
            .ok()
            .and_then(parse::tracefs)
            .map(|tracefs| Path::new(&tracefs).join("events/tcp"));
        let seen = |path: Option<PathBuf>| {
            let path = path.ok_or(io::ErrorKind::NotFound)?;
            std::fs::metadata(path).map(drop).map_err(|error| error.kind())
        };
        Self {
            release: running::release(),
            btf: btf.to_owned(),
            kernel: Survey::read(btf),
            page_size: procfs::page_size(),
            memlock: memlock(),
            status: text("/proc/self/status"),
            uid_map: text("/proc/self/uid_map"),
            net_namespace: std::fs::read_link("/proc/self/ns/net")
                .map(|target| target.to_string_lossy().into_owned())
                .map_err(|error| error.kind()),
            lockdown: text("/sys/kernel/security/lockdown"),
            tcp_events: seen(events.clone()),
            grow_event: seen(events.map(|events| events.join("tcp_rcvbuf_grow"))),
            mounts,
            bpf_jit_enable: text("/proc/sys/net/core/bpf_jit_enable"),
            bpf_stats_enabled: text("/proc/sys/kernel/bpf_stats_enabled"),
            tcp_rmem: text("/proc/sys/net/ipv4/tcp_rmem"),
            tcp_window_scaling: text("/proc/sys/net/ipv4/tcp_window_scaling"),
            tcp_moderate_rcvbuf: text("/proc/sys/net/ipv4/tcp_moderate_rcvbuf"),
            tcp_rcvbuf_low_rtt: text("/proc/sys/net/ipv4/tcp_rcvbuf_low_rtt"),
            tcp_shrink_window: text("/proc/sys/net/ipv4/tcp_shrink_window"),
            tcp_mem: text("/proc/sys/net/ipv4/tcp_mem"),
            rmem_max: text("/proc/sys/net/core/rmem_max"),
        }
    }
}

fn text(path: &str) -> Text {
    std::fs::read(path)
        .map(|bytes| String::from_utf8_lossy(&bytes).into_owned())
        .map_err(|error| error.kind())
}

fn memlock() -> Option<u64> {
    use nix::sys::resource::{Resource, getrlimit};
    getrlimit(Resource::RLIMIT_MEMLOCK).ok().map(|(soft, _)| soft)
}
