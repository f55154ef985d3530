//! Progress bars and whole percents.

use indicatif::{ProgressBar, ProgressStyle};

/// A progress bar for `total` bytes of an image.
pub fn bar(doing: &str, image: &str, total: u64) -> ProgressBar {
    let template =
        "{msg} [{bar:24}] {percent:>3} %  {binary_bytes} of {binary_total_bytes}  {binary_bytes_per_sec}  {eta}";
    let style = ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar());
    let style = style.progress_chars("=> ");
    ProgressBar::new(total).with_style(style).with_message(format!("{doing} {image}"))
}

/// A progress bar for `total` things that take some time each.
pub fn count_bar(doing: &str, total: u64) -> ProgressBar {
    let style = ProgressStyle::with_template("{msg} [{bar:24}] {pos} of {len}");
    let style = style.unwrap_or_else(|_| ProgressStyle::default_bar()).progress_chars("=> ");
    ProgressBar::new(total).with_style(style).with_message(doing.to_owned())
}

/// Whole percents, rounded down: 100 means complete.
pub fn percent(part: u64, whole: u64) -> u64 {
    if whole == 0 { 100 } else { (u128::from(part) * 100 / u128::from(whole)) as u64 }
}
