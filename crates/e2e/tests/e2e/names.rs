//! Which bytes a name or an id means, also where somebody says of images what it likes.

use serde_json::Value;
use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};
use vfield_e2e::bully::Name;
use vfield_e2e::field::{Field, NEWS, Plan, state_of};
use vfield_e2e::herald::{self, Word, proclaim};
use vfield_e2e::liar::{self, Twist};
use vfield_e2e::program::vfield;
use vfield_e2e::{Failed, Outcome};
use vfield_lab::bytes::{MIB, random_file};
use vfield_lab::need::{Need, have};
use vfield_lab::process::run;
use vfield_lab::wait::Deadline;
use vfield_lab::{Daemon, Lab, LabError, client};

/// Length of the images here: one page of hashes, which is the top.
const BYTES: u64 = 4 * MIB;
/// Its chunks of 64 KiB, none of which is all zeros.
const CHUNKS: u64 = BYTES >> 16;
/// A join that has nobody to wait for ends before this, despite any claim.
const ENDS: Duration = Duration::from_secs(60);
fn text<'a>(status: &'a Value, key: &str) -> &'a str {
    status[key].as_str().expect("a text")
}

/// The name of a running node in the field.
fn name_of(daemon: &Daemon) -> Result<Name, Failed> {
    let status = daemon.status()?;
    let node = u64::from_str_radix(text(&status, "node"), 16).expect("hexadecimal");
    Ok(Name { addr: daemon.addr(), node, generation: 1, seed: 3 })
}

/// The id of a daemon's first image.
fn id_of(daemon: &Daemon) -> Result<String, LabError> {
    Ok(text(&daemon.image()?, "id").to_owned())
}

/// An origin on host 0 and a reader on host 1; nobody on host 2 and 3.
fn field() -> Result<Field, LabError> {
    Field::on(Lab::loopback(5)?, Plan { image_bytes: BYTES, stores: &["0"], ..Plan::default() })
}

/// A join on host 2, started.
fn joining(field: &Field, name: &str, words: &[&str]) -> Result<Daemon, LabError> {
    joining_through(field, field.origin.addr(), name, words)
}

/// The same, through any member.
fn joining_through(field: &Field, through: SocketAddr, name: &str, words: &[&str]) -> Result<Daemon, LabError> {
    field.vfield.join(field.lab.host(2), through).name(name).store("0").args(words).spawn()
}

/// What a join on host 2 says that refuses.
fn refused(field: &Field, words: &[&str]) -> Result<String, Failed> {
    Ok(refused_or_has(field, words)?.expect_err("it refuses"))
}

/// The id of the image that a join on host 2 takes part in, or what it says when it refuses.
fn refused_or_has(field: &Field, words: &[&str]) -> Result<Result<String, String>, LabError> {
    let mut node = joining(field, "either", words)?;
    let is_ready = node.wait_ready(ENDS).is_ok();
    let has = is_ready.then(|| id_of(&node)).transpose()?;
    let ended = if is_ready { None } else { Some(node.process_mut().wait(ENDS)?) };
    let log = node.process().log();
    drop(node);
    std::fs::remove_file(field.lab.host(2).dir().join("either.log")).expect("it had a log");
    assert!(!log.contains("panicked") && ended.is_none_or(|status| !status.success()), "{log}");
    Ok(has.ok_or(log))
}

/// A join on host 2 reads `image` under `name`; the origin is not blamed for what others said.
fn reads(field: &Field, words: &[&str], name: &str, image: &Path) -> Outcome {
    let mut node = joining(field, "reads", words)?;
    node.wait_ready(ENDS)?;
    client::compare_nbd(field.lab.host(2), &node.uri(name), image)?;
    let status = node.status()?;
    assert_eq!(state_of(&status, field.origin.addr()).as_deref(), Some("alive"), "it is innocent: {status:#}");
    assert_eq!(status["misdeeds"]["lies"], 0, "{status:#}");
    Ok(())
}

