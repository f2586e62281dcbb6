//! HTML pages of charts, tables and text. A page is one file: it loads nothing and runs no script.

use std::fmt::Write;

use super::chart::Chart;
use super::escaped;
use super::style::{Theme, css};

/// Rules for the parts that are not figures. Wide tables scroll in their own frame.
const STYLE: &str = "\
:root{color-scheme:light dark}\
body{font:15px/1.5 system-ui,-apple-system,'Segoe UI','DejaVu Sans',sans-serif;margin:0 auto;\
max-width:1240px;padding:16px;background:#fff;color:#24292f;overflow-wrap:anywhere}\
h1{font-size:22px;line-height:1.3}h2{font-size:18px;margin-top:32px}p{max-width:75ch}\
figure{margin:0;overflow-x:auto}figure svg{display:block;width:100%;height:auto}\
.charts{display:grid;gap:24px;grid-template-columns:repeat(auto-fit,minmax(min(100%,520px),1fr))}\
.wide{overflow-x:auto}table{border-collapse:collapse;font-variant-numeric:tabular-nums}\
th,td{padding:3px 10px;text-align:right;white-space:nowrap;border-bottom:1px solid #d8dee4}\
th:first-child,td:first-child{text-align:left;padding-left:0}.list td{text-align:left}\
.list td:last-child{white-space:normal;overflow-wrap:anywhere}\
pre{overflow-x:auto;font-size:13px;overflow-wrap:normal}\
@media(prefers-color-scheme:dark){body{background:#0d1117;color:#e6edf3}\
th,td{border-color:#2b323b}}";

/// A page, part by part.
#[derive(Debug)]
pub(crate) struct Page {
    title: String,
    body: String,
}

impl Page {
    /// Returns a page with only a title.
    pub(crate) fn new(title: &str) -> Self {
        Self { title: escaped(title), body: format!("<h1>{}</h1>\n", escaped(title)) }
    }

    /// Adds a heading.
    pub(crate) fn heading(&mut self, text: &str) {
        // Writing into a String does not fail.
        let _ = writeln!(self.body, "<h2>{}</h2>", escaped(text));
    }

    /// Adds a paragraph.
    pub(crate) fn paragraph(&mut self, text: &str) {
        let _ = writeln!(self.body, "<p>{}</p>", escaped(text));
    }

    /// Adds charts, side by side where there is room.
    pub(crate) fn charts(&mut self, charts: &[Chart]) {
        self.body += "<div class=\"charts\">\n";
        for chart in charts {
            let _ = writeln!(self.body, "<figure>\n{}</figure>", chart.inline());
        }
        self.body += "</div>\n";
    }

    /// Adds a table of figures. The first row has the headings, the first column the names.
    pub(crate) fn table(&mut self, rows: &[Vec<String>]) {
        self.body += "<div class=\"wide\"><table>\n";
        for (at, row) in rows.iter().enumerate() {
            let (tag, scope) = if at == 0 { ("th", " scope=\"col\"") } else { ("td", "") };
            self.body += "<tr>";
            for cell in row {
                let _ = write!(self.body, "<{tag}{scope}>{}</{tag}>", escaped(cell));
            }
            self.body += "</tr>\n";
        }
        self.body += "</table></div>\n";
    }

    /// Adds a list of names and texts.
    pub(crate) fn list(&mut self, pairs: &[(String, String)]) {
        self.body += "<div class=\"wide\"><table class=\"list\">\n";
        for (name, text) in pairs {
            let (name, text) = (escaped(name), escaped(text));
            let _ = writeln!(self.body, "<tr><td>{name}</td><td>{text}</td></tr>");
        }
        self.body += "</table></div>\n";
    }

    /// Adds text with its own line breaks.
    pub(crate) fn preformatted(&mut self, text: &str) {
        let _ = writeln!(self.body, "<pre tabindex=\"0\">{}</pre>", escaped(text));
    }

    /// Returns the page.
    pub(crate) fn render(&self) -> String {
        let Self { title, body } = self;
        let figures = css(Theme::Auto);
        format!(
            "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
             <meta name=\"viewport\" content=\"width=device-width,initial-scale=1\">\n\
             <title>{title}</title>\n<style>{STYLE}{figures}</style>\n</head>\n<body>\n{body}\
             </body>\n</html>\n"
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_cannot_break_the_page_and_nothing_is_loaded() {
        let mut page = Page::new("a<b>&c");
        page.heading("<h>");
        page.paragraph("p & q");
        page.table(&[vec!["<i>".to_owned()], vec!["1".to_owned()]]);
        page.list(&[("a".to_owned(), "</td>".to_owned())]);
        page.preformatted("x < y");
        let html = page.render();
        assert!(html.contains("<title>a&lt;b&gt;&amp;c</title>"), "{html}");
        for text in ["&lt;h&gt;", "p &amp; q", "&lt;i&gt;", "&lt;/td&gt;", "x &lt; y"] {
            assert!(html.contains(text), "{text}: {html}");
        }
        for word in ["<script", "http:", "https:", "url(", "<link"] {
            assert!(!html.contains(word), "{word}");
        }
    }
}
