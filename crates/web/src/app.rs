// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What each path answers.

use crate::gate::{Closed, Gate};
use crate::look::{Last, Looks};
use crate::machine::{Change, Machine, Refused};
use crate::reports::Reports;
use axum::Router;
use axum::body::{Body, Bytes, to_bytes};
use axum::extract::{Extension, Path, Request, State};
use axum::http::header::{self, CONTENT_TYPE, HeaderName, HeaderValue};
use axum::http::{HeaderMap, StatusCode};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use futures_util::StreamExt;
use futures_util::future::ready;
use futures_util::stream::{once, unfold};
use std::convert::Infallible;
use std::io::ErrorKind;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::spawn_blocking;
use tokio::time::timeout;

/// Of a request's body.
const MOST_BYTES: usize = 64 << 10;
/// How long a body may take to come.
const PATIENCE: Duration = Duration::from_secs(10);

/// These hold nothing of the machine.
const FILES: [(&str, &str, &str); 3] = [
    ("/", "text/html; charset=utf-8", include_str!("page/page.html")),
    ("/page.css", "text/css; charset=utf-8", include_str!("page/page.css")),
    ("/page.js", "text/javascript; charset=utf-8", include_str!("page/page.js")),
];

/// Nothing comes from elsewhere, and no script but the page's file runs. A report has its style in
/// the page, and is shown in a frame that runs no script at all.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; \
                      connect-src 'self'; frame-ancestors 'none'; base-uri 'none'; \
                      form-action 'none'";

pub struct App {
    pub gate: Gate,
    /// By this a page knows that it still talks to the same server.
    pub server: String,
    pub machine: Arc<dyn Machine>,
    pub looks: Looks,
    pub reports: Option<Arc<Reports>>,
    /// Those that are under way are ended before the program is.
    pub changes: Arc<Semaphore>,
    /// Those who may watch at a time.
    pub watchers: Arc<Semaphore>,
}

/// Told by a handler of the connection that it answers without end.
#[derive(Debug, Clone, Default)]
pub struct Endless(pub Arc<AtomicBool>);

pub fn router(app: Arc<App>) -> Router {
    let mut router = Router::new()
        .route("/events", get(events))
        .route("/change", post(change))
        .route("/reports", get(reports))
        .route("/reports/{name}", get(report));
    for (path, kind, text) in FILES {
        router = router.route(path, get(move || async move { ([(CONTENT_TYPE, kind)], text) }));
    }
    router.layer(from_fn_with_state(Arc::clone(&app), guard)).with_state(app)
}

/// Refuses what may not go further.
async fn guard(State(app): State<Arc<App>>, request: Request, next: Next) -> Response {
    let is_file = FILES.iter().any(|(path, ..)| *path == request.uri().path());
    let let_in = match is_file {
        true => app.gate.let_in(request.headers()),
        false => app.gate.let_in_with_token(request.headers()),
    };
    let mut response = match let_in {
        Ok(()) => next.run(request).await,
        Err(closed) => refused(closed),
    };
    let headers = response.headers_mut();
    let mut set = |name: HeaderName, value: &'static str| {
        headers.insert(name, HeaderValue::from_static(value));
    };
    set(header::CONTENT_SECURITY_POLICY, POLICY);
    set(header::X_CONTENT_TYPE_OPTIONS, "nosniff");
    set(header::REFERRER_POLICY, "no-referrer");
    set(header::CACHE_CONTROL, "no-store");
    set(header::X_FRAME_OPTIONS, "DENY");
    set(HeaderName::from_static("cross-origin-resource-policy"), "same-origin");
    set(HeaderName::from_static("cross-origin-opener-policy"), "same-origin");
    response
}

fn refused((status, why): Closed) -> Response {
    (status, why).into_response()
}

