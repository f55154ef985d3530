//! The reference of the configuration file is complete, and the program accepts its sample.

use clap::CommandFactory;
use std::collections::BTreeSet;
use std::path::Path;
use vfield_cli::args::Cli;
use vfield_cli::settings::Settings;

const DOCUMENT: &str = include_str!("../../../../docs/reference/config.md");
const SAMPLE: &str = include_str!("../../../../dist/vfield.toml");
const KUBERNETES: &str = include_str!("../../../../dist/kubernetes/vfield.yaml");

/// All keys that the program knows, from its own refusal of an unknown one.
/// Keys for measurements are left out: the help does not show their options.
fn known() -> BTreeSet<String> {
    let command = Cli::command();
    let arguments = command.get_subcommands().flat_map(|command| command.get_arguments());
    let hidden: BTreeSet<String> =
        arguments.filter(|arg| arg.is_hide_set()).map(|arg| arg.get_id().as_str().replace('_', "-")).collect();
    let refused = toml::from_str::<Settings>("nonsense = 1").expect_err("no such key");
    let (_, keys) = refused.message().split_once("expected one of ").expect("the known keys");
    keys.split(", ").map(|key| key.replace('`', "")).filter(|key| !hidden.contains(key)).collect()
}

/// The first cells of the tables below the headings "Keys of", each a key in backticks.
fn documented() -> BTreeSet<String> {
    let (_, tables) = DOCUMENT.split_once("\n## Keys of `serve`").expect("the tables of keys");
    let (tables, _) = tables.split_once("\n## Sample").expect("the sample comes last");
    // Tables about something else than keys have no option in their fourth cell.
    let rows = tables.lines().filter(|line| line.matches(" | ").count() >= 4);
    let first = |row: &str| Some(row.strip_prefix("| `")?.split('`').next()?.to_owned());
    rows.filter_map(first).collect()
}

/// The keys that are set in lines that a person would take the `#` from.
fn uncommented(sample: &str) -> String {
    let setting = |line: &&str| line.trim_start_matches('#').starts_with(|letter: char| letter.is_ascii_lowercase());
    let lines = sample.lines().filter(setting).map(|line| line.trim_start_matches('#'));
    lines.collect::<Vec<_>>().join("\n")
}

#[test]
fn each_key_is_documented_and_no_other() {
    assert_eq!(documented(), known());
}

#[test]
fn the_sample_in_the_document_is_the_one_that_is_shipped() {
    let (_, rest) = DOCUMENT.split_once("```toml\n").expect("a sample");
    let (sample, _) = rest.split_once("```").expect("its end");
    assert_eq!(sample, SAMPLE);
}

#[test]
fn the_sample_is_taken_as_it_is_and_with_all_keys_set() {
    let path = Path::new("vfield.toml");
    let all = uncommented(SAMPLE);
    for text in [SAMPLE, &all] {
        Settings::parse(path, text).unwrap_or_else(|failure| panic!("{failure}"));
    }
    let set: toml::Table = toml::from_str(&all).expect("TOML");
    assert_eq!(set.keys().cloned().collect::<BTreeSet<_>>(), known());
}

#[test]
fn the_configuration_for_kubernetes_is_taken() {
    let (_, rest) = KUBERNETES.split_once("  vfield.toml: |\n").expect("a configuration");
    let text: Vec<&str> = rest.lines().map_while(|line| line.strip_prefix("    ")).collect();
    Settings::parse(Path::new("vfield.toml"), &text.join("\n")).unwrap_or_else(|failure| panic!("{failure}"));
    let set: toml::Table = toml::from_str(&text.join("\n")).expect("TOML");
    // The folder of its mount, and the port of its probes, stand in the manifest as well.
    assert!(KUBERNETES.contains(&format!("mountPath: {},", set["mount"].as_str().expect("a folder"))));
    let (_, port) = set["http"].as_str().and_then(|http| http.rsplit_once(':')).expect("a port");
    assert_eq!(KUBERNETES.matches(&format!("port: {port},")).count(), 2);
}
