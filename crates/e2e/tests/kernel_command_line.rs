//! How `integration/root.sh` reads the kernel's command line, in the shell of this machine.

use std::path::Path;
use std::process::Command;

/// Reads `words`, and prints the members and the options for the daemon.
const READ: &str = r#"
words=$2
. "$1"
cat() { echo "$words"; }
vfield_say() { echo "said: $*"; }
vfield_read_command_line || exit 1
echo "$vfield_members:$vfield_kind:$vfield_options"
"#;

fn read(words: &str) -> String {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../integration/root.sh");
    let output = Command::new("sh").args(["-euc", READ, "sh"]).arg(script).arg(words).output().expect("a shell");
    assert!(output.status.success(), "{words}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).expect("text").trim_end().to_owned()
}

#[test]
fn words_become_options() {
    let words = "quiet root=vfield:os@10.0.0.1,10.0.0.2 vfield.store=1G vfield.join_boost=3 vfield.device=nbd";
    assert_eq!(read(words), "10.0.0.1 10.0.0.2:nbd: --store 1G --join-boost 3");
    assert_eq!(read("root=vfield:os@10.0.0.1"), "10.0.0.1:auto:");
    assert_eq!(read("root=vfield:os@a vfield.stor=1"), "said: nothing is called vfield.stor\na:auto:");
}

#[test]
fn of_a_word_that_is_given_twice_the_last_counts() {
    let words = "root=vfield:os@a vfield.store=1G vfield.zone=x vfield.store=2G vfield.zone=y vfield.threads=2";
    assert_eq!(read(words), "a:auto: --store 2G --zone y --threads 2");
}
