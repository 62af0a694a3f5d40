//! The page: files as they stand beside this one, within the program.

use std::sync::Arc;

use axum::Router;
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Response};
use axum::routing::get;

use super::Shared;

const PAGE: &str = include_str!("page/index.html");
const STYLE: &str = include_str!("page/style.css");
const SCRIPTS: [(&str, &str); 5] = [
    ("/page/main.js", include_str!("page/main.js")),
    ("/page/transcript.js", include_str!("page/transcript.js")),
    ("/page/tools.js", include_str!("page/tools.js")),
    ("/page/text.js", include_str!("page/text.js")),
    ("/page/session.js", include_str!("page/session.js")),
];

/// The page at `/`, and at `/c/ID` as Omnigent has it.
pub fn router() -> Router<Arc<Shared>> {
    let page = || async { file("text/html; charset=utf-8", PAGE) };
    let style = || async { file("text/css; charset=utf-8", STYLE) };
    let mut router =
        Router::new().route("/", get(page)).route("/c/{id}", get(page)).route("/page/style.css", get(style));
    for (path, script) in SCRIPTS {
        let script = move || async move { file("text/javascript; charset=utf-8", script) };
        router = router.route(path, get(script));
    }
    router
}

fn file(kind: &'static str, content: &'static str) -> Response {
    ([(CONTENT_TYPE, kind)], content).into_response()
}
