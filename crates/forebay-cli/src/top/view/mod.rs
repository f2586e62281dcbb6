//! The live view: a thread samples the process, another reads keys, and this one draws.
//!
//! The view draws only when a sample, a key or a new size has come, so it costs nothing between.
//! The terminal is restored at the end, after a panic (ratatui's hook), and after a signal.

mod app;
mod draw;

use super::sample::Sample;
use super::source::Source;
use crate::failure::Failure;
use app::{After, App};
use ratatui::crossterm::event::{self, Event, KeyEventKind};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use std::path::Path;
use std::sync::mpsc::{Sender, channel};
use std::thread;

/// Reasons to draw again.
enum News {
    Sample(Result<Box<Sample>, Failure>),
    Terminal(Event),
    /// The keyboard cannot be read.
    NoKeys(std::io::Error),
    Signal,
}

/// Shows a process until the user quits, or the process ends.
///
/// # Errors
/// Fails if the terminal cannot be used, or when the process ends or a signal arrives.
pub(super) fn run(source: Source, path: &Path) -> Result<(), Failure> {
    let (sender, news) = channel();
    start(&sender, "sample", move |sender| sample(source, sender))?;
    watch_signals(&sender)?;
    let failed = |error| Failure::Run(format!("cannot use the terminal: {error}"));
    let mut terminal = ratatui::try_init().map_err(failed)?;
    let shown = start(&sender, "keys", keys).and_then(|()| {
        let mut app = App::new(path.display().to_string(), draw::has_colours());
        loop {
            terminal.draw(|frame| draw::draw(frame, &mut app)).map_err(failed)?;
            let Ok(first) = news.recv() else { return Ok(()) };
            // All that has come meanwhile is one reason to draw.
            for each in std::iter::once(first).chain(news.try_iter()) {
                match each {
                    News::Sample(Ok(sample)) => app.take(*sample),
                    News::Sample(Err(failure)) => return Err(failure),
                    News::Terminal(Event::Key(key)) if key.kind == KeyEventKind::Press => {
                        if matches!(app.press(key), After::Quit) {
                            return Ok(());
                        }
                    }
                    News::Terminal(_) => {}
                    News::NoKeys(error) => return Err(failed(error)),
                    News::Signal => {
                        return Err(Failure::Run("interrupted by a signal".to_owned()));
                    }
                }
            }
        }
    });
    ratatui::restore();
    shown
}

/// Starts a thread that sends news. It ends when nothing receives them, or with the process.
fn start(
    sender: &Sender<News>,
    name: &str,
    body: impl FnOnce(Sender<News>) + Send + 'static,
) -> Result<(), Failure> {
    let sender = sender.clone();
    let started = thread::Builder::new().name(name.to_owned()).spawn(move || body(sender));
    started.map(drop).map_err(|error| Failure::Run(format!("cannot start a thread: {error}")))
}

fn sample(mut source: Source, sender: Sender<News>) {
    loop {
        let sample = source.next().map(Box::new);
        let is_last = sample.is_err();
        if sender.send(News::Sample(sample)).is_err() || is_last {
            return;
        }
    }
}

fn keys(sender: Sender<News>) {
    loop {
        let news = event::read().map_or_else(News::NoKeys, News::Terminal);
        let is_last = matches!(news, News::NoKeys(_));
        if sender.send(news).is_err() || is_last {
            return;
        }
    }
}

fn watch_signals(sender: &Sender<News>) -> Result<(), Failure> {
    let signals = Signals::new([SIGHUP, SIGINT, SIGTERM]);
    let mut signals = signals
        .map_err(|error| Failure::Run(format!("cannot install a signal handler: {error}")))?;
    start(sender, "signals", move |sender| {
        for _ in signals.forever() {
            if sender.send(News::Signal).is_err() {
                return;
            }
        }
    })
}

#[cfg(test)]
mod tests;