/// "My image has the name, and yours another one": who joins is told of both and gets neither,
/// unless it says which.
#[test]
fn a_name_is_not_given_to_who_spoke_last() -> Outcome {
    if !have(&[Need::Tool("nbdcopy")]) {
        return Ok(());
    }
    let field = field()?;
    let dir = field.lab.dir().join("other");
    std::fs::create_dir(&dir)?;
    let other_image = random_file(&dir.join("disk.img"), BYTES, 9)?;
    // A process of its own field, so that claims about its image can be proved.
    let other = field.vfield.serve(field.lab.host(3), &[&other_image]).name("other").ready()?;
    let (real, false_id) = (id_of(&field.origin)?, id_of(&other)?);
    let (origin, liar) = (name_of(&field.origin)?, Name::of(other.addr(), 3));
    let header = herald::header(BYTES, CHUNKS);
    let word = |of: &Name, image, name| Word { of: *of, version: 1 << 50, image, name, header, origin: true };
    let words = [word(&liar, &false_id, "disk.img"), word(&origin, &real, "old-disk.img")];
    for daemon in [&field.origin, &field.nodes[0]] {
        proclaim(daemon.addr(), liar, &[liar], &words)?;
    }
    client::compare_nbd(field.host(0), &field.nodes[0].uri("disk.img"), &field.image)?;
    // The liar's invention is buried. The origin calls its address meanwhile, and the process there
    // then speaks for itself. A join in between hears of one image, and that is the real one.
    let hears_of_both = |words: &[&str]| {
        Deadline::after(ENDS).poll("a join hears of both", || {
            refused_or_has(&field, words).map(|either| {
                either.map_or_else(Some, |has| {
                    assert_eq!(has, real, "an invention was taken for the only image");
                    None
                })
            })
        })
    };
    let said = hears_of_both(&["--image", "disk.img"])?;
    for fact in [&real[..12], &false_id[..12], &other.addr().to_string(), "--image disk.img="] {
        assert!(said.contains(fact), "{fact} is not in: {said}");
    }
    let said = hears_of_both(&[])?;
    assert!(said.contains(&false_id[..12]) && said.contains(&real[..12]), "it shows both: {said}");
    reads(&field, &["--image", &format!("disk.img={}", &real[..12])], "disk.img", &field.image)?;
    reads(&field, &["--image", &real], "", &field.image)?;
    reads(&field, &["--image", &real[..12]], "", &field.image)?;
    client::compare_nbd(field.host(0), &field.nodes[0].uri("disk.img"), &field.image)?;
    Ok(())
}

/// Wrong headers of an image, in the name of others, and images that nobody has under its name.
#[test]
fn what_nobody_can_prove_is_not_believed() -> Outcome {
    if !have(&[Need::Tool("nbdcopy")]) {
        return Ok(());
    }
    let field = field()?;
    let real = id_of(&field.origin)?;
    let wrong = herald::header(2 * BYTES + 5, CHUNKS);
    let short = herald::header(70_000, 2);
    let nothing = "5a".repeat(32);
    let word = |of, image, name, header| Word { of, version: 1 << 50, image, name, header, origin: true };
    // Those who do not exist are buried after a while, and forgotten: each time there are others.
    let slander = |round: u64| -> Outcome {
        let [liar, ghost] = [3, 4].map(|host| {
            let addr = (field.lab.host(host).addr().ip(), 9000 + round as u16).into();
            Name::of(addr, 100 + 2 * round + host as u64 % 2)
        });
        let words = [
            word(liar, real.as_str(), "disk.img", wrong),
            word(ghost, &real, "disk.img", short),
            word(ghost, &nothing, "disk.img", wrong),
        ];
        for daemon in [&field.origin, &field.nodes[0]] {
            proclaim(daemon.addr(), liar, &[liar, ghost], &words)?;
        }
        Ok(())
    };
    slander(0)?;
    reads(&field, &["--image", &real], "", &field.image)?;
    slander(1)?;
    reads(&field, &["--image", "disk.img"], "disk.img", &field.image)?;
    slander(2)?;
    reads(&field, &[], "disk.img", &field.image)?;
    // One more origin of the same image is not turned away for their sake.
    slander(3)?;
    let again = field.vfield.serve(field.lab.host(2), &[&field.image]).name("again");
    drop(again.args(&["--join", &field.origin.addr().to_string()]).ready()?);
    // On a busy machine they may be forgotten before anybody joins.
    let verdict = (4..14).find_map(|round| {
        let start = Instant::now();
        let said = slander(round).and_then(|()| refused(&field, &["--image", &nothing])).ok()?;
        said.contains("cannot be verified").then(|| (said, start.elapsed()))
    });
    let (said, took) = verdict.expect("it was heard of at last");
    assert!(said.contains(&nothing[..12]), "{said}");
    assert!(took < ENDS / 2, "it took {took:?}");
    Ok(())
}

