//! Checks that the figures in README.md and docs/ are those of the tables in bench/.

const TABLES: [(&str, &str); 8] = [
    ("RESULTS.md", include_str!("../RESULTS.md")),
    ("DURABLE.md", include_str!("../DURABLE.md")),
    ("AIO.md", include_str!("../AIO.md")),
    ("FIO.md", include_str!("../FIO.md")),
    ("LIBRARY.md", include_str!("../LIBRARY.md")),
    ("NBD.md", include_str!("../NBD.md")),
    ("RBD.md", include_str!("../RBD.md")),
    ("VHOST.md", include_str!("../VHOST.md")),
];

const README: &str = include_str!("../../README.md");

const PAGES: [(&str, &str); 3] = [
    ("README.md", README),
    ("docs/guide.md", include_str!("../../docs/guide.md")),
    ("docs/lab.md", include_str!("../../docs/lab.md")),
];

/// Returns every ratio with its range in a line, such as `0.99 (0.86-0.99)`.
fn ratios(line: &str) -> impl Iterator<Item = &str> {
    let is_of_number = |c: char| c.is_ascii_digit() || c == '.';
    line.match_indices(" (").filter_map(move |(at, _)| {
        let before = &line[..at];
        let ratio = &before[before.trim_end_matches(is_of_number).len()..];
        let len = line[at + 2..].find(')')?;
        let (low, high) = line[at + 2..at + 2 + len].split_once('-')?;
        let is_ratio = [ratio, low, high].iter().all(|text| {
            text.len() >= 4 && text.chars().all(is_of_number) && text.parse::<f64>().is_ok()
        });
        is_ratio.then(|| &line[at - ratio.len()..at + 3 + len])
    })
}

/// Returns the IOPS in a line that are written in thousands, such as `564k`.
fn thousands(line: &str) -> impl Iterator<Item = u64> {
    let words = line.split(|c: char| !c.is_ascii_alphanumeric());
    let number = |word: &str| word.strip_suffix('k')?.parse().ok();
    words.filter_map(number).filter(|number| *number >= 32)
}

/// Returns whether a table line has a number that rounds to `thousands` thousand.
fn rounds_to(line: &str, thousands: u64) -> bool {
    let words = line.split(|c: char| !c.is_ascii_digit() && c != '.');
    words.filter_map(|word| word.parse::<u64>().ok()).any(|nr| (nr + 500) / 1000 == thousands)
}

fn lines_with(ratio: &str) -> Vec<&'static str> {
    let lines = TABLES.iter().flat_map(|(_, table)| table.lines());
    // A longer number must not match: 11.02 is not 1.02.
    let framed = format!(" {ratio} ");
    lines.filter(|line| line.contains(&framed)).collect()
}

#[test]
fn every_ratio_is_that_of_a_table() {
    let mut nr = 0;
    for (page, text) in PAGES {
        for ratio in text.lines().flat_map(ratios) {
            assert!(!lines_with(ratio).is_empty(), "{page}: no table in bench/ has {ratio}");
            nr += 1;
        }
    }
    assert!(nr > 15, "only {nr} ratios were found");
}

#[test]
fn the_iops_of_a_row_are_those_beside_its_ratio() {
    let mut nr = 0;
    for row in README.lines().filter(|line| line.starts_with("| ")) {
        let Some(ratio) = ratios(row).next() else { continue };
        let sources = lines_with(ratio);
        for iops in thousands(row) {
            let found = sources.iter().any(|line| rounds_to(line, iops));
            assert!(found, "README.md: {iops}k is not beside {ratio} in bench/:\n{row}");
            nr += 1;
        }
    }
    assert!(nr > 10, "only {nr} IOPS were found");
}

#[test]
fn the_processor_times_of_a_row_are_cells_of_the_tables() {
    let cells: Vec<&str> =
        TABLES.iter().flat_map(|(_, table)| table.split('|').map(str::trim)).collect();
    let mut nr = 0;
    for row in README.lines().filter(|line| line.starts_with("| ")) {
        let pairs = row.split(" | ").filter_map(|cell| cell.split_once(": ")?.0.split_once(", "));
        for time in pairs.flat_map(<[&str; 2]>::from) {
            let is_time = time.parse::<f64>().is_ok() && time.contains('.');
            assert!(!is_time || cells.contains(&time), "README.md: {time} is no cell in bench/");
            nr += usize::from(is_time);
        }
    }
    assert!(nr > 10, "only {nr} times were found");
}

#[test]
fn the_parsers_find_what_is_there() {
    let row = "| random 4k reads | 155k | fio: 154k | 1.02 (0.95-1.03) | 11.04 (1.01-51.05) |";
    assert_eq!(ratios(row).collect::<Vec<_>>(), ["1.02 (0.95-1.03)", "11.04 (1.01-51.05)"]);
    assert_eq!(thousands(row).collect::<Vec<_>>(), [155, 154]);
    assert!(rounds_to("| IOPS | 155240 | 153719 |", 154) && !rounds_to("| 155240.5 |", 155));
}
