//! Sets the log up: on stderr, so that stdout is the command's own.

use std::io::IsTerminal as _;

use tracing::level_filters::LevelFilter;
use tracing_subscriber::{Layer as _, layer::SubscriberExt as _, util::SubscriberInitExt as _};

use super::{GlobalArgs, LogFormat, LogLevel};

pub(super) fn init(args: &GlobalArgs) {
    let level = match args.log_level {
        LogLevel::Error => LevelFilter::ERROR,
        LogLevel::Warn => LevelFilter::WARN,
        LogLevel::Info => LevelFilter::INFO,
        LogLevel::Debug => LevelFilter::DEBUG,
    };
    let color = std::io::stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none();
    let base = tracing_subscriber::fmt::layer().with_writer(std::io::stderr).with_target(false);
    let layer = match args.log_format {
        LogFormat::Text => base.with_ansi(color).boxed(),
        LogFormat::Json => base.json().boxed(),
    };
    // A second call, in a test, keeps the first subscriber.
    let _ = tracing_subscriber::registry().with(layer.with_filter(level)).try_init();
}
