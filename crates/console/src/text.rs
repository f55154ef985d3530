//! Text for a terminal: columns, and words of other machines that may not command it.

use std::fmt::Write;

/// Text from other machines, without what a terminal would take for orders.
pub fn clean(text: &str) -> String {
    text.chars().map(|letter| if letter.is_control() { '?' } else { letter }).collect()
}

/// Columns two spaces apart, those in `right` aligned to the right.
pub fn aligned(rows: &[Vec<String>], right: &[usize]) -> String {
    let columns = rows.iter().map(Vec::len).max().unwrap_or(0);
    let width = |column: usize| rows.iter().filter_map(|row| row.get(column)).map(|cell| cell.chars().count()).max();
    let widths: Vec<usize> = (0..columns).map(|column| width(column).unwrap_or(0)).collect();
    let mut out = String::new();
    for row in rows {
        let mut text = String::new();
        for (column, cell) in row.iter().enumerate() {
            let width = widths[column];
            // Writing to a string cannot fail.
            let _ = if right.contains(&column) {
                write!(text, "{cell:>width$}  ")
            } else {
                write!(text, "{cell:<width$}  ")
            };
        }
        line(&mut out, text.trim_end());
    }
    out
}

/// Adds a line.
pub fn line(out: &mut String, text: &str) {
    out.push_str(text);
    out.push('\n');
}
