//! Versions of images in a bucket: published, served, gone back to, damaged on the store's disk.
//!
//! `scripts/test-objects` brings the server of buckets; elsewhere the tests say that they were
//! ignored. What needs another moment of a store is in the tests of `crates/bucket`.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::Duration;
use vfield_e2e::Outcome;
use vfield_e2e::program::vfield;
use vfield_lab::bytes::{MIB, random_file};
use vfield_lab::daemon::Start;
use vfield_lab::need::{Need, have};
use vfield_lab::{Buckets, Lab, LabError, Vfield, client, wait_until};

/// A state of a store is known after a read or two; pauses grow to 5 s.
const SOON: Duration = Duration::from_secs(20);
const ROOM: &str = "s3://images/room";

/// A server of buckets with the bucket `images`, and somebody who publishes.
struct Store {
    buckets: Buckets,
    vfield: Vfield,
    lab: Lab,
}

impl Store {
    fn start(hosts: usize) -> Result<Self, LabError> {
        let (lab, vfield) = (Lab::loopback(hosts)?, vfield());
        let dir = lab.dir().join("store/images");
        std::fs::create_dir_all(&dir).map_err(LabError::at(&dir))?;
        let buckets = Buckets::start(lab.host(0), &lab.dir().join("store"))?;
        Ok(Self { buckets, vfield, lab })
    }

    fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(self.vfield.path());
        command.args(args).envs(self.buckets.environment()).env("HOME", self.lab.dir());
        command
    }

    /// Runs a command that succeeds; returns its words.
    fn run(&self, args: &[&str]) -> Result<String, LabError> {
        vfield_lab::process::run(&mut self.command(args))
    }

    fn publish(&self, image: &Path, to: &str) -> Result<String, LabError> {
        self.run(&["publish", &image.display().to_string(), to])
    }

    /// An origin of what a URL names, under the name of an image file.
    fn serve(&self, what: &str, image: &Path) -> Start<'_> {
        let name = image.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        let start = self.vfield.serve(self.lab.host(0), &[&PathBuf::from(what)]).name("origin").args(&["--name", name]);
        self.buckets.known_to(start)
    }

    /// A node of the room reads the image of an origin, and so does the origin.
    fn compare(&self, what: &str, image: &Path) -> Outcome {
        let mut origin = self.serve(what, image).ready()?;
        let mut node = self.vfield.join(self.lab.host(1), origin.addr()).store("50%").ready()?;
        client::compare_all(self.lab.host(1), &node, image)?;
        node.kill();
        origin.kill();
        Ok(())
    }

    /// Files of the store below a directory of the room.
    fn files(&self, dir: &str) -> Vec<PathBuf> {
        let dir = self.lab.dir().join("store/images/room").join(dir);
        let mut files: Vec<PathBuf> =
            std::fs::read_dir(dir).into_iter().flatten().flatten().map(|entry| entry.path()).collect();
        files.sort();
        files
    }
}

/// The size, as `416.0 KiB`, that stands before a word.
fn bytes_before(said: &str, word: &str) -> f64 {
    let before = said.split(word).next().unwrap_or_default();
    let mut words = before.rsplit([' ', ',']).filter(|word| !word.is_empty());
    let (unit, number) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
    let unit = match unit {
        "MiB" => MIB as f64,
        "KiB" => 1024.0,
        _ => panic!("no size before {word:?}: {said}"),
    };
    number.parse::<f64>().unwrap_or_else(|_| panic!("no number before {word:?}: {said}")) * unit
}

/// A command fails with one line that has these words, and a hint.
fn fails(mut command: Command, says: &str) -> Outcome {
    let Output { status, stderr, .. } = command.output()?;
    let words = String::from_utf8_lossy(&stderr).into_owned();
    let lines: Vec<&str> = words.lines().filter(|line| !line.is_empty()).collect();
    assert!(!status.success(), "{says}: it succeeded");
    assert!(lines.len() <= 2 && lines[0].contains(says), "{says}: {words}");
    assert!(lines.get(1).is_none_or(|line| line.starts_with("hint: ")), "{words}");
    Ok(())
}

