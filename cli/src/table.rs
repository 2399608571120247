//! Tables without borders: columns as wide as their widest cell, three blanks between them.

use evenkeel_model::shown;
pub(crate) use evenkeel_model::shown::plain as clean;

/// Blanks between two columns.
const GAP: usize = 3;

/// Meaning of a cell, shown as colour where colours are shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Tone {
    /// As it should be.
    Good,
    /// Needs a look.
    Warn,
    /// Wrong.
    Bad,
    /// Of little weight.
    Faint,
}

impl Tone {
    const fn code(self) -> &'static str {
        match self {
            Self::Good => "\u{1b}[32m",
            Self::Warn => "\u{1b}[33m",
            Self::Bad => "\u{1b}[31m",
            Self::Faint => "\u{1b}[2m",
        }
    }
}

/// One cell.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Cell {
    text: String,
    tone: Option<Tone>,
}

impl Cell {
    /// A cell with a meaning.
    pub(crate) fn toned(text: impl Into<String>, tone: Tone) -> Self {
        Self { text: clean(&text.into()), tone: Some(tone) }
    }
}

impl<T: Into<String>> From<T> for Cell {
    fn from(text: T) -> Self {
        Self { text: clean(&text.into()), tone: None }
    }
}

/// A table under construction.
#[derive(Debug, Default)]
pub(crate) struct Table {
    rows: Vec<Vec<Cell>>,
}

impl Table {
    /// A table with these column titles.
    pub(crate) fn new(titles: &[&str]) -> Self {
        Self { rows: vec![titles.iter().map(|t| Cell::from(*t)).collect()] }
    }

    /// Adds a row; missing cells are empty.
    pub(crate) fn row(&mut self, cells: Vec<Cell>) {
        self.rows.push(cells);
    }

    /// The table as comma-separated values (RFC 4180, section 2; lines end as everywhere here).
    pub(crate) fn csv(&self) -> String {
        let columns = self.rows.iter().map(Vec::len).max().unwrap_or(0);
        let mut out = String::new();
        for row in &self.rows {
            let mut cells: Vec<String> = row.iter().map(|cell| shown::csv(&cell.text)).collect();
            cells.resize(columns, String::new());
            out.push_str(&cells.join(","));
            out.push('\n');
        }
        out
    }

    /// The table as text, each row on its line.
    pub(crate) fn render(&self, colour: bool) -> String {
        let columns = self.rows.iter().map(Vec::len).max().unwrap_or(0);
        let width = |column: usize| {
            self.rows.iter().filter_map(|r| r.get(column)).map(|c| c.text.chars().count()).max().unwrap_or(0)
        };
        let widths: Vec<usize> = (0..columns).map(width).collect();
        let mut out = String::new();
        for row in &self.rows {
            for (column, cell) in row.iter().enumerate() {
                let pad =
                    if column + 1 < row.len() { widths[column] + GAP - cell.text.chars().count() } else { 0 };
                match cell.tone.filter(|_| colour) {
                    Some(tone) => out.extend([tone.code(), &cell.text, "\u{1b}[0m"]),
                    None => out.push_str(&cell.text),
                }
                out.extend(std::iter::repeat_n(' ', pad));
            }
            while out.ends_with(' ') {
                out.pop();
            }
            out.push('\n');
        }
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample() -> Table {
        let mut table = Table::new(&["NAME", "STATE", ""]);
        table.row(vec!["a".into(), Cell::toned("converged", Tone::Good), "x".into()]);
        table.row(vec!["longer\n".into(), "".into()]);
        table
    }

    #[test]
    fn columns_line_up_and_nothing_trails() {
        let expected = "NAME      STATE\na         converged   x\nlonger\u{fffd}\n";
        assert_eq!(sample().render(false), expected);
    }

    #[test]
    fn comma_separated_values_are_quoted_where_needed() {
        let mut table = Table::new(&["A", "B"]);
        table.row(vec!["x, y".into(), "say \"no\"".into()]);
        table.row(vec!["short".into()]);
        assert_eq!(table.csv(), "A,B\n\"x, y\",\"say \"\"no\"\"\"\nshort,\n");
    }

    #[test]
    fn colour_does_not_move_columns() {
        let coloured = sample().render(true);
        let plain = coloured.replace("\u{1b}[32m", "").replace("\u{1b}[0m", "");
        assert_eq!(plain, sample().render(false));
        assert_ne!(coloured, plain);
    }
}
