//! Drawing of the live view.

use super::super::columns::{Column, DISKS, EXPORTS, OWNERS, shortened};
use super::super::sample::{DiskSample, StageSample};
use super::super::text::{lists, stage_row, title};
use super::app::{App, Tab};
use ratatui::Frame;
use ratatui::layout::{Alignment, Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span, Text};
use ratatui::widgets::{Block, Cell, Clear, Paragraph, Row, Sparkline, Table, TableState, Wrap};

/// The smallest screen on which the view makes sense.
const SMALLEST: (u16, u16) = (40, 10);

/// Lines of the panel of the selected disk, with its frame.
const PANEL: u16 = 10;

/// More lines for the history on a high screen.
const TALLER: u16 = 8;

/// Keys, and what they do.
const KEYS: [(&str, &str); 7] = [
    ("Up, Down, j, k", "select a row; also PageUp, PageDown, Home, End"),
    ("Tab, Left, Right", "show disks, exports or owners"),
    ("s", "sort by age, name, IOPS or bytes"),
    ("p, Space", "pause, and go on"),
    ("?, h", "show this help"),
    ("q, Esc, Ctrl-C", "quit"),
    ("any key", "close this help"),
];

/// Explanations in the help.
const NOTES: &str = "\
IOPS are I/Os as callers made them, REQ/s requests at the device. MERGED is the share of I/Os \
that joined the request of another one. BUSY is the share of the time with a request at the \
device. MEAN and P99 of a disk are times at the device. For an owner, they begin at the unplug or \
when the last limit releases the I/O; DEVICE is the mean time at the device. MAX DEPTH limits \
DEPTH while a peer misses its latency goal. A wait is a rate and a mean time. Stages: plug, until \
the plug is unplugged; tag, until the request has a tag; queue, until it is issued; driver, until \
it completes. RECEIVE, REC P99: until a client's request is submitted; AT DISK, DISK P99: after \
that. FLUSH (asked) is 0 without a volatile cache.";

/// Returns whether the view may have colours.
pub(super) fn has_colours() -> bool {
    std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty())
}

/// Draws the view.
pub(super) fn draw(frame: &mut Frame<'_>, app: &mut App) {
    let area = frame.area();
    if area.width < SMALLEST.0 || area.height < SMALLEST.1 {
        let text = format!("at least {}x{} characters are needed", SMALLEST.0, SMALLEST.1);
        frame.render_widget(Paragraph::new(text).wrap(Wrap { trim: true }), area);
        return;
    }
    // A low screen shows the table only.
    let panel = match area.height {
        _ if app.tab != Tab::Disks => 0,
        40.. => PANEL + TALLER,
        18.. => PANEL,
        _ => 0,
    };
    let [head, tabs, table, panel, foot] = Layout::vertical([
        Constraint::Length(1),
        Constraint::Length(1),
        Constraint::Min(3),
        Constraint::Length(panel),
        Constraint::Length(1),
    ])
    .areas(area);
    draw_head(frame, app, head);
    draw_tabs(frame, app, tabs);
    draw_table(frame, app, table);
    if panel.height > 0
        && let Some(disk) = app.disk()
    {
        draw_panel(frame, app, disk, panel);
    }
    let keys = " q quit   Tab next table   Up/Down select   s sort   p pause   ? help";
    frame.render_widget(Paragraph::new(keys).style(dim(app)), foot);
    if app.shows_help {
        draw_help(frame, app, area);
    }
}

/// Returns the style of text that matters less.
fn dim(app: &App) -> Style {
    if app.has_colours { Style::new().fg(Color::DarkGray) } else { Style::new() }
}

fn bold(app: &App, color: Color) -> Style {
    let style = Style::new().add_modifier(Modifier::BOLD);
    if app.has_colours { style.fg(color) } else { style }
}

fn draw_head(frame: &mut Frame<'_>, app: &App, area: Rect) {
    let text = match &app.sample {
        Some(sample) => title(sample),
        None => format!("{}: waiting for the first interval", app.path),
    };
    frame.render_widget(Paragraph::new(Span::styled(text, bold(app, Color::Cyan))), area);
}

fn draw_tabs(frame: &mut Frame<'_>, app: &App, area: Rect) {
    let number = |tab: Tab| {
        app.sample.as_ref().map_or(0, |sample| match tab {
            Tab::Disks => sample.disks.len(),
            Tab::Exports => sample.exports.len(),
            Tab::Owners => sample.owners.len(),
        })
    };
    let mut spans = Vec::new();
    for tab in Tab::ALL {
        let text = format!("{} {}", tab.name(), number(tab));
        match tab == app.tab {
            // The brackets show the choice without colours, too.
            true => spans.push(Span::styled(format!("[{text}]"), bold(app, Color::Yellow))),
            false => spans.push(Span::raw(format!(" {text} "))),
        }
        spans.push(Span::raw("  "));
    }
    spans.push(Span::styled(format!("sorted by {}", app.sort.name()), dim(app)));
    if app.is_paused {
        spans.push(Span::styled("  PAUSED", bold(app, Color::Red)));
    }
    frame.render_widget(Paragraph::new(Line::from(spans)), area);
}