/// Two versions of a tree of text and noise, the second packed like the first. A few percent
/// differ.
fn versions(lab: &Lab, vfield: &Vfield) -> Result<[PathBuf; 2], LabError> {
    let tree = lab.dir().join("tree");
    std::fs::create_dir(&tree).map_err(LabError::at(&tree))?;
    let write = |number: u64, of: u64| {
        // Half of each file is text that becomes shorter.
        let file = random_file(&tree.join(format!("file-{number}")), 300_000 + number * 1000, number + 1000 * of)?;
        let mut bytes = std::fs::read(&file).map_err(LabError::at(&file))?;
        let half = bytes.len() / 2;
        bytes[..half].iter_mut().for_each(|byte| *byte = b'a' + *byte % 4);
        std::fs::write(&file, bytes).map_err(LabError::at(&file))
    };
    (0..60).try_for_each(|number| write(number, 0))?;
    let images = ["v1.erofs", "v2.erofs"].map(|name| lab.dir().join(name));
    let pack = |image: &Path| {
        let mut command = Command::new(vfield.path());
        command.arg("pack").arg(&tree).arg("-o").arg(image);
        command
    };
    vfield_lab::process::run(&mut pack(&images[0]))?;
    [7, 31].into_iter().try_for_each(|number| write(number, 1))?;
    vfield_lab::process::run(pack(&images[1]).arg("--like").arg(&images[0]))?;
    Ok(images)
}

#[test]
#[ignore = "scripts/test-objects builds the server of buckets"]
fn versions_in_packs_are_published_served_and_gone_back_to() -> Outcome {
    if !have(&[Need::Tool("nbdcopy")]) {
        return Ok(());
    }
    let store = Store::start(2)?;
    let [first, second] = versions(&store.lab, &store.vfield)?;
    let to = format!("{ROOM}#prod");
    store.publish(&first, &to)?;
    store.compare(&to, &first)?;

    // The store's disk has more by the new chunks, and by little besides.
    let bytes = |dir: &str| {
        store.files(dir).iter().filter_map(|file| std::fs::metadata(file).ok()).map(|file| file.len()).sum::<u64>()
    };
    let before = bytes("packs") + bytes("images");
    let mut old = store.serve(&to, &first).ready()?;
    let said = store.publish(&second, &to)?;
    let added = bytes("packs") + bytes("images") - before;
    println!("{said}{added} bytes more on the store's disk");
    assert!(said.contains("serial 2") && said.contains("chunks with data, 9"), "{said}");
    let [packed, sent] = [bytes_before(&said, " compressed"), bytes_before(&said, "\nserve it")];
    assert!(sent <= packed * 1.1, "{sent} bytes for {packed} of new chunks");
    assert!(added as f64 <= packed * 1.15, "{added} bytes for {packed} of new chunks");
    // An origin that was started before goes on with its version.
    let mut node = store.vfield.join(store.lab.host(1), old.addr()).store("0").ready()?;
    client::compare_all(store.lab.host(1), &node, &first)?;
    node.kill();
    old.kill();
    store.compare(&to, &second)?;

    let said = store.run(&["bucket", "rollback", &to])?;
    assert!(said.contains("that is the version of serial 1"), "{said}");
    store.compare(&to, &first)?;
    let listed = store.run(&["bucket", "ls", ROOM])?;
    assert_eq!(listed.matches("MiB").count(), 5, "{listed}");
    let id = store.run(&["id", &second.display().to_string()])?;
    store.run(&["bucket", "set", &format!("{ROOM}#test"), &id.trim()[..12]])?;
    store.compare(&format!("{ROOM}#{}", id.trim()), &second)?;
    store.run(&["bucket", "rm", &format!("{ROOM}#test")])?;
    fails(store.command(&["bucket", "rollback", &format!("{ROOM}#none")]), "it has no tag none")
}

#[test]
#[ignore = "scripts/test-objects builds the server of buckets"]
fn an_object_is_published_whole() -> Outcome {
    if !have(&[Need::Tool("nbdcopy")]) {
        return Ok(());
    }
    let store = Store::start(2)?;
    // Several parts, and a key that has to be encoded.
    let image = random_file(&store.lab.dir().join("disk.img"), 40 * MIB + 777, 1)?;
    let to = "s3://images/of the + lab/disk.img";
    store.publish(&image, "s3://images/of the + lab/")?;
    store.compare(to, &image)?;
    let said = store.publish(&image, to)?;
    assert!(said.contains("was there already"), "{said}");
    let other = random_file(&store.lab.dir().join("other.img"), MIB, 2)?;
    fails(store.command(&["publish", &other.display().to_string(), to]), "exists, and has other bytes")
}