/// What is seen, once a second.
async fn events(State(app): State<Arc<App>>, Extension(endless): Extension<Endless>) -> Response {
    let Ok(place) = Arc::clone(&app.watchers).try_acquire_owned() else {
        return refused((
            StatusCode::SERVICE_UNAVAILABLE,
            "16 pages are open, and more may not be: close one",
        ));
    };
    endless.0.store(true, Relaxed);
    let next = |(mut last, place): (Last, OwnedSemaphorePermit)| async move {
        last.changed().await.ok()?;
        let text = format!("data: {}\n\n", &*last.borrow_and_update());
        Some((Ok::<_, Infallible>(Bytes::from(text)), (last, place)))
    };
    let first = Bytes::from(format!("data: {{\"server\":\"{}\"}}\n\n", app.server));
    let later = unfold((app.looks.watch(), place), next);
    let body = Body::from_stream(once(ready(Ok(first))).chain(later));
    ([(CONTENT_TYPE, "text/event-stream")], body).into_response()
}

async fn change(State(app): State<Arc<App>>, headers: HeaderMap, body: Body) -> Response {
    // A form of another page can send no JSON.
    if headers.get(CONTENT_TYPE).is_none_or(|kind| kind != "application/json") {
        return refused((StatusCode::UNSUPPORTED_MEDIA_TYPE, "send application/json"));
    }
    let bytes = match timeout(PATIENCE, to_bytes(body, MOST_BYTES)).await {
        Err(_) => return refused((StatusCode::REQUEST_TIMEOUT, "the body came too slowly")),
        Ok(Err(_)) => return refused((StatusCode::PAYLOAD_TOO_LARGE, "at most 64 KiB")),
        Ok(Ok(bytes)) => bytes,
    };
    let change: Change = match serde_json::from_slice(&bytes) {
        Ok(change) => change,
        Err(error) => return (StatusCode::BAD_REQUEST, error.to_string()).into_response(),
    };
    let Ok(place) = Arc::clone(&app.changes).acquire_owned().await else { return refused_whole() };
    // It is carried out also where the browser leaves meanwhile.
    let done = spawn_blocking(move || {
        let done = app.machine.change(&change);
        drop(place);
        done
    });
    let done = done.await;
    match done {
        Ok(Ok(words)) => words.into_response(),
        Ok(Err(refused)) => (StatusCode::CONFLICT, json(&refused)).into_response(),
        Err(_) => refused_whole(),
    }
}

fn refused_whole() -> Response {
    refused((StatusCode::INTERNAL_SERVER_ERROR, "asmp web has failed: see its terminal"))
}

fn json(refused: &Refused) -> Response {
    let text = serde_json::to_string(refused).unwrap_or_default();
    ([(CONTENT_TYPE, "application/json")], text).into_response()
}

async fn reports(State(app): State<Arc<App>>) -> Response {
    let Some(reports) = app.reports.clone() else { return "[]".into_response() };
    match spawn_blocking(move || reports.names()).await {
        Ok(Ok(names)) => serde_json::to_string(&names).unwrap_or_default().into_response(),
        Ok(Err(error)) => {
            let why = format!("the directory of reports cannot be listed: {error}");
            (StatusCode::NOT_FOUND, why).into_response()
        }
        Err(_) => refused_whole(),
    }
}

async fn report(State(app): State<Arc<App>>, Path(name): Path<String>) -> Response {
    let none = || refused((StatusCode::NOT_FOUND, "there is no such report"));
    let Some(reports) = app.reports.clone() else { return none() };
    match spawn_blocking(move || reports.read(&name)).await {
        // As text: it is no page of this server.
        Ok(Ok(bytes)) => ([(CONTENT_TYPE, "text/plain; charset=utf-8")], bytes).into_response(),
        Ok(Err(error)) if error.kind() == ErrorKind::NotFound => none(),
        Ok(Err(error)) => (StatusCode::UNPROCESSABLE_ENTITY, error.to_string()).into_response(),
        Err(_) => refused_whole(),
    }
}
