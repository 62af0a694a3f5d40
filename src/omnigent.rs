//! All that is known of the target, the Sessions API of an Omnigent server: its URLs, its bodies, its answers.
//!
//! No other module knows a URL or a JSON body. What this one promises the rest:
//!
//! - [`body`] turns a post into the bytes the server expects, and yields nothing where the server would take nothing.
//! - [`client::Client`] sends them once. It follows no redirect and makes no second attempt of its own, and it says
//!   "accepted" only to a success that carries the API's own answer.
//! - A failure is a [`fault::Fault`], which [`crate::retry::verdict`] sorts. It quotes neither token nor transcript.

pub mod address;
pub mod answer;
pub mod auth;
pub mod body;
pub mod client;
pub mod fault;
pub mod limits;
pub mod posted;
pub mod read_back;

pub use address::{Address, AddressError};
pub use answer::{Accepted, Listed, Page, Session, Sessions, StoredItem};
pub use auth::{AuthError, TokenSource};
pub use client::{Client, ClientError, Order};
pub use fault::{Fault, FaultKind};
