//! State of the live view, and what keys do to it.

use super::super::sample::{DiskSample, Sample};
use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use std::cmp::Ordering;
use std::collections::{HashMap, VecDeque};

/// Samples of a disk's history.
const HISTORY: usize = 240;

/// A table of the view.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Tab {
    Disks,
    Exports,
    Owners,
}

impl Tab {
    pub(super) const ALL: [Tab; 3] = [Tab::Disks, Tab::Exports, Tab::Owners];

    pub(super) fn name(self) -> &'static str {
        match self {
            Tab::Disks => "Disks",
            Tab::Exports => "Exports",
            Tab::Owners => "Owners",
        }
    }
}

/// The order of rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sort {
    /// As the process lists them: the oldest first.
    Age,
    Name,
    Iops,
    Bytes,
}

impl Sort {
    const ALL: [Sort; 4] = [Sort::Age, Sort::Name, Sort::Iops, Sort::Bytes];

    pub(super) fn name(self) -> &'static str {
        match self {
            Sort::Age => "age",
            Sort::Name => "name",
            Sort::Iops => "IOPS",
            Sort::Bytes => "bytes",
        }
    }
}

/// Effect of a key on the program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum After {
    Stay,
    Quit,
}

/// The state of the view.
pub(super) struct App {
    /// The socket, until the first sample has come.
    pub(super) path: String,
    pub(super) has_colours: bool,
    pub(super) sample: Option<Sample>,
    pub(super) tab: Tab,
    pub(super) sort: Sort,
    pub(super) is_paused: bool,
    pub(super) shows_help: bool,
    /// The selected row of each tab, by its place.
    selected: [usize; Tab::ALL.len()],
    /// IOPS of each disk, by its number, the oldest first.
    history: HashMap<u64, VecDeque<u64>>,
}

impl App {
    pub(super) fn new(path: String, has_colours: bool) -> App {
        App {
            path,
            has_colours,
            sample: None,
            tab: Tab::Disks,
            sort: Sort::Age,
            is_paused: false,
            shows_help: false,
            selected: [0; Tab::ALL.len()],
            history: HashMap::new(),
        }
    }

    /// Takes a sample. A paused view keeps the one it shows, and the history goes on.
    pub(super) fn take(&mut self, mut sample: Sample) {
        self.history.retain(|number, _| sample.disks.iter().any(|disk| disk.number == *number));
        for disk in &sample.disks {
            let history = self.history.entry(disk.number).or_default();
            if history.len() == HISTORY {
                history.pop_front();
            }
            history.push_back(disk.iops as u64);
        }
        if !self.is_paused {
            sort(&mut sample, self.sort);
            self.sample = Some(sample);
            self.move_by(0);
        }
    }

    /// Handles a key.
    pub(super) fn press(&mut self, key: KeyEvent) -> After {
        if self.shows_help {
            self.shows_help = false;
            // Any key closes the help, and these two quit as well.
            if !is_quit(key) {
                return After::Stay;
            }
        }
        if is_quit(key) {
            return After::Quit;
        }
        match key.code {
            KeyCode::Up | KeyCode::Char('k') => self.move_by(-1),
            KeyCode::Down | KeyCode::Char('j') => self.move_by(1),
            KeyCode::PageUp => self.move_by(-10),
            KeyCode::PageDown => self.move_by(10),
            KeyCode::Home => self.move_by(isize::MIN / 2),
            KeyCode::End => self.move_by(isize::MAX / 2),
            KeyCode::Tab | KeyCode::Right => self.turn(1),
            KeyCode::BackTab | KeyCode::Left => self.turn(Tab::ALL.len() - 1),
            KeyCode::Char('s') => {
                let at = Sort::ALL.iter().position(|it| *it == self.sort).unwrap_or(0);
                self.sort = Sort::ALL[(at + 1) % Sort::ALL.len()];
                let order = self.sort;
                if let Some(sample) = &mut self.sample {
                    sort(sample, order);
                }
            }
            KeyCode::Char('p' | ' ') => self.is_paused = !self.is_paused,
            KeyCode::Char('?' | 'h') => self.shows_help = true,
            _ => {}
        }
        After::Stay
    }

    /// Returns the place of the selected row.
    pub(super) fn selected(&self) -> usize {
        self.selected[self.tab as usize]
    }

    /// Returns the selected disk.
    pub(super) fn disk(&self) -> Option<&DiskSample> {
        self.sample.as_ref()?.disks.get(self.selected[Tab::Disks as usize])
    }

    /// Returns the IOPS of a disk, the oldest first.
    pub(super) fn history(&self, disk: &DiskSample) -> Vec<u64> {
        self.history.get(&disk.number).into_iter().flatten().copied().collect()
    }

    fn turn(&mut self, by: usize) {
        self.tab = Tab::ALL[(self.tab as usize + by) % Tab::ALL.len()];
        self.move_by(0);
    }

    /// Moves the selection, and keeps it within the rows.
    fn move_by(&mut self, by: isize) {
        let nr_rows = self.sample.as_ref().map_or(0, |sample| match self.tab {
            Tab::Disks => sample.disks.len(),
            Tab::Exports => sample.exports.len(),
            Tab::Owners => sample.owners.len(),
        });
        let place = &mut self.selected[self.tab as usize];
        *place = place.saturating_add_signed(by).min(nr_rows.saturating_sub(1));
    }
}

fn is_quit(key: KeyEvent) -> bool {
    let is_control_c = key.code == KeyCode::Char('c') && key.modifiers == KeyModifiers::CONTROL;
    is_control_c || matches!(key.code, KeyCode::Char('q') | KeyCode::Esc)
}

/// Sorts the rows of all tables. Equal ones keep their order.
fn sort(sample: &mut Sample, by: Sort) {
    let falling = |one: f64, other: f64| other.total_cmp(&one);
    sample.disks.sort_by(|one, other| match by {
        Sort::Age => one.number.cmp(&other.number),
        Sort::Name => one.name.cmp(&other.name),
        Sort::Iops => falling(one.iops, other.iops),
        Sort::Bytes => {
            falling(one.read_bytes + one.written_bytes, other.read_bytes + other.written_bytes)
        }
    });
    sample.exports.sort_by(|one, other| match by {
        Sort::Age => Ordering::Equal,
        Sort::Name => one.name.cmp(&other.name),
        Sort::Iops => falling(one.requests, other.requests),
        Sort::Bytes => {
            falling(one.read_bytes + one.written_bytes, other.read_bytes + other.written_bytes)
        }
    });
    sample.owners.sort_by(|one, other| match by {
        Sort::Age => Ordering::Equal,
        Sort::Name => (&one.parent, &one.name).cmp(&(&other.parent, &other.name)),
        Sort::Iops => falling(one.iops, other.iops),
        Sort::Bytes => falling(one.bytes, other.bytes),
    });
}
