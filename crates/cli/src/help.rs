//! `vfield help`: all that does not fit an option's line, from the documents themselves.
//!
//! A topic is a page below `docs/`, or a part of one, as it was when the program was built. So the
//! program and the documents say one thing. The text is Markdown; links and table marks are left
//! out for a terminal.

use crate::args::{Cli, HelpOptions};
use crate::nearest::nearest;
use clap::CommandFactory as _;
use vfield_console::failure::Failure;
use vfield_console::output;
use vfield_console::text::{aligned, line};

/// Wider tables become lists.
const WIDTH: usize = 100;

/// Something to read about.
struct Topic {
    name: &'static str,
    about: &'static str,
    page: &'static str,
    /// The heading of its part of the page; all of it without.
    part: Option<&'static str>,
}

/// A topic and its page, below `docs/`.
macro_rules! topic {
    ($name:literal, $about:literal, $page:literal, $part:expr) => {
        Topic { name: $name, about: $about, page: include_str!(concat!("../../../docs/", $page)), part: $part }
    };
}

/// In the order of the list.
const TOPICS: [Topic; 13] = [
    topic!("size", "how much memory and link a field needs", "howto/operate.md", Some("Size it")),
    topic!("trust", "signed images, and who may sign", "howto/sign-images.md", None),
    topic!("keys", "a field that is closed with a key", "howto/close-a-field.md", None),
    topic!("tags", "versions of an image under one name", "howto/images-over-time.md", None),
    topic!("rates", "limits of the traffic with other nodes", "howto/limit-traffic.md", None),
    topic!("limits", "every bound of the program", "reference/limits.md", None),
    topic!("upgrading", "another program while images are read", "howto/upgrade.md", None),
    topic!("systemd", "daemons that start with the machine", "howto/systemd.md", None),
    topic!("ports", "ports, and rules for firewalls", "reference/ports.md", None),
    topic!("exit-codes", "exit codes of commands", "reference/exit-codes-and-environment.md", Some("Exit codes")),
    topic!("environment", "variables that count", "reference/exit-codes-and-environment.md", Some("Environment")),
    topic!("signals", "signals that a daemon knows", "reference/exit-codes-and-environment.md", Some("Signals")),
    topic!(
        "symptoms",
        "what to type when something is wrong",
        "howto/operate.md",
        Some("From the symptom to the command")
    ),
];

/// Runs `vfield help`.
pub fn run(options: &HelpOptions) -> Result<(), Failure> {
    let Some(wanted) = &options.topic else { return output::put(list().as_bytes()) };
    if let Some(topic) = TOPICS.iter().find(|topic| topic.name == wanted) {
        return output::put(text(topic).as_bytes());
    }
    let mut commands = Cli::command();
    commands.build();
    if let Some(command) = commands.find_subcommand_mut(wanted) {
        return output::put(command.render_long_help().to_string().as_bytes());
    }
    let known =
        TOPICS.iter().map(|topic| topic.name).chain(commands.get_subcommands().map(|command| command.get_name()));
    let meant =
        nearest(wanted, known).map_or_else(String::new, |meant| format!("did you mean `vfield help {meant}`? "));
    Err(Failure::usage(format!("no topic or command {wanted:?}"))
        .hint(format!("{meant}`vfield help` lists the topics")))
}

fn list() -> String {
    let rows = TOPICS.iter().map(|topic| vec![format!("  {}", topic.name), topic.about.to_owned()]);
    let rows: Vec<Vec<String>> = rows.collect();
    format!("Topics of `vfield help TOPIC`:\n{}\nFor a command: vfield COMMAND --help\n", aligned(&rows, &[]))
}

fn text(topic: &Topic) -> String {
    let part = topic.part.map_or(topic.page, |heading| part(topic.page, heading).unwrap_or_default());
    plain(part)
}

/// The part of a page below a heading of the second level, with the heading.
fn part<'a>(page: &'a str, heading: &str) -> Option<&'a str> {
    let begin = page.find(&format!("\n## {heading}\n"))? + 1;
    let end = page[begin..].find("\n## ").map_or(page.len(), |length| begin + length + 1);
    Some(&page[begin..end])
}

