//! Pages and figures in a browser: no text is cut off or covers another, at two widths and with the
//! colours of light and dark pages.

use std::fs;
use std::path::{Path, PathBuf};

use super::{cannot, forebay, read};
use crate::Outcome;
use crate::command::{Line, root, target};
use crate::tools;

/// Names of the browser.
const PROGRAMS: [&str; 3] = ["chromium", "chromium-browser", "google-chrome"];

/// The widths of a phone and of a laptop, in CSS pixels.
const WIDTHS: [u32; 2] = [360, 1280];

/// The preferred colours, as the browser numbers them.
const SCHEMES: [(&str, u32); 2] = [("light", 1), ("dark", 0)];

/// The script that looks for faults in a frame, and prints them between two marks.
const SCRIPT: &str = include_str!("layout.js");
const MARKS: (&str, &str) = ("FAULTS-BEGIN\n", "FAULTS-END");

/// Pages of a run, with the options that make them.
const PAGES: [(&str, &str); 2] = [
    (
        "run",
        "bench --eta=never --filename=ram:16M --name=first --rw=randrw --iodepth=8 \
         --runtime=300ms --time_based --name=second-job-with-a-long-name --rw=read \
         --runtime=300ms --time_based",
    ),
    (
        "sweep",
        "bench --eta=never --filename=model:nvme?data=off --name=a --rw=randread \
         --runtime=100ms --time_based --sweep=iodepth=1..128",
    ),
];

/// Figures, with the options that print them.
const FIGURES: [(&str, &str); 2] = [
    (
        "compare",
        "bench --eta=never --filename=ram:16M --name=a --rw=randread --runtime=100ms --time_based \
         --iodepth=16 --compare=?plug=none --compare-pairs=5 --compare-format=svg",
    ),
    (
        "compare-writes",
        "bench --eta=never --filename=ram:16M --name=a --rw=randrw --rwmixread=30 --bs=4k,64k \
         --runtime=100ms --time_based --compare=ram:16M?req_ns=1000000&queue_depth=8 \
         --compare-pairs=2 --compare-format=svg",
    ),
];

/// Opens every kind of page and figure. `drawn` has the figures of the experiments, `pages` are
/// theirs.
pub(super) fn check(drawn: &Path, mut pages: Vec<PathBuf>) -> Outcome {
    let Some(program) = PROGRAMS.into_iter().find(|name| Line::new(name, "--version").succeeds())
    else {
        let text = "no browser is installed: apt-get install chromium";
        if tools::are_required() {
            return Err(format!("pictures: {text}"));
        }
        println!("pictures: SKIPPED the check in a browser, {text}");
        return Ok(());
    };
    for (name, options) in PAGES {
        let page = drawn.join(format!("{name}.html"));
        forebay(options).argument(format!("--html={}", page.display())).output()?;
        pages.push(page);
    }
    let mut figures = vec![root().join("docs/plug.svg")];
    figures.extend(super::files().map(|name| drawn.join(name)));
    for (name, options) in FIGURES {
        let figure = drawn.join(format!("{name}.svg"));
        let svg = forebay(options).output()?;
        fs::write(&figure, svg).map_err(|error| cannot("write", &figure, &error))?;
        figures.push(figure);
    }
    figures.push(front(drawn)?);
    let gallery = drawn.join("gallery.html");
    fs::write(&gallery, gallery_of(&figures)?)
        .map_err(|error| cannot("write", &gallery, &error))?;
    pages.push(gallery);
    let all = drawn.join("all.html");
    fs::write(&all, frames(&pages)?).map_err(|error| cannot("write", &all, &error))?;
    let mut nr_texts = 0;
    let mut faults = Vec::new();
    for (scheme, number) in SCHEMES {
        let found = parse(&open(program, &all, number)?, scheme, pages.len() * WIDTHS.len())?;
        nr_texts += found.nr_texts;
        faults.extend(found.faults);
    }
    faults.iter().for_each(|fault| println!("pictures: {fault}"));
    match faults.len() {
        0 => {
            println!("pictures: {nr_texts} texts on {} pages have no fault", pages.len());
            Ok(())
        }
        nr => Err(format!("pictures: {nr} faults in a browser")),
    }
}

/// Draws the front of a load that the simulator records.
fn front(drawn: &Path) -> Result<PathBuf, String> {
    let (trace, figure) = (drawn.join("front.trace"), drawn.join("front.svg"));
    if trace.exists() {
        fs::remove_dir_all(&trace).map_err(|error| cannot("remove", &trace, &error))?;
    }
    let job = root().join("crates/forebay-cli/examples/random.fio");
    let record = forebay("sim --seed=1").argument(job.display().to_string());
    record.argument(format!("--write-trace={}", trace.display())).output()?;
    forebay("sim --seed=1 --device=ssd-sas --sweep=queue_depth=1,2,4,32 --sweep=wake=fair,batch")
        .argument(format!("--trace={}", trace.display()))
        .argument(format!("--svg={}", figure.display()))
        .output()?;
    Ok(figure)
}

