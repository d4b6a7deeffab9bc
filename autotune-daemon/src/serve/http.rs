//! HTTP: `/metrics`, `/healthz`, `/readyz` and a landing page.

use std::{io, net::SocketAddr, sync::Arc};

use axum::{
    Router,
    extract::State,
    http::{StatusCode, header},
    response::{Html, IntoResponse, Response},
    routing::get,
};
use tokio::net::TcpListener;

/// What the pages show. Called for each request.
pub trait Pages: Send + Sync + 'static {
    /// All metrics in the Prometheus text format, or why they cannot be had.
    fn metrics(&self) -> Result<String, String>;

    /// Whether growths are being observed, or why not.
    fn ready(&self) -> Result<(), String>;

    /// What is being observed, for the landing page: plain text.
    fn summary(&self) -> String;
}

/// A listener on each of the addresses of `address` (`host:port`; an empty host means every address).
///
/// # Errors
/// When the address cannot be resolved or is in use.
pub async fn bind(address: &str) -> io::Result<Vec<TcpListener>> {
    let address = match address.strip_prefix(':') {
        Some(port) => format!("[::]:{port}"),
        None => address.to_owned(),
    };
    let resolved: Vec<SocketAddr> = tokio::net::lookup_host(&address).await?.collect();
    let mut listeners = Vec::with_capacity(resolved.len());
    for address in resolved {
        listeners.push(TcpListener::bind(address).await?);
    }
    if listeners.is_empty() {
        return Err(io::Error::new(io::ErrorKind::NotFound, "the name has no address"));
    }
    Ok(listeners)
}

/// Serves the pages on `listener` until the task is dropped.
///
/// # Errors
/// When the listener fails.
pub async fn serve(listener: TcpListener, pages: Arc<dyn Pages>) -> io::Result<()> {
    let router = Router::new()
        .route("/", get(landing))
        .route("/metrics", get(metrics))
        .route("/healthz", get(|| async { "ok\n" }))
        .route("/readyz", get(ready))
        .with_state(pages);
    axum::serve(listener, router).await
}

async fn metrics(State(pages): State<Arc<dyn Pages>>) -> Response {
    match pages.metrics() {
        Ok(text) => {
            let content_type = "text/plain; version=0.0.4; charset=utf-8";
            ([(header::CONTENT_TYPE, content_type)], text).into_response()
        }
        Err(error) => {
            (StatusCode::INTERNAL_SERVER_ERROR, format!("no metrics: {error}\n")).into_response()
        }
    }
}

async fn ready(State(pages): State<Arc<dyn Pages>>) -> Response {
    match pages.ready() {
        Ok(()) => "ready\n".into_response(),
        Err(why) => {
            (StatusCode::SERVICE_UNAVAILABLE, format!("not ready: {why}\n")).into_response()
        }
    }
}

async fn landing(State(pages): State<Arc<dyn Pages>>) -> Html<String> {
    Html(format!(
        "<!doctype html>\n<html lang=\"en\">\n<head><meta charset=\"utf-8\"><title>autotune</title></head>\n\
         <body>\n<h1>autotune {version}</h1>\n\
         <p>Watches the Linux kernel tune TCP receive buffers and checks every growth against the \
         kernel's own formula.</p>\n<pre>{summary}</pre>\n\
         <ul>\n<li><a href=\"/metrics\">/metrics</a>: Prometheus metrics</li>\n\
         <li><a href=\"/healthz\">/healthz</a>: the process is alive</li>\n\
         <li><a href=\"/readyz\">/readyz</a>: growths are being observed</li>\n</ul>\n</body>\n</html>\n",
        version = env!("CARGO_PKG_VERSION"),
        summary = escape(&pages.summary()),
    ))
}

/// Plain text as HTML.
fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}
