//! Rows of cells, laid out in columns.

use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

/// No cell is cut shorter than this, in columns of the terminal.
const SHORTEST: usize = 8;

/// What stands in the place of what was cut.
const CUT: char = '…';

/// Where a cell may be cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cut {
    /// Its end is the least of it.
    End,
    /// Its start is: paths.
    Start,
}

/// The rows, each cell as wide as the widest of its column; behind the last one nothing.
pub fn aligned(rows: &[Vec<String>]) -> String {
    let widths = widths(rows);
    let mut text = String::new();
    for row in rows {
        let mut gap = 0;
        for (cell, width) in row.iter().zip(&widths) {
            text.extend(std::iter::repeat_n(' ', gap));
            text.push_str(cell);
            gap = width - cell.width() + 2;
        }
        text.push('\n');
    }
    text
}

/// Cuts cells of the columns that may be cut, the widest first, until a row fits into `width` columns of the terminal.
pub fn fit(rows: &mut [Vec<String>], cuts: &[(usize, Cut)], width: usize) {
    let mut widths = widths(rows);
    while widths.iter().map(|width| width + 2).sum::<usize>() > width + 2 {
        let widest = cuts.iter().map(|(column, _)| *column).max_by_key(|column| widths.get(*column));
        let Some(widest) = widest.and_then(|column| widths.get_mut(column)) else { break };
        if *widest <= SHORTEST {
            break;
        }
        *widest -= 1;
    }
    for row in rows {
        for (column, cut) in cuts {
            if let (Some(cell), Some(width)) = (row.get_mut(*column), widths.get(*column)) {
                shorten(cell, *width, *cut);
            }
        }
    }
}

fn widths(rows: &[Vec<String>]) -> Vec<usize> {
    let columns = rows.iter().map(Vec::len).max().unwrap_or(0);
    let of = |column: usize| rows.iter().filter_map(|row| row.get(column)).map(|cell| cell.width()).max();
    (0..columns).map(|column| of(column).unwrap_or(0)).collect()
}

fn shorten(cell: &mut String, width: usize, cut: Cut) {
    if cell.width() <= width {
        return;
    }
    let mut room = width.saturating_sub(1);
    let mut fits = |c: &char| {
        let left = room.checked_sub(c.width().unwrap_or(0));
        room = left.unwrap_or(room);
        left.is_some()
    };
    *cell = match cut {
        Cut::End => cell.chars().take_while(&mut fits).chain([CUT]).collect(),
        Cut::Start => {
            let end: Vec<char> = cell.chars().rev().take_while(&mut fits).collect();
            [CUT].into_iter().chain(end.into_iter().rev()).collect()
        }
    };
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rows(cells: &[&[&str]]) -> Vec<Vec<String>> {
        cells.iter().map(|row| row.iter().map(|cell| (*cell).to_owned()).collect()).collect()
    }

    #[test]
    fn columns_line_up_by_what_a_terminal_shows_of_them() {
        let table = aligned(&rows(&[&["日本", "1", "x"], &["abc", "22", ""]]));
        assert_eq!(table, "日本  1   x\nabc   22  \n");
    }

    #[test]
    fn the_widest_column_gives_way_first_and_a_path_keeps_its_end() {
        let cells: &[&[&str]] = &[&["id", "a title of many words", "~/work/a/project"]];
        let mut table = rows(cells);
        fit(&mut table, &[(1, Cut::End), (2, Cut::Start)], 80);
        assert_eq!(table, rows(cells));
        fit(&mut table, &[(1, Cut::End), (2, Cut::Start)], 30);
        assert_eq!(table, rows(&[&["id", "a title of …", "…k/a/project"]]));
        assert_eq!(aligned(&table).trim_end().width(), 30);
    }

    #[test]
    fn nothing_is_cut_away_altogether_however_narrow_the_terminal() {
        let mut table = rows(&[&["日本語日本語", "12345678"]]);
        fit(&mut table, &[(0, Cut::End), (1, Cut::End)], 1);
        assert_eq!(table, rows(&[&["日本語…", "12345678"]]));
    }
}