/// Returns a page of these figures. Each has its own style sheet, as in a file of its own.
fn gallery_of(figures: &[PathBuf]) -> Result<String, String> {
    let mut page = "<!doctype html>\n<html lang=\"en\"><meta charset=\"utf-8\">\
                    <meta name=\"viewport\" content=\"width=device-width,initial-scale=1\">\
                    <title>Figures</title><body style=\"margin:0\">\n"
        .to_owned();
    for figure in figures {
        let svg = String::from_utf8_lossy(&read(figure)?).into_owned();
        page += &format!(
            "<div data-name=\"{}\"><template shadowrootmode=\"open\"><style>svg{{display:block;\
             max-width:100%;height:auto}}</style>{svg}</template></div>\n",
            figure.file_name().unwrap_or_default().to_string_lossy()
        );
    }
    Ok(page + "</body></html>\n")
}

/// Returns a page with a frame for each page and width. A window of the browser cannot be as narrow
/// as a phone, but a frame can.
fn frames(pages: &[PathBuf]) -> Result<String, String> {
    let mut all = "<!doctype html>\n<meta charset=\"utf-8\"><body>\n".to_owned();
    for page in pages {
        let html = String::from_utf8_lossy(&read(page)?).into_owned();
        let html = html.replace("</body>", &format!("<script>{SCRIPT}</script></body>"));
        let html = html.replace('&', "&amp;").replace('"', "&quot;");
        let name = page.file_name().unwrap_or_default().to_string_lossy();
        for width in WIDTHS {
            all += &format!(
                "<iframe data-name=\"{name}\" style=\"border:0;width:{width}px;height:1000px\" \
                 srcdoc=\"{html}\"></iframe>\n"
            );
        }
    }
    Ok(all + "</body>\n")
}

/// Opens a page, and returns its document after the scripts have run.
fn open(program: &'static str, page: &Path, scheme: u32) -> Result<String, String> {
    // Without its own sandbox it also runs as root.
    Line::new(program, "--headless=new --no-sandbox --disable-gpu --no-first-run --dump-dom")
        .argument(format!("--user-data-dir={}", target("pictures/profile")))
        .argument("--window-size=1400,1000".to_owned())
        .argument(format!("--blink-settings=preferredColorScheme={scheme}"))
        .argument(format!("file://{}", page.display()))
        .limit(120)
        .output_of_noisy()
}

/// The result of the script in all frames.
#[derive(Debug, PartialEq, Eq)]
struct Found {
    nr_texts: usize,
    faults: Vec<String>,
}

/// Reads the output of the scripts in so many frames.
fn parse(document: &str, scheme: &str, nr_frames: usize) -> Result<Found, String> {
    let mut found = Found { nr_texts: 0, faults: Vec::new() };
    let outputs = document.split(MARKS.0).skip(1).filter_map(|it| it.split_once(MARKS.1));
    let mut seen = 0;
    for (output, _) in outputs {
        let mut lines = output.lines();
        let name = lines.next().unwrap_or_default();
        let head: Vec<_> = lines.next().unwrap_or_default().split(' ').collect();
        let [width, used, nr] = head[..] else { continue };
        if used != scheme || !WIDTHS.iter().any(|known| width == known.to_string()) {
            return Err(format!("pictures: {name} was shown {used} and {width} pixels wide"));
        }
        match nr.parse::<usize>() {
            Ok(nr) if nr > 0 => found.nr_texts += nr,
            _ => return Err(format!("pictures: {name} has no figure with texts")),
        }
        found.faults.extend(lines.map(|fault| format!("{name}, {width} pixels, {used}: {fault}")));
        seen += 1;
    }
    match seen == nr_frames {
        true => Ok(found),
        false => Err(format!("pictures: the script has run in {seen} of {nr_frames} frames")),
    }
}

#[cfg(test)]
mod tests {
    use super::parse;

    /// Returns the output of a frame.
    fn frame(head: &str, faults: &str) -> String {
        format!("<html><pre>FAULTS-BEGIN\na.html\n{head}\n{faults}FAULTS-END</pre>")
    }

    #[test]
    fn faults_are_the_lines_after_the_number_of_texts() {
        let both = frame("360 dark 12", "it is cut off\n") + &frame("1280 dark 3", "");
        let found = parse(&both, "dark", 2).unwrap();
        assert_eq!(found.nr_texts, 15);
        assert_eq!(found.faults, ["a.html, 360 pixels, dark: it is cut off"]);
    }

    #[test]
    fn a_page_that_was_not_shown_as_wanted_is_an_error() {
        let error = |document: &str| parse(document, "light", 1).unwrap_err();
        assert!(error(&frame("360 dark 12", "")).contains("a.html was shown dark"));
        assert!(error(&frame("500 light 12", "")).contains("500 pixels wide"));
        assert!(error(&frame("360 light 0", "")).contains("has no figure"));
        assert!(error("<html>").contains("0 of 1 frames"));
    }
}
