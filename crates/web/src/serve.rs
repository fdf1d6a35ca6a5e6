// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Connections: how many, and for how long.
//!
//! Connections of other users are refused in words, a few at a time. One that has not answered its
//! request within a time is closed, unless it watches. Each connection is for one request.

use crate::app::{App, Endless, router};
use crate::gate::{Gate, Token, random};
use crate::look::Looks;
use crate::machine::Machine;
use crate::peer::user_of;
use crate::place::Place;
use crate::reports::Reports;
use axum::Router;
use axum::body::Body;
use futures_util::future::{pending, select_all};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use std::collections::BTreeSet;
use std::io;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::Builder;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::Semaphore;
use tokio::time::{sleep, timeout};
use tower::ServiceExt;

/// Connections at a time, and those of them that watch.
const MOST: usize = 64;
const MOST_WATCHERS: usize = 16;
/// So many changes may be under way at a time.
const MOST_CHANGES: usize = 8;
/// Refusals at a time.
const MOST_REFUSALS: usize = 8;
/// How long the head of a request may take, and the whole of one that changes something.
const HEAD: Duration = Duration::from_secs(10);
const WHOLE: Duration = Duration::from_secs(180);
/// Of a head.
const MOST_BYTES: usize = 16 << 10;
/// How long to wait after the kernel had no descriptor left for us.
const PAUSE: Duration = Duration::from_millis(100);

/// What is served, where.
pub struct Served {
    pub place: Place,
    pub token: Token,
    /// Who may connect.
    pub users: BTreeSet<u32>,
    /// Signals that end it.
    pub signals: Vec<i32>,
    pub machine: Arc<dyn Machine>,
    pub reports: Option<Reports>,
}

/// Serves until one of its signals. A change that has begun is made whole. Errors: the kernel
/// refuses a socket or a thread.
pub fn serve(served: Served) -> io::Result<()> {
    let runtime = Builder::new_current_thread().enable_all().max_blocking_threads(8).build()?;
    let changes = Arc::new(Semaphore::new(MOST_CHANGES));
    let served = runtime.block_on(async {
        let kinds = served.signals.iter().map(|number| SignalKind::from_raw(*number));
        let mut signals = kinds.map(signal).collect::<io::Result<Vec<_>>>()?;
        listen(served, Arc::clone(&changes))?;
        let ends = signals.iter_mut().map(|signal| Box::pin(signal.recv()));
        if ends.len() == 0 {
            // nohup(1), and none that ends it was left.
            return pending().await;
        }
        select_all(ends).await;
        let _ = changes.acquire_many(MOST_CHANGES as u32).await;
        Ok(())
    });
    // Not for what is only read: it may wait for a file server.
    runtime.shutdown_background();
    served
}

/// What all connections share.
struct Shared {
    router: Router,
    users: BTreeSet<u32>,
    places: Arc<Semaphore>,
    /// For words to those who may not connect.
    refusals: Arc<Semaphore>,
}

/// Starts to take connections, in tasks of this runtime.
fn listen(served: Served, changes: Arc<Semaphore>) -> io::Result<()> {
    let Served { place, token, users, machine, reports, .. } = served;
    let app = App {
        changes,
        gate: Gate { authority: place.authority(), token },
        server: random::<16>()?,
        looks: Looks::start(Arc::clone(&machine)),
        machine,
        reports: reports.map(Arc::new),
        watchers: Arc::new(Semaphore::new(MOST_WATCHERS)),
    };
    let shared = Arc::new(Shared {
        router: router(Arc::new(app)),
        users,
        places: Arc::new(Semaphore::new(MOST)),
        refusals: Arc::new(Semaphore::new(MOST_REFUSALS)),
    });
    for listener in place.listeners {
        listener.set_nonblocking(true)?;
        tokio::spawn(accept(TcpListener::from_std(listener)?, Arc::clone(&shared)));
    }
    Ok(())
}

async fn accept(listener: TcpListener, shared: Arc<Shared>) {
    loop {
        let Ok((stream, peer)) = listener.accept().await else {
            sleep(PAUSE).await;
            continue;
        };
        let user = stream.local_addr().and_then(|own| user_of(peer, own));
        let is_for = matches!(&user, Ok(Some(user)) if shared.users.contains(user));
        let places = if is_for { &shared.places } else { &shared.refusals };
        // One too many is closed.
        let Ok(place) = Arc::clone(places).try_acquire_owned() else { continue };
        let shared = Arc::clone(&shared);
        tokio::spawn(async move {
            match is_for {
                true => one(stream, shared.router.clone()).await,
                false => _ = timeout(HEAD, refuse(stream, user, &shared.users)).await,
            }
            drop(place);
        });
    }
}

/// Says why. Nothing of what it has sent is looked at.
async fn refuse(stream: TcpStream, user: io::Result<Option<u32>>, users: &BTreeSet<u32>) {
    let why = match user {
        Ok(Some(user)) => {
            let of: Vec<String> = users.iter().map(ToString::to_string).collect();
            format!(
                "this page is for programs of user {}, and user {user} asks: start asmp web with \
                 --user {user}",
                of.join(" and ")
            )
        }
        Ok(None) => "the connection has ended".to_owned(),
        Err(error) => format!("whose connection this is cannot be read: {error}"),
    };
    // What is not read when it is closed would be an error there in place of this.
    if stream.readable().await.is_ok() {
        let _ = stream.try_read(&mut [0; MOST_BYTES]);
        let _ = stream.try_write(
            format!(
                "HTTP/1.1 403 Forbidden\r\nContent-Type: text/plain; charset=utf-8\r\n\
                 Content-Length: {}\r\nConnection: close\r\n\r\n{why}",
                why.len()
            )
            .as_bytes(),
        );
    }
}

/// One connection, from its request to the end of what it gets.
async fn one(stream: TcpStream, router: Router) {
    let endless = Endless::default();
    let of_this = endless.clone();
    let service = service_fn(move |mut request: hyper::Request<Incoming>| {
        request.extensions_mut().insert(of_this.clone());
        router.clone().oneshot(request.map(Body::new))
    });
    let mut builder = http1::Builder::new();
    builder.timer(TokioTimer::new()).header_read_timeout(HEAD);
    builder.keep_alive(false).max_buf_size(MOST_BYTES);
    let mut connection = pin!(builder.serve_connection(TokioIo::new(stream), service));
    // What went wrong is the client's.
    let ended = timeout(WHOLE, connection.as_mut()).await;
    if ended.is_err() && endless.0.load(Relaxed) {
        let _ = connection.await;
    }
}