/// Markdown for a terminal.
fn plain(page: &str) -> String {
    let (mut out, mut table) = (String::new(), Vec::new());
    // A link may go on in the next line.
    for text in unlinked(page).replace("**", "").lines() {
        match cells(text) {
            Some(cells) => table.push(cells),
            None => {
                out.push_str(&listed(&std::mem::take(&mut table)));
                line(&mut out, text);
            }
        }
    }
    out.push_str(&listed(&table));
    out.trim_end().to_owned() + "\n"
}

/// The cells of a row of a table, which may stand below an item of a list.
fn cells(text: &str) -> Option<Vec<String>> {
    let row = text.trim_start_matches("   ").strip_prefix('|')?.strip_suffix('|')?.replace("\\|", "\u{0}");
    Some(row.split('|').map(|cell| cell.trim().replace('\u{0}', "|")).collect())
}

/// A table with its head: in columns if they fit, else each row as a list.
fn listed(table: &[Vec<String>]) -> String {
    // The second row only says how the others are aligned.
    let [head, _, rows @ ..] = table else { return String::new() };
    let columns = aligned(&[std::slice::from_ref(head), rows].concat(), &[]);
    if columns.lines().all(|row| row.chars().count() <= WIDTH) {
        return columns;
    }
    let mut out = String::new();
    for row in rows {
        let (first, others) = row.split_first().expect("a row has a cell");
        line(&mut out, first);
        for (name, cell) in head.iter().skip(1).zip(others).filter(|(_, cell)| !cell.is_empty()) {
            line(&mut out, &if name.is_empty() { format!("    {cell}") } else { format!("    {name}: {cell}") });
        }
    }
    out
}

/// Text without the targets of its links: `[text](target)` is `text`.
fn unlinked(text: &str) -> String {
    let (mut out, mut rest) = (String::new(), text);
    while let Some(middle) = rest.find("](") {
        let open = rest[..middle].rfind('[');
        let close = rest[middle..].find(')').map(|length| middle + length);
        let (Some(open), Some(close)) = (open, close) else { break };
        out.push_str(&rest[..open]);
        out.push_str(&rest[open + 1..middle]);
        rest = &rest[close + 1..];
    }
    out + rest
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_topic_is_listed_and_has_a_text() {
        let list = list();
        for topic in &TOPICS {
            assert!(list.contains(&format!("  {}  ", topic.name)), "{}: {list}", topic.name);
            let text = text(topic);
            assert!(text.lines().count() > 5 && text.starts_with('#'), "{}: {text}", topic.name);
            assert!(!text.contains("](") && !text.contains("|--"), "{}: {text}", topic.name);
            assert!(Cli::command().find_subcommand(topic.name).is_none(), "{}", topic.name);
        }
    }

    #[test]
    fn a_part_ends_where_the_next_begins() {
        let page = "# A\n\nof all\n\n## One\n\n1\n\n### More\n\n2\n\n## Two\n\n3\n";
        assert_eq!(part(page, "One"), Some("## One\n\n1\n\n### More\n\n2\n\n"));
        assert_eq!((part(page, "Two"), part(page, "Three")), (Some("## Two\n\n3\n"), None));
    }

    #[test]
    fn links_and_tables_are_for_a_terminal() {
        let page =
            "See **[the page](x.md#y)**, and `a[0]` ([b](c)).\n\n| a | b |\n|---|--:|\n| `x\\|y` | [z](w) |\n\nend\n";
        assert_eq!(plain(page), "See the page, and `a[0]` (b).\n\na      b\n`x|y`  z\n\nend\n");
        let wide = format!("| a | b |\n|---|---|\n| x | {} |\n", "y".repeat(WIDTH));
        assert_eq!(plain(&wide), format!("x\n    b: {}\n", "y".repeat(WIDTH)));
        assert_eq!(plain("half [a link](of\n"), "half [a link](of\n");
        assert_eq!(plain("one [of\ntwo](lines)\n"), "one of\ntwo\n");
    }
}
