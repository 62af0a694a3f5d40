//! The loopback page, and what machines ask there.

use std::sync::Arc;

use axum::Router;
use axum::extract::State;
use axum::http::StatusCode;
use axum::http::header::CONTENT_TYPE;
use axum::middleware;
use axum::response::{Html, IntoResponse, Response};
use axum::routing::get;
use tokio::net::TcpListener;

use super::metrics::{self, metrics};
use super::snapshot::Asked;
use super::text::{Bars, text};
use crate::loopback::{self, Door};

/// Answers until it is dropped.
pub async fn serve(listener: TcpListener, port: u16, asked: Arc<Asked>) {
    let door = Door { port, refuse: |reason| (StatusCode::FORBIDDEN, format!("{reason}\n")).into_response() };
    let router = Router::new()
        .route("/", get(page))
        .route("/healthz", get(health))
        .route("/metrics", get(scrape))
        .route("/status.json", get(json))
        .layer(middleware::from_fn_with_state(door, loopback::guard))
        .with_state(asked);
    if let Err(error) = axum::serve(listener, router).await {
        tracing::error!("the status is shown no more: {error}");
    }
}

async fn page(State(asked): State<Arc<Asked>>) -> Html<String> {
    let text = text(&asked.snapshot(), Bars::Blocks);
    let text = text.replace('&', "&amp;").replace('<', "&lt;");
    Html(format!(
        "<!doctype html><html lang=\"en\"><meta charset=\"utf-8\"><meta http-equiv=\"refresh\" content=\"2\">\
         <title>hermes-mirror</title><pre>{text}</pre></html>\n"
    ))
}

/// 200 while all is well, else 503; the text says why.
async fn health(State(asked): State<Arc<Asked>>) -> (StatusCode, String) {
    let snapshot = asked.snapshot();
    if snapshot.well {
        return (StatusCode::OK, "ok\n".to_owned());
    }
    (StatusCode::SERVICE_UNAVAILABLE, text(&snapshot, Bars::None))
}

async fn scrape(State(asked): State<Arc<Asked>>) -> Response {
    ([(CONTENT_TYPE, metrics::CONTENT_TYPE)], metrics(&asked.snapshot())).into_response()
}

async fn json(State(asked): State<Arc<Asked>>) -> Response {
    ([(CONTENT_TYPE, "application/json")], asked.snapshot().json()).into_response()
}
