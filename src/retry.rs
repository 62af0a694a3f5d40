//! What is done about a failure, and how long is waited before the next attempt.