/// The member that is asked first turns a bit of each header proof over: the next one is asked, and
/// if there is none the image is refused.
#[test]
fn a_wrong_header_proof_is_refused_and_the_next_member_is_asked() -> Outcome {
    if !have(&[Need::Tool("nbdcopy")]) {
        return Ok(());
    }
    let lab = Lab::loopback(5)?;
    let front = lab.host(3).addr();
    liar::twist(front, lab.host(1).addr(), Twist::HeaderProof)?;
    let mut field = Field::on(lab, Plan { image_bytes: BYTES, ..Plan::default() })?;
    let liar = field.join(0, field.origin.addr(), "all").args(&["--advertise", &front.to_string()]).ready()?;
    liar.wait("filled", NEWS)?;
    let mut node = joining_through(&field, front, "reads", &[])?;
    node.wait_ready(ENDS)?;
    client::compare_nbd(field.lab.host(2), &node.uri("disk.img"), &field.image)?;
    assert_eq!(node.status()?["misdeeds"]["lies"], 0, "its chunks are right");
    drop(node);
    field.origin.kill();
    let mut node = joining_through(&field, front, "refused", &[])?;
    assert!(!node.process_mut().wait(ENDS)?.success());
    let log = node.process().log();
    let why = format!("{front}: its header is not the one of the image");
    assert!(log.contains("cannot be verified: no member proves its header") && log.contains(&why), "{log}");
    Ok(())
}

/// What a command prints that fails.
fn complaint(command: &mut Command) -> Result<String, Failed> {
    let output = command.output()?;
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(!output.status.success(), "it did not fail: {text}");
    Ok(text)
}

#[test]
fn the_beginning_of_an_id_is_enough() -> Outcome {
    let field = field()?;
    let id = id_of(&field.origin)?;
    let length = |wanted: &str| {
        let mut cat = field.nodes[0].ask("cat");
        let output = cat.arg(wanted).output()?;
        assert!(output.status.success(), "{wanted}: {}", String::from_utf8_lossy(&output.stderr));
        Ok::<usize, Failed>(output.stdout.len())
    };
    for wanted in ["disk.img", &id, &id[..12], &id[..12].to_uppercase()] {
        assert_eq!(length(wanted)? as u64, BYTES, "{wanted}");
    }
    let said = complaint(field.nodes[0].ask("cat").arg("nothing.img"))?;
    assert!(said.contains("this node has no image \"nothing.img\"") && said.contains(&id[..12]), "{said}");
    Ok(())
}

