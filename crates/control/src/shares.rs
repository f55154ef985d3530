//! Shares of images as people read them.

use vfield_console::text::clean;
use vfield_console::values::size::human;
use vfield_node::status::Sole;

/// `29.9 % of os.img (95.7 MiB)`, and so on.
pub fn sole_text(sole: &[Sole]) -> String {
    let one = |sole: &Sole| format!("{} of {} ({})", some_percent(sole.share), clean(&sole.image), human(sole.bytes));
    sole.iter().map(one).collect::<Vec<_>>().join(", ")
}

/// `192.168.1.7:4440 and 2 others have no way to stores with the rest`; `None` if no node needs an
/// origin so.
pub fn apart_text(dependents: &[String]) -> Option<String> {
    let (first, others) = dependents.split_first()?;
    let have = match others.len() {
        0 => "has".to_owned(),
        1 => "and 1 other have".to_owned(),
        count => format!("and {count} others have"),
    };
    Some(format!("{} {have} no way to stores with the rest", clean(first)))
}

/// Rounded up: less than a tenth of a percent is something all the same.
pub fn some_percent(share: f64) -> String {
    format!("{:.1} %", (share * 1000.0).ceil() / 10.0)
}
