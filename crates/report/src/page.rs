//! Pages of text, tables and charts, as Markdown or as one HTML file that loads nothing.

use std::fmt::Write;

use crate::escaped;

const STYLE: &str = "body{font:16px/1.5 system-ui,sans-serif;color:#222;max-width:760px;margin:2rem auto;padding:0 1rem}\
h1{font-size:1.5rem}h2{font-size:1.15rem;margin-top:2rem}figure{margin:1rem 0}figure svg{max-width:100%;height:auto}\
figcaption{color:#555;font-size:.9rem}table{border-collapse:collapse;font-size:.9rem;font-variant-numeric:tabular-nums}\
th,td{padding:.25rem .7rem .25rem 0;text-align:left;border-bottom:1px solid #e3e3e3}td.number,th.number{text-align:right}\
.lead{font-size:1.1rem}footer{color:#777;font-size:.85rem;margin-top:3rem}.scroll{overflow-x:auto}";

#[derive(Debug, Clone, PartialEq)]
pub enum Block {
    Heading(String),
    Text(String),
    /// The main result, emphasised.
    Lead(String),
    /// An SVG and its caption.
    Figure {
        svg: String,
        caption: String,
    },
    /// Columns whose header starts with `>` are aligned to the right.
    Table {
        header: Vec<String>,
        rows: Vec<Vec<String>>,
    },
}

#[derive(Debug, Clone, Default, PartialEq)]
pub struct Page {
    pub title: String,
    pub blocks: Vec<Block>,
    /// The command that made the page.
    pub origin: String,
}

impl Page {
    pub fn new(title: impl Into<String>, origin: impl Into<String>) -> Self {
        Self { title: title.into(), origin: origin.into(), blocks: Vec::new() }
    }

    pub fn heading(&mut self, text: impl Into<String>) {
        self.blocks.push(Block::Heading(text.into()));
    }

    pub fn text(&mut self, text: impl Into<String>) {
        self.blocks.push(Block::Text(text.into()));
    }

    pub fn lead(&mut self, text: impl Into<String>) {
        self.blocks.push(Block::Lead(text.into()));
    }

    pub fn figure(&mut self, svg: impl Into<String>, caption: impl Into<String>) {
        self.blocks.push(Block::Figure { svg: svg.into(), caption: caption.into() });
    }

    pub fn table(&mut self, header: &[&str], rows: Vec<Vec<String>>) {
        let header = header.iter().map(ToString::to_string).collect();
        self.blocks.push(Block::Table { header, rows });
    }

    /// The page as Markdown, without its figures.
    pub fn markdown(&self) -> String {
        let mut text = format!("# {}\n", self.title);
        for block in &self.blocks {
            let _ = match block {
                Block::Heading(heading) => writeln!(text, "\n## {heading}"),
                Block::Text(line) => writeln!(text, "\n{line}"),
                Block::Lead(line) => writeln!(text, "\n**{line}**"),
                Block::Figure { .. } => Ok(()),
                Block::Table { header, rows } => {
                    let row = |cells: &[String]| format!("| {} |\n", cells.join(" | "));
                    let names: Vec<String> =
                        header.iter().map(|name| name.trim_start_matches('>').to_owned()).collect();
                    let sides: Vec<String> = header
                        .iter()
                        .map(|name| if name.starts_with('>') { "---:".to_owned() } else { "---".to_owned() })
                        .collect();
                    let escaped = |cells: &Vec<String>| -> Vec<String> {
                        cells.iter().map(|cell| cell.replace('|', "\\|")).collect()
                    };
                    let body: String = rows.iter().map(|cells| row(&escaped(cells))).collect();
                    write!(text, "\n{}{}{body}", row(&names), row(&sides))
                }
            };
        }
        let _ = writeln!(text, "\n{}", self.origin);
        text
    }

    pub fn html(&self) -> String {
        let title = escaped(&self.title);
        let mut html = format!(
            "<!doctype html><html lang=\"en\"><meta charset=\"utf-8\"><meta name=\"viewport\" \
             content=\"width=device-width,initial-scale=1\"><title>{title}</title><style>{STYLE}</style>\
             <h1>{title}</h1>"
        );
        for block in &self.blocks {
            let _ = match block {
                Block::Heading(text) => write!(html, "<h2>{}</h2>", escaped(text)),
                Block::Text(text) => write!(html, "<p>{}</p>", escaped(text)),
                Block::Lead(text) => write!(html, "<p class=\"lead\">{}</p>", escaped(text)),
                Block::Figure { svg, caption } => {
                    let caption = escaped(caption);
                    write!(html, "<figure>{svg}<figcaption>{caption}</figcaption></figure>")
                }
                Block::Table { header, rows } => {
                    write_table(&mut html, header, rows);
                    Ok(())
                }
            };
        }
        let _ = write!(html, "<footer>{}</footer></html>", escaped(&self.origin));
        html
    }
}

fn write_table(html: &mut String, header: &[String], rows: &[Vec<String>]) {
    let class = |name: &String| if name.starts_with('>') { " class=\"number\"" } else { "" };
    html.push_str("<div class=\"scroll\"><table><tr>");
    for name in header {
        let _ = write!(html, "<th{}>{}</th>", class(name), escaped(name.trim_start_matches('>')));
    }
    html.push_str("</tr>");
    for row in rows {
        html.push_str("<tr>");
        for (name, cell) in header.iter().zip(row) {
            let _ = write!(html, "<td{}>{}</td>", class(name), escaped(cell));
        }
        html.push_str("</tr>");
    }
    html.push_str("</table></div>");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_from_users_are_escaped() {
        let mut page = Page::new("<script>", "tracewise");
        page.text("a < b & c");
        page.table(&["job", ">count"], vec![vec!["<b>".into(), "1".into()]]);
        let html = page.html();
        assert!(!html.contains("<script>") && !html.contains("<b>"));
        assert!(html.contains("a &lt; b &amp; c") && html.contains("<td class=\"number\">1</td>"));
        page.table(&["job"], vec![vec!["a|b".into()]]);
        assert!(page.markdown().contains("| a\\|b |"), "{}", page.markdown());
    }
}
