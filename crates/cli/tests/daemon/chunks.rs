//! The chunk size of a packed image is that for which it was packed, with every command.

use super::Bench;

#[test]
fn a_packed_image_has_the_chunks_that_it_was_packed_for() {
    let bench = Bench::new();
    let source = bench.dir.path().join("source");
    std::fs::create_dir(&source).unwrap();
    let run = |line: &[&str]| {
        let output = bench.run(line);
        assert!(output.status.success(), "{line:?}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    };
    std::fs::write(source.join("file"), vec![7; 1_000_000]).unwrap();
    run(&["pack", "source", "-o", "v1.erofs", "--chunk-size", "256K"]);
    std::fs::write(source.join("file"), vec![8; 1_000_000]).unwrap();
    run(&["pack", "source", "-o", "v2.erofs", "--like", "v1.erofs"]);
    for image in ["v1.erofs", "v2.erofs"] {
        let id = run(&["id", image]);
        assert_eq!(id, run(&["id", image, "--chunk-size", "256K"]), "{image}");
        assert_ne!(id, run(&["id", image, "--chunk-size", "64K"]), "{image}");
    }
    let other = bench.run(&["pack", "source", "-o", "v3.erofs", "--like", "v1.erofs", "--chunk-size", "64K"]);
    assert_eq!(other.status.code(), Some(1));

    let origin = bench.start("c0", &["serve", "v1.erofs", "--listen", "127.0.0.1:0"]);
    origin.wait("filled");
    assert!(origin.ask(&["add", "./v2.erofs"]).status.success());
    bench.image("plain.img", 100_000);
    assert!(origin.ask(&["add", "./plain.img", "--chunk-size", "auto"]).status.success());
    let status = origin.status();
    let images = status["images"].as_array().unwrap();
    let mut sizes: Vec<_> = images.iter().map(|image| (image["name"].as_str(), &image["chunk_size_bytes"])).collect();
    sizes.sort_unstable_by_key(|(name, _)| *name);
    let (packed, usual) = (serde_json::json!(256 << 10), serde_json::json!(64 << 10));
    assert_eq!(sizes, [(Some("plain.img"), &usual), (Some("v1.erofs"), &packed), (Some("v2.erofs"), &packed)]);
}
