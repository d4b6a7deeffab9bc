//! Writes the growth log from a thread of its own, so that whoever reads it can neither hold the observer
//! up nor end it. Lines that the reader does not take in time are dropped and counted.

use std::{
    io::Write,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
        mpsc::{self, Receiver, RecvTimeoutError, SyncSender},
    },
    thread,
    time::Duration,
};

use tracing::warn;

/// Batches that may wait for the reader. A batch is what one drain of the ring buffer found.
const WAITING: usize = 1024;

/// The writing end of the growth log.
#[derive(Debug)]
pub struct GrowthWriter {
    batches: SyncSender<Batch>,
    dropped: Arc<AtomicU64>,
    // Behind a lock only to be shared between threads.
    written: Mutex<Receiver<()>>,
}

#[derive(Debug)]
struct Batch {
    text: String,
    lines: u64,
}

impl GrowthWriter {
    /// Writes to `out` from now on.
    ///
    /// # Errors
    /// When no thread can be started.
    pub fn start(out: impl Write + Send + 'static) -> std::io::Result<Self> {
        let (batches, waiting) = mpsc::sync_channel(WAITING);
        let (at_end, written) = mpsc::channel();
        let dropped = Arc::new(AtomicU64::new(0));
        thread::Builder::new().name("growth-log".to_owned()).spawn({
            let dropped = Arc::clone(&dropped);
            move || {
                write_all(out, &waiting, &dropped);
                // Nobody waits if the daemon did not end well.
                let _ = at_end.send(());
            }
        })?;
        Ok(Self { batches, dropped, written: Mutex::new(written) })
    }

    /// Hands over some lines, each with its end.
    pub fn print(&self, text: String, lines: u64) {
        if self.batches.try_send(Batch { text, lines }).is_err() {
            self.dropped.fetch_add(lines, Ordering::Relaxed);
        }
    }

    /// Lines that were not written, because nobody took them in time or writing failed.
    #[must_use]
    pub fn dropped(&self) -> u64 {
        self.dropped.load(Ordering::Relaxed)
    }

    /// Waits until what was handed over is written, but no longer than this.
    pub fn finish(self, patience: Duration) {
        let Self { batches, dropped: _, written } = self;
        drop(batches);
        let written = written.into_inner().unwrap_or_else(PoisonError::into_inner);
        if written.recv_timeout(patience) == Err(RecvTimeoutError::Timeout) {
            warn!("the growth log's reader does not read: its last lines are lost");
        }
    }
}

fn write_all(mut out: impl Write, batches: &Receiver<Batch>, dropped: &AtomicU64) {
    let mut failed = false;
    for Batch { text, lines } in batches {
        if !failed {
            match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
                Ok(()) => continue,
                Err(error) => {
                    warn!("the growth log cannot be written and ends here: {error}");
                    failed = true;
                }
            }
        }
        dropped.fetch_add(lines, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use std::{io, time::Instant};

    use super::*;

    #[derive(Clone, Default)]
    struct Shared(Arc<Mutex<Vec<u8>>>);

    impl Write for Shared {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap_or_else(PoisonError::into_inner).write(bytes)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    /// Takes nothing, ever.
    struct Stuck;

    impl Write for Stuck {
        fn write(&mut self, _: &[u8]) -> io::Result<usize> {
            loop {
                thread::park();
            }
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    struct Closed;

    impl Write for Closed {
        fn write(&mut self, _: &[u8]) -> io::Result<usize> {
            Err(io::ErrorKind::BrokenPipe.into())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn lines_are_written_in_their_order() {
        let out = Shared::default();
        let writer = GrowthWriter::start(out.clone()).unwrap();
        for line in ["a\n", "b\n", "c\n"] {
            writer.print(line.to_owned(), 1);
        }
        assert_eq!(writer.dropped(), 0);
        writer.finish(Duration::from_secs(10));
        assert_eq!(*out.0.lock().unwrap(), b"a\nb\nc\n");
    }

    #[test]
    fn a_reader_that_does_not_read_holds_nobody_up_and_is_counted() {
        let writer = GrowthWriter::start(Stuck).unwrap();
        for _ in 0..WAITING + 100 {
            writer.print("line\nline\n".to_owned(), 2);
        }
        // One batch may be in the writer's hands.
        assert!((198..=200).contains(&writer.dropped()), "{}", writer.dropped());
        let start = Instant::now();
        writer.finish(Duration::from_millis(50));
        assert!(start.elapsed() < Duration::from_secs(5));
    }

    #[test]
    fn a_reader_that_went_away_ends_the_log_and_not_the_observer() {
        let writer = GrowthWriter::start(Closed).unwrap();
        let dropped = Arc::clone(&writer.dropped);
        for _ in 0..3 {
            writer.print("line\n".to_owned(), 1);
        }
        writer.finish(Duration::from_secs(10));
        assert_eq!(dropped.load(Ordering::Relaxed), 3);
    }
}
