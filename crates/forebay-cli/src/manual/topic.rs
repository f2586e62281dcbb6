//! The topics of `forebay help` as manual pages.
//!
//! A topic is Markdown with few marks: headings, paragraphs, lists of one level, blocks of code,
//! and code within a line.

use clap_mangen::roff::{Inline, Roff, bold, roman};

use super::{Page, tidied};

/// Returns the page of a topic. `about` completes its name in lists of pages.
pub(super) fn page(name: &str, about: &str, markdown: &str) -> Page {
    let words = name.to_owned();
    let name = format!("forebay-{name}");
    let mut roff = Roff::new();
    roff.control("TH", [name.as_str(), "7"]);
    roff.control("SH", ["NAME"]);
    roff.text([roman(format!("{name} - {about}"))]);
    roff.control("SH", ["DESCRIPTION"]);
    body(&mut roff, markdown);
    roff.control("SH", ["SEE ALSO"]);
    references(&mut roff, [("forebay", "1"), ("forebay-bench", "1")].into_iter());
    let text = tidied(&roff.to_roff(), &name, "7");
    Page { name, words, section: "7", text }
}

/// Adds the text of a topic, without its title.
fn body(roff: &mut Roff, markdown: &str) {
    let (mut is_code, mut is_item) = (false, false);
    // A heading begins a paragraph, and so does an item of a list.
    let mut is_after_blank = false;
    for line in markdown.lines() {
        if line.starts_with("```") {
            is_code = !is_code;
            match is_code {
                true => roff.control("IP", []).control("nf", []),
                false => roff.control("fi", []),
            };
            is_after_blank = false;
        } else if is_code {
            roff.text([roman(line)]);
        } else if line.is_empty() {
            is_after_blank = true;
            is_item = false;
        } else if let Some(heading) = line.strip_prefix("## ") {
            roff.control("SH", [heading.to_uppercase().replace('`', "").as_str()]);
            is_after_blank = false;
        } else if line.starts_with("# ") {
            is_after_blank = false;
        } else if let Some(item) = line.strip_prefix("- ") {
            roff.control("IP", ["\\(bu", "2"]).text(inline(item));
            (is_item, is_after_blank) = (true, false);
        } else {
            if is_after_blank && !is_item {
                roff.control("PP", []);
            }
            is_after_blank = false;
            roff.text(inline(line.trim_start()));
        }
    }
}

/// Adds text whose paragraphs are separated by empty lines.
pub(super) fn paragraphs(roff: &mut Roff, text: &str) {
    for (nr, paragraph) in text.trim().split("\n\n").enumerate() {
        if nr > 0 {
            roff.control("PP", []);
        }
        paragraph.lines().for_each(|line| _ = roff.text([roman(line.trim())]));
    }
}

/// Adds names of other pages, with their sections.
pub(super) fn references<'a>(roff: &mut Roff, pages: impl Iterator<Item = (&'a str, &'a str)>) {
    let mut line = Vec::new();
    for (name, section) in pages {
        if !line.is_empty() {
            line.push(roman(", "));
        }
        line.extend([bold(name), roman(format!("({section})"))]);
    }
    roff.text(line);
}

/// Returns a line with its code in bold.
fn inline(line: &str) -> Vec<Inline> {
    let parts = line.split('`').enumerate().filter(|(_, part)| !part.is_empty());
    parts.map(|(nr, part)| if nr % 2 == 1 { bold(part) } else { roman(part) }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn markdown_becomes_requests_of_man() {
        let page =
            page("x", "a page", "# X\n\nFirst `a-b`.\n\n## H `k`\n\n- `c`: d\n  .e\n\nEnd\n");
        let expected = format!(".TH forebay-x 7 {} \"forebay 0.", super::super::DATE);
        assert!(page.text.contains(&expected), "{}", page.text);
        let expected = ".SH DESCRIPTION\nFirst \\fBa\\-b\\fR.\n\
                        .SH \"H K\"\n.IP \\(bu 2\n\\fBc\\fR: d\n\\&.e\n\
                        .PP\nEnd\n.SH \"SEE ALSO\"\n\\fBforebay\\fR(1), ";
        assert!(page.text.contains(expected), "{}", page.text);
    }
}