#[test]
#[ignore = "scripts/test-objects builds the server of buckets"]
fn publishers_are_told_in_one_line_why_they_cannot() -> Outcome {
    let store = Store::start(1)?;
    let image = random_file(&store.lab.dir().join("disk.img"), MIB, 1)?;
    let image = image.display().to_string();
    store.run(&["publish", &image, &format!("{ROOM}#prod")])?;
    let read_only = Buckets::start_read_only(store.lab.host(0), &store.lab.dir().join("store"))?;
    let nobody = format!("http://{}", read_only.addr());
    for to in ["s3://images/other.img", "s3://images/room#prod"] {
        let publish = || store.command(&["publish", &image, to]);
        let without = |names: &[&str]| {
            let mut command = publish();
            for name in names {
                command.env_remove(name);
            }
            command
        };
        fails(without(&["AWS_ACCESS_KEY_ID"]), "403 Forbidden")?;
        let mut wrong = publish();
        wrong.env("AWS_SECRET_ACCESS_KEY", "wrong");
        fails(wrong, "403 Forbidden")?;
        let mut refused = publish();
        refused.env("AWS_ENDPOINT_URL_S3", &nobody);
        fails(refused, "403 Forbidden")?;
    }
    for to in ["s3://nothing/other.img", "s3://nothing/room#prod"] {
        fails(store.command(&["publish", &image, to]), "NoSuchBucket")?;
    }
    fails(store.command(&["bucket", "ls", "s3://nothing/room"]), "NoSuchBucket")?;
    for to in ["https://a.example/x", "s3://images/room#a b", "s3://x#prod"] {
        fails(store.command(&["publish", &image, to]), "")?;
    }
    assert_eq!(store.files("tags").len(), 1);
    Ok(())
}

#[test]
#[ignore = "scripts/test-objects builds the server of buckets"]
fn of_publishers_at_once_each_is_told_the_truth() -> Outcome {
    let store = Store::start(1)?;
    let to = format!("{ROOM}#prod");
    let images: Vec<PathBuf> = (0..6)
        .map(|number| random_file(&store.lab.dir().join(format!("{number}.img")), MIB, number))
        .collect::<Result<_, _>>()?;
    let running: Vec<_> = images
        .iter()
        .map(|image| {
            store
                .command(&["publish", &image.display().to_string(), &to])
                .stdout(std::process::Stdio::piped())
                .stderr(std::process::Stdio::piped())
                .spawn()
        })
        .collect::<Result<_, _>>()?;
    let ended: Vec<Output> = running.into_iter().map(|child| child.wait_with_output()).collect::<Result<_, _>>()?;
    let (moved, lost): (Vec<_>, Vec<_>) = ended.into_iter().partition(|output| output.status.success());
    for output in &lost {
        let words = String::from_utf8_lossy(&output.stderr);
        assert!(words.contains("the tag prod has moved meanwhile"), "{words}");
    }
    // Each move that was told has a serial of its own, and the last one stands.
    let last = format!("serial {} ", moved.len());
    let said: Vec<String> = moved.iter().map(|output| String::from_utf8_lossy(&output.stdout).into_owned()).collect();
    let winner = said.iter().find(|said| said.contains(&last)).unwrap_or_else(|| panic!("{last}: {said:?}"));
    let image = winner.split("the image ").nth(1).and_then(|rest| rest.get(..12)).unwrap_or_default();
    let listed = store.run(&["bucket", "ls", ROOM])?;
    assert!(listed.lines().any(|line| line.starts_with("prod") && line.contains(image)), "{listed}");
    Ok(())
}

