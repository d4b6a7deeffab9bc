//! Samples from the probes' ring buffer.
//!
//! The kernel wakes a reader that had caught up, which costs more than a microsecond in the traced
//! path. So the reader rests after each wake-up and then drains what came in the meantime: a busy host
//! costs some hundred wake-ups a second, an idle one none.

use std::{io, time::Duration};

use autotune_common::{Sample, sample::DecodeError};
use aya::maps::{MapData, RingBuf};
use tokio::io::{Interest, unix::AsyncFd};

/// Bytes that the kernel puts before each record (`BPF_RINGBUF_HDR_SZ`).
const RECORD_HEADER: usize = 8;

/// The reading end of the ring buffer.
#[derive(derive_more::Debug)]
pub struct SampleRing {
    #[debug(skip)]
    ring: AsyncFd<RingBuf<MapData>>,
    rest: Duration,
}

/// What one [`SampleRing::drain`] did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Drained {
    /// Records taken, undecodable ones included.
    pub records: usize,
    /// Room they took in the ring, bytes.
    pub bytes: usize,
    /// The limit was reached, so that there may be more.
    pub more: bool,
}

impl SampleRing {
    pub(crate) fn new(ring: RingBuf<MapData>, rest: Duration) -> io::Result<Self> {
        #[expect(unsafe_code, reason = "tokio asks for a promise about the descriptor")]
        // SAFETY: the RingBuf owns its map's descriptor for its whole life, and neither closes it nor
        // hands out another.
        let ring = unsafe { AsyncFd::register_with_interest(ring, Interest::READABLE) };
        Ok(Self { ring: ring.map_err(io::Error::from)?, rest })
    }

    /// Waits until there is something to drain, and then lets more come: for the rest, or until the
    /// probes say that the ring is filling up. Can be dropped and called again at any time, if a drain
    /// follows.
    ///
    /// # Errors
    /// When the descriptor cannot be polled.
    pub async fn ready(&self) -> io::Result<()> {
        self.ring.readable().await?.clear_ready();
        tokio::select! {
            () = tokio::time::sleep(self.rest) => {}
            // Left set, so that the next call comes back at once and sees the ring empty.
            filling_up = self.ring.readable() => filling_up?.retain_ready(),
        }
        Ok(())
    }

    /// Takes at most `limit` records, oldest first.
    pub fn drain(
        &mut self,
        limit: usize,
        mut take: impl FnMut(Result<Sample, DecodeError>),
    ) -> Drained {
        let ring = self.ring.get_mut();
        let mut drained = Drained::default();
        while drained.records < limit {
            let Some(record) = ring.next() else { return drained };
            drained.records += 1;
            drained.bytes += (RECORD_HEADER + record.len()).next_multiple_of(RECORD_HEADER);
            take(Sample::decode(&record));
        }
        drained.more = true;
        drained
    }
}
