// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Connections: how many, and for how long.
//!
//! Any user may open connections, and say nothing. One that has not answered its request within a
//! time is closed, unless it watches. Each connection is for one request.

use crate::app::{App, Endless, router};
use crate::gate::{Gate, Token};
use crate::look::Looks;
use crate::machine::Machine;
use crate::reports::Reports;
use axum::Router;
use axum::body::Body;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
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
/// How long the head of a request may take, and the whole of one that changes something.
const HEAD: Duration = Duration::from_secs(10);
const WHOLE: Duration = Duration::from_secs(180);
/// Of a head.
const MOST_BYTES: usize = 16 << 10;
/// How long to wait after the kernel had no descriptor left for us.
const PAUSE: Duration = Duration::from_millis(100);

/// What is served, where.
pub struct Served {
    /// Of an address of this machine alone.
    pub listener: std::net::TcpListener,
    pub token: Token,
    pub machine: Arc<dyn Machine>,
    pub reports: Option<Reports>,
}

/// Serves until SIGINT, SIGTERM or SIGHUP, which it returns. A change that has begun is made whole.
/// Errors: the kernel refuses a socket or a thread.
pub fn serve(served: Served) -> io::Result<i32> {
    let runtime = Builder::new_current_thread().enable_all().max_blocking_threads(8).build()?;
    runtime.block_on(async {
        let [mut interrupt, mut terminate, mut hangup] = [
            signal(SignalKind::interrupt())?,
            signal(SignalKind::terminate())?,
            signal(SignalKind::hangup())?,
        ];
        tokio::select! {
            ended = accept(served) => ended,
            _ = interrupt.recv() => Ok(SignalKind::interrupt().as_raw_value()),
            _ = terminate.recv() => Ok(SignalKind::terminate().as_raw_value()),
            _ = hangup.recv() => Ok(SignalKind::hangup().as_raw_value()),
        }
    })
}

async fn accept(Served { listener, token, machine, reports }: Served) -> io::Result<i32> {
    listener.set_nonblocking(true)?;
    let port = listener.local_addr()?.port();
    let listener = TcpListener::from_std(listener)?;
    let app = App {
        gate: Gate { port, token },
        looks: Looks::start(Arc::clone(&machine)),
        machine,
        reports: reports.map(Arc::new),
        watchers: Arc::new(Semaphore::new(MOST_WATCHERS)),
    };
    let router = router(Arc::new(app));
    let places = Arc::new(Semaphore::new(MOST));
    loop {
        let Ok((stream, _)) = listener.accept().await else {
            sleep(PAUSE).await;
            continue;
        };
        // One too many is closed.
        let Ok(place) = Arc::clone(&places).try_acquire_owned() else { continue };
        let router = router.clone();
        tokio::spawn(async move {
            one(stream, router).await;
            drop(place);
        });
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
