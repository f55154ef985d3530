//! The paths of the dashboard, and what protects it.
//!
//! Owns the routes, the headers of each answer, and the last [`View`]. However many clients ask,
//! the node is looked at a few times a second, and each text is made once for a view. Invariant: no
//! request changes anything.

use super::field::Field;
use super::metrics;
use super::view::{Source, View};
use bytes::Bytes;
use hyper::body::Incoming;
use hyper::header::{CACHE_CONTROL, HeaderName, HeaderValue};
use hyper::{Request, StatusCode};
use std::future::Future;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};
use tokio::net::TcpListener;
use tokio::sync::Mutex;
use vfield_http::answer::{Answer, found, text};
use vfield_http::host::Names;
use vfield_http::server::{self, Answering};
use vfield_http::visitors::Visitors;

/// Connections served at once: browsers keep theirs, and come back if one is closed.
const VISITORS_MAX: usize = 32;
/// Of one address, such as a tunnel or a proxy; the rest is left to others.
const OF_ONE_MAX: usize = 24;
/// An older view is replaced when somebody asks. To make one takes a few milliseconds with a
/// thousand nodes; five a second are below the hundredth of a core that a spectator may take.
const VIEW_AGE_MAX: Duration = Duration::from_millis(200);
/// Time for a view. A daemon that needs longer hangs.
const LOOK_PATIENCE: Duration = Duration::from_secs(5);

const JSON: &str = "application/json";
/// The files of the page, with their types.
const FILES: [(&str, &str, &str); 5] = [
    ("/", "text/html; charset=utf-8", include_str!("page/index.html")),
    ("/page.css", "text/css; charset=utf-8", include_str!("page/page.css")),
    ("/page.js", "text/javascript; charset=utf-8", include_str!("page/page.js")),
    ("/draw.js", "text/javascript; charset=utf-8", include_str!("page/draw.js")),
    ("/words.js", "text/javascript; charset=utf-8", include_str!("page/words.js")),
];
/// What a browser may do with an answer: nothing but to show it, with the page's own files.
const HEADERS: [(&str, &str); 6] = [
    (
        "content-security-policy",
        "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src data:; \
         base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; \
         trusted-types 'none'",
    ),
    ("x-content-type-options", "nosniff"),
    ("referrer-policy", "no-referrer"),
    ("cross-origin-resource-policy", "same-origin"),
    ("cross-origin-opener-policy", "same-origin"),
    ("x-frame-options", "DENY"),
];

/// The dashboard of one daemon.
pub struct Site {
    source: Arc<dyn Source>,
    names: Names,
    last: Mutex<Option<Arc<Shown>>>,
}

/// A view, and its texts.
struct Shown {
    at: Instant,
    view: View,
    metrics: OnceLock<Bytes>,
    status: OnceLock<Bytes>,
    field: OnceLock<Bytes>,
}

impl Site {
    /// Shows `source` to clients that call this machine by an IP address or one of `names`.
    pub fn new(source: Arc<dyn Source>, names: impl IntoIterator<Item = String>) -> Arc<Self> {
        Arc::new(Self { source, names: Names::new(names), last: Mutex::default() })
    }

    /// Answers clients for as long as it is polled.
    pub fn serve(self: Arc<Self>, listener: TcpListener) -> impl Future<Output = ()> + Send {
        let site = move |request: Request<Incoming>| -> Answering {
            let site = Arc::clone(&self);
            Box::pin(async move { site.answer(&request).await })
        };
        server::serve(listener, Visitors::new(VISITORS_MAX, OF_ONE_MAX), Arc::new(site))
    }

    async fn answer<B>(&self, request: &Request<B>) -> Answer {
        let mut answer = if self.names.admit(request) {
            self.find(request.uri().path()).await
        } else {
            let why = "unknown host name: call this node by its IP address, or start it with --http-name NAME";
            text(StatusCode::MISDIRECTED_REQUEST, why)
        };
        let headers = answer.headers_mut();
        for (name, value) in HEADERS {
            headers.insert(HeaderName::from_static(name), HeaderValue::from_static(value));
        }
        headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
        answer
    }

    async fn find(&self, path: &str) -> Answer {
        if let Some((_, kind, file)) = FILES.iter().find(|(at, ..)| *at == path) {
            return found(kind, Bytes::from_static(file.as_bytes()));
        }
        match path {
            "/healthz" | "/readyz" | "/metrics" | "/status.json" | "/field.json" => {}
            _ => return text(StatusCode::NOT_FOUND, "nothing is here"),
        }
        let shown = match tokio::time::timeout(LOOK_PATIENCE, self.look(path.ends_with(".json"))).await {
            Ok(shown) => shown,
            Err(_) => return text(StatusCode::SERVICE_UNAVAILABLE, "the daemon does not answer"),
        };
        match (path, shown) {
            // A daemon that starts is well, and not ready.
            ("/healthz", _) => text(StatusCode::OK, "ok"),
            (_, Err(doing)) => text(StatusCode::SERVICE_UNAVAILABLE, &doing),
            ("/readyz", Ok(_)) => text(StatusCode::OK, "ready"),
            ("/metrics", Ok(shown)) => found(metrics::CONTENT_TYPE, shown.metrics()),
            ("/field.json", Ok(shown)) => found(JSON, shown.field()),
            (_, Ok(shown)) => found(JSON, shown.status()),
        }
    }

    /// The last view if it is fresh, else a new one. Clients that come meanwhile wait for the same.
    async fn look(&self, asks: bool) -> Result<Arc<Shown>, String> {
        let mut last = self.last.lock().await;
        if let Some(shown) = last.as_ref().filter(|shown| shown.at.elapsed() < VIEW_AGE_MAX) {
            return Ok(Arc::clone(shown));
        }
        let view = self.source.look(asks).await?;
        let (metrics, status, field) = (OnceLock::new(), OnceLock::new(), OnceLock::new());
        let shown = Arc::new(Shown { at: Instant::now(), view, metrics, status, field });
        *last = Some(Arc::clone(&shown));
        Ok(shown)
    }
}

impl Shown {
    fn metrics(&self) -> Bytes {
        self.metrics.get_or_init(|| Bytes::from(metrics::render(&self.view))).clone()
    }

    fn status(&self) -> Bytes {
        let json = || {
            let mut text = serde_json::to_vec_pretty(&self.view.status).expect("plain data becomes JSON");
            text.push(b'\n');
            Bytes::from(text)
        };
        self.status.get_or_init(json).clone()
    }

    fn field(&self) -> Bytes {
        let json = || Bytes::from(serde_json::to_vec(&Field::of(&self.view)).expect("plain data becomes JSON"));
        self.field.get_or_init(json).clone()
    }
}