/// Names of the longest that a file can have: there is no room beside it for the name of a
/// signature's file.
#[test]
fn a_file_of_the_longest_name_is_served() -> Outcome {
    if !have(&[Need::Tool("nbdcopy")]) {
        return Ok(());
    }
    let (lab, vfield) = (Lab::loopback(2)?, vfield());
    let name = format!("{}.img", "x".repeat(251));
    let image = random_file(&lab.dir().join(&name), MIB, 1)?;
    let start = vfield.serve(lab.host(0), &[&image]).mounted(vfield_lab::need::fuse_works());
    let origin = start.name("origin").ready()?;
    let node = vfield.join(lab.host(1), origin.addr()).store("all").args(&["--image", &name]).ready()?;
    client::compare_nbd(lab.host(1), &node.uri(&name), &image)?;
    drop((node, origin));
    let short = vfield.serve(lab.host(0), &[&image]).args(&["--name", "short.img"]).name("short").ready()?;
    client::compare_nbd(lab.host(0), &short.uri("short.img"), &image)?;
    Ok(())
}

#[test]
fn one_image_is_there_under_each_of_its_names() -> Outcome {
    if !have(&[Need::Tool("nbdcopy")]) {
        return Ok(());
    }
    let (lab, vfield) = (Lab::loopback(4)?, vfield());
    let one = random_file(&lab.dir().join("one.img"), BYTES, 1)?;
    let same = random_file(&lab.dir().join("same.img"), BYTES, 1)?;
    let other = random_file(&lab.dir().join("other.img"), MIB, 2)?;
    let serve = vfield.serve(lab.host(0), &[&one, &other, &same]).mounted(vfield_lab::need::fuse_works());
    let origin = serve.name("origin").ready()?;
    let of_both = |daemon: &Daemon, host: usize| -> Outcome {
        for name in ["one.img", "same.img"] {
            client::compare_nbd(lab.host(host), &daemon.uri(name), &one)?;
            if let Some(mount) = daemon.mount() {
                client::compare_file(lab.host(host), &mount.join(name), &one)?;
            }
        }
        Ok(())
    };
    of_both(&origin, 0)?;
    assert_eq!(origin.status()?["images"].as_array().map(Vec::len), Some(2), "two names, one image");
    let status = origin.status()?;
    let mut images = status["images"].as_array().into_iter().flatten();
    let both = images.find(|image| image["names"] == serde_json::json!(["one.img", "same.img"])).expect("both names");
    let id = text(both, "id").to_owned();
    let join = |host: usize, through: &Daemon, image: &str| {
        let start = vfield.join(lab.host(host), through.addr()).store("all").args(&["--image", image]);
        start.mounted(vfield_lab::need::fuse_works()).ready()
    };
    let by_name = join(1, &origin, "same.img")?;
    client::compare_nbd(lab.host(1), &by_name.uri("same.img"), &one)?;
    assert_eq!(by_name.image()?["names"], serde_json::json!(["same.img"]), "it goes by what it was asked for");
    let by_id = join(2, &by_name, &id)?;
    of_both(&by_id, 2)?;
    by_id.wait("filled", NEWS)?;
    drop((origin, by_name));
    of_both(&join(3, &by_id, &id[..12])?, 3)?;
    Ok(())
}

#[test]
fn a_rule_about_no_image_is_an_error_and_one_image_without_a_rule_is_closed() -> Outcome {
    if !have(&[Need::Tool("nbdinfo")]) {
        return Ok(());
    }
    let (lab, vfield) = (Lab::loopback(1)?, vfield());
    let files = ["os-v1", "os-v2"].map(|name| lab.dir().join(name));
    for (seed, file) in (1..).zip(&files) {
        random_file(file, MIB, seed)?;
    }
    let ip = lab.host(0).addr().ip();
    let place = format!("tcp:{ip}:{}", lab.host(0).addr().port() + 1);
    let serve = |name: &str, rule: &str| {
        let serve = vfield.serve(lab.host(0), &[&files[0], &files[1]]).name(name);
        serve.args(&["--nbd", &place, "--nbd-allow", rule]).spawn()
    };
    let mut refused = serve("refused", "os-v11=10.0.0.0/8")?;
    assert!(!refused.process_mut().wait(NEWS)?.success());
    let log = refused.process().log();
    assert!(log.contains("--nbd-allow os-v11=10.0.0.0/8: this node has no image \"os-v11\""), "{log}");
    assert!(log.contains("os-v1 (id ") && log.contains("os-v2 (id "), "{log}");

    let mut origin = serve("origin", "os-v2=127.0.0.0/8")?;
    origin.wait_ready(NEWS)?;
    origin.says("os-v1 is closed to TCP clients: no --nbd-allow rule names it", NEWS)?;
    let info = |name: &str| {
        let uri = format!("nbd://{ip}:{}/{name}", lab.host(0).addr().port() + 1);
        Command::new("nbdinfo").arg("--size").arg(uri).output()
    };
    assert!(info("os-v2")?.status.success() && !info("os-v1")?.status.success());
    Ok(())
}

