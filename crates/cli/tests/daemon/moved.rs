//! Settings that change before an upgrade: what listens stays where clients know it, and says so.

use super::Bench;

#[test]
fn an_upgrade_says_what_stays_where_it_was() {
    let bench = Bench::new();
    bench.image("a.img", 1_000_001);
    let set = |text: &str| std::fs::write(bench.dir.path().join("own.toml"), text).unwrap();
    set("listen = \"127.0.0.1:0\"\nnbd = [\"unix:first.sock\", \"tcp:127.0.0.1:0\"]\n");
    let daemon = bench.start("c0", &["serve", "a.img", "--guard", "--config", "own.toml"]);
    daemon.wait("ready");
    let addr = daemon.addr();
    let upgrade = || {
        let output = daemon.ask(&["upgrade"]);
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    };
    assert!(!upgrade().contains("stays"), "any port that was found is the wanted one");
    let exports = daemon.status()["exports"].clone();

    // Another address, another path, and a path in the place of a port.
    set("listen = \"127.0.0.2:0\"\nnbd = [\"unix:second.sock\", \"unix:third.sock\"]\n");
    let said = upgrade();
    for line in [
        format!("the node stays at {addr}, and moves to 127.0.0.2:0 at a restart\n"),
        "NBD stays at unix:first.sock, and moves to unix:second.sock at a restart\n".into(),
        ", and moves to unix:third.sock at a restart\n".into(),
    ] {
        assert!(said.contains(&line), "{line}: {said}");
    }
    assert_eq!((daemon.addr(), daemon.status()["exports"].clone()), (addr, exports));
    assert!(!bench.dir.path().join("second.sock").exists());

    // As they were.
    set("listen = \"127.0.0.1:0\"\nnbd = [\"unix:first.sock\", \"tcp:127.0.0.1:0\"]\n");
    assert!(!upgrade().contains("stays"));
    assert_eq!(daemon.leave_with(&["--force"]), 0);
    assert!(!bench.dir.path().join("first.sock").exists(), "it goes with its daemon");
}
