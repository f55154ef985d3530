//! Configuration files.
//!
//! Promises: text is settings or one clear line with its place; what a file gives is only what
//! options can say.

use std::path::Path;
use vfield_cli::settings::Settings;

/// The text of a file.
pub fn target(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    if let Err(failure) = Settings::parse(Path::new("x.toml"), text) {
        let line = failure.fact().strip_prefix("x.toml line ").and_then(|rest| rest.split_once(':'));
        let (line, why) = line.expect("a refusal names its line");
        let lines = text.bytes().filter(|byte| *byte == b'\n').count() + 1;
        assert!(line.parse::<usize>().is_ok_and(|line| (1..=lines).contains(&line)), "{failure}");
        assert!(!why.trim().is_empty() && !why.contains('\n'), "{failure:?}");
        assert!(failure.hint_text().is_some());
    }
}

/// A file with everything in it, and mistakes.
pub fn seeds() -> Vec<Vec<u8>> {
    let all = "file = \"/srv/os.squash\"\nname = [\"os\"]\nchunk-size = \"64K\"\njoin = \"192.168.1.1\"\nimage = \"os\"\n\
        store = \"30%\"\njoin-boost = \"random\"\nnbd = [\"unix:/run/nbd\", \"tcp:127.0.0.1\"]\nnbd-allow = \"10.0.0.0/8\"\n";
    let more = "mount = \"/mnt\"\nublk = true\nio-timeout = \"30s\"\noverlay = \"ram\"\noverlay-size = 4096\n\
        listen = \"[::]:7\"\nadvertise = \"lab-1\"\nzone = \"rack-7\"\ntrust = \"RWQ\"\njson = true\nthreads = 2\n";
    let texts =
        [all, more, "store = \"-1\"", "stroe = 1", "nbd = [\n  \"pipe:x\"\n]", "join-boost = 12", "sandbox = \"off\""];
    texts.map(|text| text.as_bytes().to_vec()).into()
}
