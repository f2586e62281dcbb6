//! What clients get of a server that runs in a process of its own, when they ask for much at once.

mod child;
mod client;
mod ends;
mod fairness;
mod order;