fn draw_table(frame: &mut Frame<'_>, app: &App, area: Rect) {
    let Some(sample) = &app.sample else { return };
    match app.tab {
        Tab::Disks => rows(frame, app, area, &DISKS, &sample.disks, "no disk is open"),
        Tab::Exports => {
            let none = "no exports: this process is not a server";
            rows(frame, app, area, &EXPORTS, &sample.exports, none);
        }
        Tab::Owners => {
            let none = "no owners: no disk has limits, weights or priorities of submitters";
            rows(frame, app, area, &OWNERS, &sample.owners, none);
        }
    }
}

fn rows<T>(
    frame: &mut Frame<'_>,
    app: &App,
    area: Rect,
    columns: &[Column<T>],
    rows: &[T],
    none: &str,
) {
    if rows.is_empty() {
        frame.render_widget(Paragraph::new(format!("\n {none}")), area);
        return;
    }
    let columns: Vec<_> = columns.iter().filter(|it| it.from_width <= area.width).collect();
    let cell = |at: usize, text: String| {
        let alignment = if at == 0 { Alignment::Left } else { Alignment::Right };
        Cell::from(Text::from(text).alignment(alignment))
    };
    let head = columns.iter().enumerate().map(|(at, it)| cell(at, it.title.to_owned()));
    let head = Row::new(head).style(bold(app, Color::Blue));
    let others: u16 = columns.iter().skip(1).map(|column| column.width + 1).sum();
    let first =
        columns.first().map_or(0, |column| column.width).max(area.width.saturating_sub(others));
    let body = rows.iter().map(|row| {
        Row::new(columns.iter().enumerate().map(|(at, column)| match at {
            0 => cell(at, shortened((column.cell)(row), first.into())),
            _ => cell(at, (column.cell)(row)),
        }))
    });
    let widths = columns.iter().enumerate().map(|(at, column)| match at {
        0 => Constraint::Min(column.width),
        _ => Constraint::Length(column.width),
    });
    let table = Table::new(body, widths)
        .header(head)
        .column_spacing(1)
        .row_highlight_style(Style::new().add_modifier(Modifier::REVERSED));
    let mut state = TableState::new().with_selected(app.selected());
    frame.render_stateful_widget(table, area, &mut state);
}

fn draw_panel(frame: &mut Frame<'_>, app: &App, disk: &DiskSample, area: Rect) {
    let block = Block::bordered().title(format!(" {} ", disk.spec)).border_style(dim(app));
    let inside = block.inner(area);
    frame.render_widget(block, area);
    let [left, _, right] =
        Layout::horizontal([Constraint::Length(39), Constraint::Length(1), Constraint::Min(10)])
            .areas(inside);
    let [stages, _, chart] =
        Layout::vertical([Constraint::Length(5), Constraint::Length(1), Constraint::Min(1)])
            .areas(left);
    draw_stages(frame, app, &disk.stages, stages);
    draw_history(frame, app, disk, chart);
    let lines = lists(disk).map(|(name, list)| {
        Line::from(vec![Span::styled(format!("{name}: "), bold(app, Color::Blue)), Span::raw(list)])
    });
    frame.render_widget(Paragraph::new(lines.to_vec()).wrap(Wrap { trim: true }), right);
}

fn draw_stages(frame: &mut Frame<'_>, app: &App, stages: &[StageSample], area: Rect) {
    let row = |cells: [String; 5]| {
        let [name, rest @ ..] = cells;
        let rest = rest.map(|text| Cell::from(Text::from(text).alignment(Alignment::Right)));
        Row::new(std::iter::once(Cell::from(name)).chain(rest))
    };
    let head = ["stage", "per s", "mean", "p50", "p99"].map(str::to_owned);
    let widths = [7, 7, 7, 7, 7].map(Constraint::Length);
    let table = Table::new(stages.iter().map(|stage| row(stage_row(stage))), widths);
    frame.render_widget(table.header(row(head).style(bold(app, Color::Blue))), area);
}

/// Draws the IOPS of the last samples, the newest at the right.
fn draw_history(frame: &mut Frame<'_>, app: &App, disk: &DiskSample, area: Rect) {
    let [name, chart] = Layout::horizontal([Constraint::Length(5), Constraint::Min(1)]).areas(area);
    frame.render_widget(Paragraph::new("IOPS").style(bold(app, Color::Blue)), name);
    let history = app.history(disk);
    let shown = &history[history.len().saturating_sub(usize::from(chart.width))..];
    let style = if app.has_colours { Style::new().fg(Color::Green) } else { Style::new() };
    let largest = shown.iter().copied().max().unwrap_or(0).max(1);
    frame.render_widget(Sparkline::default().data(shown).max(largest).style(style), chart);
}

fn draw_help(frame: &mut Frame<'_>, app: &App, area: Rect) {
    let width = area.width.min(72);
    let mut lines: Vec<Line<'_>> = KEYS
        .iter()
        .map(|(key, what)| {
            Line::from(vec![
                Span::styled(format!("{key:<18}"), bold(app, Color::Yellow)),
                Span::raw(*what),
            ])
        })
        .collect();
    lines.push(Line::default());
    lines.push(Line::raw(NOTES));
    let height = area.height.min(21);
    let at = Rect {
        x: area.x + (area.width - width) / 2,
        y: area.y + (area.height - height) / 2,
        width,
        height,
    };
    frame.render_widget(Clear, at);
    let block = Block::bordered().title(" Keys ");
    frame.render_widget(Paragraph::new(lines).block(block).wrap(Wrap { trim: true }), at);
}
