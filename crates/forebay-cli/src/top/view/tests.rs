//! The view as text, on screens of several sizes.

use super::super::answer::{Answer, tests::after};
use super::super::sample::Sample;
use super::super::tests::check_snapshot;
use super::app::{After, App, Sort, Tab};
use super::draw;
use ratatui::Terminal;
use ratatui::backend::TestBackend;
use ratatui::buffer::Buffer;
use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use ratatui::style::Color;

/// Returns a view that has seen samples of a steady load.
fn app(has_colours: bool) -> App {
    let mut app = App::new("run/control".to_owned(), has_colours);
    for second in 1..4 {
        app.take(sample(second));
    }
    app
}

fn sample(second: u64) -> Sample {
    let answer = |seconds| Answer::parse(after(seconds)).expect("an answer");
    Sample::between(&answer(second), &answer(second + 1))
}

fn screen(app: &mut App, (width, height): (u16, u16)) -> Buffer {
    let mut terminal = Terminal::new(TestBackend::new(width, height)).expect("a screen");
    terminal.draw(|frame| draw::draw(frame, app)).expect("it draws");
    terminal.backend().buffer().clone()
}

/// Returns the lines of a screen, without the blanks at their ends.
fn text(buffer: &Buffer) -> String {
    let width = usize::from(buffer.area.width);
    let cells: Vec<_> = buffer.content().iter().map(|cell| cell.symbol()).collect();
    cells.chunks(width).map(|line| line.concat().trim_end().to_owned() + "\n").collect()
}

fn press(app: &mut App, code: KeyCode) -> After {
    app.press(KeyEvent::new(code, KeyModifiers::NONE))
}

#[test]
fn tables_and_the_panel_are_complete_on_small_and_large_screens() {
    for (name, size) in [("80x24", (80, 24)), ("160x50", (160, 50))] {
        let mut app = app(true);
        check_snapshot(&format!("disks-{name}"), &text(&screen(&mut app, size)));
        press(&mut app, KeyCode::Tab);
        check_snapshot(&format!("exports-{name}"), &text(&screen(&mut app, size)));
        press(&mut app, KeyCode::Tab);
        check_snapshot(&format!("owners-{name}"), &text(&screen(&mut app, size)));
        press(&mut app, KeyCode::Char('?'));
        check_snapshot(&format!("help-{name}"), &text(&screen(&mut app, size)));
    }
}

#[test]
fn clients_of_an_export_have_distinct_names_on_screens_of_any_width() {
    for width in [76, 80, 100, 120, 140, 160] {
        let mut app = app(true);
        press(&mut app, KeyCode::Tab);
        press(&mut app, KeyCode::Tab);
        let screen = text(&screen(&mut app, (width, 24)));
        let names = screen.lines().skip(3).take(3).map(|line| line.split(' ').next());
        let names: Vec<_> = names.map(|name| name.expect("a name")).collect();
        assert!(names[1].ends_with(":7") && names[2].ends_with(":8"), "{screen}");
    }
}

#[test]
fn screen_of_any_size_can_be_drawn() {
    let mut app = app(true);
    for width in [1, 10, 39, 40, 60, 79, 81, 250] {
        for height in [1, 3, 9, 10, 17, 18, 100] {
            for _ in Tab::ALL {
                screen(&mut app, (width, height));
                press(&mut app, KeyCode::Tab);
            }
        }
    }
    let small = text(&screen(&mut app, (39, 9)));
    assert!(small.starts_with("at least 40x10 characters are needed\n"), "{small}");
    let waiting = text(&screen(&mut App::new("run/control".to_owned(), true), (80, 24)));
    assert!(waiting.starts_with("run/control: waiting for the first interval\n"), "{waiting}");
}

#[test]
fn view_without_colours_shows_the_same_text() {
    let (mut with, mut without) = (app(true), app(false));
    let [coloured, plain] = [&mut with, &mut without].map(|app| screen(app, (80, 24)));
    assert_eq!(text(&coloured), text(&plain));
    let has_colour = |buffer: &Buffer| {
        let mut cells = buffer.content().iter();
        cells.any(|cell| cell.fg != Color::Reset || cell.bg != Color::Reset)
    };
    assert!(has_colour(&coloured) && !has_colour(&plain));
}

#[test]
fn keys_select_sort_pause_and_quit() {
    let mut app = app(true);
    let disk = |app: &App| app.disk().expect("a disk").name.clone();
    assert_eq!(disk(&app), "vm1.img");
    press(&mut app, KeyCode::Down);
    press(&mut app, KeyCode::Down);
    assert_eq!(disk(&app), "vm2.img", "the last row");
    press(&mut app, KeyCode::Home);
    assert_eq!(disk(&app), "vm1.img");
    for expected in [Sort::Name, Sort::Iops, Sort::Bytes, Sort::Age] {
        press(&mut app, KeyCode::Char('s'));
        assert_eq!(app.sort, expected);
    }
    press(&mut app, KeyCode::Char('p'));
    let shown = app.sample.as_ref().map(|sample| sample.process.uptime_seconds);
    app.take(sample(9));
    assert_eq!(app.sample.as_ref().map(|sample| sample.process.uptime_seconds), shown);
    assert!(text(&screen(&mut app, (80, 24))).contains("PAUSED"));
    assert_eq!(app.history(app.disk().expect("a disk")).len(), 4, "the history goes on");
    press(&mut app, KeyCode::Char(' '));
    app.take(sample(9));
    assert_ne!(app.sample.as_ref().map(|sample| sample.process.uptime_seconds), shown);
    press(&mut app, KeyCode::BackTab);
    assert_eq!(app.tab, Tab::Owners);
    assert_eq!(press(&mut app, KeyCode::Char('c')), After::Stay);
    let control_c = KeyEvent::new(KeyCode::Char('c'), KeyModifiers::CONTROL);
    assert_eq!(app.press(control_c), After::Quit);
    assert_eq!(press(&mut app, KeyCode::Char('q')), After::Quit);
}

#[test]
fn selection_follows_when_rows_disappear() {
    let mut app = app(true);
    press(&mut app, KeyCode::End);
    let mut fewer = sample(5);
    fewer.disks.truncate(1);
    app.take(fewer);
    assert_eq!(app.disk().expect("a disk").name, "vm1.img");
    let mut none = sample(6);
    none.disks.clear();
    app.take(none);
    assert!(app.disk().is_none());
    assert!(text(&screen(&mut app, (80, 24))).contains(" no disk is open\n"));
}