/// A file is replaced and its origin started again: both ends are told what became of the name, and
/// who joins can choose.
#[test]
fn a_replaced_file_is_told_of_at_both_ends() -> Outcome {
    if !have(&[Need::Tool("nbdcopy")]) {
        return Ok(());
    }
    let mut field = Field::on(Lab::loopback(5)?, Plan { image_bytes: BYTES, stores: &["all"], ..Plan::default() })?;
    field.covered()?;
    let old_id = id_of(&field.origin)?;
    let old = field.lab.dir().join("old.img");
    std::fs::copy(&field.image, &old)?;
    std::fs::rename(random_file(&field.lab.dir().join("new.img"), BYTES, 2)?, &field.image)?;
    let warned = |status: &Value, text: &str| {
        let warnings = status["warnings"].as_array().into_iter().flatten();
        warnings.filter_map(Value::as_str).any(|warning| warning.contains(text))
    };
    field.origin.wait_status("the origin says that its file was replaced", NEWS, |status| {
        status["images"][0]["source"]["moved"] == "replaced" && warned(status, "was replaced")
    })?;
    let shown = run(&mut field.origin.ask("status"))?;
    assert!(shown.contains("was replaced: the file that was opened is served"), "{shown}");
    client::compare_nbd(field.host(0), &field.nodes[0].uri("disk.img"), &old)?;

    field.origin.kill();
    let serve = field.vfield.serve(field.lab.host(0), &[&field.image]).name("origin");
    field.origin = serve.args(&["--join", &field.nodes[0].addr().to_string()]).ready()?;
    let new_id = id_of(&field.origin)?;
    let (old12, new12) = (&old_id[..12], &new_id[..12]);
    let reader = format!("\"disk.img\" is another image now at {} (id {new12})", field.origin.addr());
    let still = format!("this node still reads id {old12}: the stores of the field hold all of it");
    let told = |status: &Value| warned(status, &reader) && warned(status, &still);
    field.nodes[0].wait_status("the reader is told", NEWS, told)?;
    let served =
        format!("\"disk.img\" is served here with id {new12}, and 1 other node has another image of that name");
    field.origin.wait_status("the origin is told", NEWS, |status| warned(status, &served))?;
    let shown = run(&mut field.nodes[0].ask("status"))?;
    let line = format!("{} serves another disk.img; to join it: --image disk.img={new12}", field.origin.addr());
    assert!(shown.contains(&line), "{shown}");

    let said = refused(&field, &["--image", "disk.img"])?;
    for pin in [old12, new12] {
        assert!(said.contains(&format!("--image disk.img={pin}")), "{said}");
    }
    reads(&field, &["--image", &format!("disk.img={new12}")], "disk.img", &field.image)?;
    reads(&field, &["--image", &format!("disk.img={old12}")], "disk.img", &old)?;
    client::compare_nbd(field.host(0), &field.nodes[0].uri("disk.img"), &old)?;

    std::fs::remove_file(&field.image)?;
    let moved = |status: &Value| status["images"][0]["source"]["moved"] == "unlinked";
    field.origin.wait_status("the origin says that its file is gone", NEWS, moved)?;
    Ok(())
}
