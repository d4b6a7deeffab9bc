//! HTTP: `/metrics`, `/healthz`, `/readyz` and a landing page.

use std::{
    io,
    net::{Ipv4Addr, Ipv6Addr, SocketAddr},
    sync::Arc,
};

use axum::{
    Router,
    extract::State,
    http::{StatusCode, header},
    response::{Html, IntoResponse, Response},
    routing::get,
};
use tokio::net::{TcpListener, TcpSocket};

/// What the pages show. Called for each request.
pub trait Pages: Send + Sync + 'static {
    /// All metrics in the Prometheus text format, or why they cannot be had.
    fn metrics(&self) -> Result<String, String>;

    /// Whether growths are being observed, or why not.
    fn ready(&self) -> Result<(), String>;

    /// What is being observed, for the landing page: plain text.
    fn summary(&self) -> String;
}

/// A listener on each of the addresses of `address` (`host:port`; an empty host means every address, IPv4
/// and IPv6).
///
/// # Errors
/// When the address cannot be resolved (`InvalidInput`: it is none) or is in use.
pub async fn bind(address: &str) -> io::Result<Vec<TcpListener>> {
    if let Some(port) = address.strip_prefix(':') {
        let port =
            port.parse().map_err(|error| io::Error::new(io::ErrorKind::InvalidInput, error))?;
        return bind_every_address(port).map(|listener| vec![listener]);
    }
    let resolved: Vec<SocketAddr> = tokio::net::lookup_host(address).await?.collect();
    let mut listeners = Vec::with_capacity(resolved.len());
    for address in resolved {
        listeners.push(TcpListener::bind(address).await?);
    }
    if listeners.is_empty() {
        return Err(io::Error::new(io::ErrorKind::NotFound, "the name has no address"));
    }
    Ok(listeners)
}

/// One listener for IPv6 and IPv4, whatever `net.ipv6.bindv6only` says; for IPv4 where there is no IPv6.
fn bind_every_address(port: u16) -> io::Result<TcpListener> {
    const BACKLOG: u32 = 1024;
    let socket = match TcpSocket::new_v6() {
        Ok(socket) => {
            nix::sys::socket::setsockopt(&socket, nix::sys::socket::sockopt::Ipv6V6Only, &false)?;
            socket.set_reuseaddr(true)?;
            socket.bind((Ipv6Addr::UNSPECIFIED, port).into())?;
            socket
        }
        Err(_) => {
            let socket = TcpSocket::new_v4()?;
            socket.set_reuseaddr(true)?;
            socket.bind((Ipv4Addr::UNSPECIFIED, port).into())?;
            socket
        }
    };
    socket.listen(BACKLOG)
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

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

    use super::*;

    struct Fixed {
        ready: bool,
    }

    impl Pages for Fixed {
        fn metrics(&self) -> Result<String, String> {
            if self.ready { Ok("up 1\n".to_owned()) } else { Err("no map".to_owned()) }
        }

        fn ready(&self) -> Result<(), String> {
            if self.ready { Ok(()) } else { Err("detached".to_owned()) }
        }

        fn summary(&self) -> String {
            "<script>&".to_owned()
        }
    }

    async fn get(ready: bool, request: &str) -> String {
        let listener = bind("127.0.0.1:0").await.unwrap().remove(0);
        let address = listener.local_addr().unwrap();
        let server = tokio::spawn(serve(listener, Arc::new(Fixed { ready })));
        let mut stream = tokio::net::TcpStream::connect(address).await.unwrap();
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).await.unwrap();
        server.abort();
        String::from_utf8(answer).unwrap()
    }

    async fn page(ready: bool, path: &str) -> String {
        get(ready, &format!("GET {path} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")).await
    }

    #[tokio::test]
    async fn pages_answer_with_their_status_and_type() {
        let metrics = page(true, "/metrics").await;
        assert!(metrics.starts_with("HTTP/1.1 200"), "{metrics}");
        assert!(metrics.contains("content-type: text/plain; version=0.0.4"), "{metrics}");
        assert!(metrics.ends_with("up 1\n"), "{metrics}");
        assert!(page(true, "/healthz").await.starts_with("HTTP/1.1 200"));
        assert!(page(true, "/readyz").await.ends_with("ready\n"));
        assert!(page(true, "/nothing").await.starts_with("HTTP/1.1 404"));
    }

    #[tokio::test]
    async fn what_is_wrong_is_said() {
        let ready = page(false, "/readyz").await;
        assert!(ready.starts_with("HTTP/1.1 503") && ready.ends_with("not ready: detached\n"));
        let metrics = page(false, "/metrics").await;
        assert!(metrics.starts_with("HTTP/1.1 500") && metrics.ends_with("no metrics: no map\n"));
    }

    #[tokio::test]
    async fn the_landing_page_shows_text_as_text() {
        assert!(page(true, "/").await.contains("<pre>&lt;script&gt;&amp;</pre>"));
    }

    #[tokio::test]
    async fn a_request_that_is_none_is_refused() {
        assert!(get(true, "nonsense\r\n\r\n").await.starts_with("HTTP/1.1 400"));
        let post =
            get(true, "POST /metrics HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n").await;
        assert!(post.starts_with("HTTP/1.1 405"), "{post}");
    }

    #[tokio::test]
    async fn a_port_alone_is_served_on_every_address() {
        let listener = bind(":0").await.unwrap().remove(0);
        let port = listener.local_addr().unwrap().port();
        for host in ["127.0.0.1", "::1"] {
            let stream = tokio::net::TcpStream::connect((host, port)).await;
            assert!(stream.is_ok(), "{host}: {stream:?}");
        }
    }

    #[tokio::test]
    async fn addresses_are_bound_as_they_are_written() {
        assert!(bind("[::1]:0").await.is_ok_and(|bound| bound.len() == 1));
        assert!(bind("127.0.0.1").await.is_err());
        for none in ["", "nonsense", "127.0.0.1:99999", ":", ":99999"] {
            assert_eq!(bind(none).await.unwrap_err().kind(), io::ErrorKind::InvalidInput, "{none}");
        }
        let taken = bind("127.0.0.1:0").await.unwrap();
        let address = taken.first().unwrap().local_addr().unwrap().to_string();
        assert_eq!(bind(&address).await.unwrap_err().kind(), io::ErrorKind::AddrInUse);
    }
}