#[test]
#[ignore = "scripts/test-objects builds the server of buckets"]
fn an_origin_says_what_is_wrong_with_its_packs() -> Outcome {
    if !have(&[Need::Tool("nbdcopy")]) {
        return Ok(());
    }
    let store = Store::start(2)?;
    let image = random_file(&store.lab.dir().join("disk.img"), 12 * MIB, 1)?;
    let to = format!("{ROOM}#prod");
    store.publish(&image, &to)?;
    let refused = |what: &str, says: &str| -> Outcome {
        let mut daemon = store.serve(what, &image).spawn()?;
        wait_until("it ends", SOON, || daemon.process_mut().ended().is_some())?;
        let log = std::fs::read_to_string(daemon.process().log_path())?;
        assert!(log.contains(says), "{says}: {log}");
        Ok(())
    };
    refused(&format!("{ROOM}#none"), "it has no tag none")?;
    refused(&format!("{ROOM}#{}", "0".repeat(64)), "it has no image 000000000000")?;

    // A pack that goes and comes back: reads wait, and nothing is lost.
    let pack = store.files("packs").remove(0);
    let aside = store.lab.dir().join("aside");
    let origin = store.serve(&to, &image).ready()?;
    let node = store.vfield.join(store.lab.host(1), origin.addr()).store("0").ready()?;
    std::fs::rename(&pack, &aside).map_err(LabError::at(&pack))?;
    let why = |status: &serde_json::Value| status["images"][0]["source"]["why"].as_str().unwrap_or_default().to_owned();
    std::thread::scope(|scope| {
        let reader = scope.spawn(|| client::compare_all(store.lab.host(1), &node, &image));
        let said = origin.wait_status("404", SOON, |status| why(status).contains("404 Not Found"));
        let returned = std::fs::rename(&aside, &pack).map_err(LabError::at(&pack));
        reader.join().expect("a reader does not panic").and(said).and(returned)
    })?;
    drop((node, origin));

    // An index and hashes that are damaged.
    for file in store.files("images") {
        let whole = std::fs::read(&file).map_err(LabError::at(&file))?;
        let mut other = whole.clone();
        let middle = other.len() / 2;
        other[middle] ^= 1;
        std::fs::write(&file, other).map_err(LabError::at(&file))?;
        let is_index = file.extension().is_none();
        refused(&to, if is_index { "damaged" } else { "its hashes: " })?;
        std::fs::write(&file, whole).map_err(LabError::at(&file))?;
    }
    store.compare(&to, &image)
}

#[test]
#[ignore = "scripts/test-objects builds the server of buckets"]
fn rubbish_goes_a_day_later() -> Outcome {
    let store = Store::start(1)?;
    let to = format!("{ROOM}#prod");
    for number in 0..3 {
        let image = random_file(&store.lab.dir().join(format!("{number}.img")), MIB, number)?;
        store.publish(&image, &to)?;
    }
    assert_eq!((store.files("packs").len(), store.files("images").len()), (3, 6));
    let gc = |more: &[&str]| store.run(&[&["bucket", "gc", ROOM], more].concat());
    let said = gc(&[])?;
    assert!(said.contains("in 1d 0h") && said.contains("0 B gone, 1.0 MiB later"), "{said}");
    // The store's clock is the time of its files: a day passes.
    let day = Duration::from_secs(25 * 3600);
    for dir in ["packs", "images"] {
        for file in store.files(dir) {
            let opened = std::fs::File::open(&file).map_err(LabError::at(&file))?;
            opened.set_modified(std::time::SystemTime::now() - 2 * day).map_err(LabError::at(&file))?;
        }
    }
    let list = store.lab.dir().join("store/images/room/doomed");
    let text = std::fs::read_to_string(&list).map_err(LabError::at(&list))?;
    let earlier =
        |line: &str| match line.split_once(' ').and_then(|(since, name)| Some((since.parse::<u64>().ok()?, name))) {
            Some((since, name)) => format!("{} {name}\n", since - day.as_secs()),
            None => format!("{line}\n"),
        };
    std::fs::write(&list, text.lines().map(earlier).collect::<String>()).map_err(LabError::at(&list))?;
    let said = gc(&["--dry-run"])?;
    assert!(said.contains("goes now") && said.contains("1.0 MiB would go now, 0 B later"), "{said}");
    assert_eq!(store.files("packs").len(), 3);
    let said = gc(&[])?;
    assert!(said.contains("1.0 MiB gone, 0 B later"), "{said}");
    assert_eq!((store.files("packs").len(), store.files("images").len()), (2, 4));
    assert_eq!(gc(&[])?.trim(), "no rubbish");
    store.run(&["bucket", "rollback", &to]).map(drop)?;
    Ok(())
}
