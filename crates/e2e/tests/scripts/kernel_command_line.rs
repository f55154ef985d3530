//! How `integration/root.sh` reads the kernel's command line, and what it trusts beside it, in the
//! shell of this machine. And what initramfs-tools' hook and dracut's module put there for it.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use tempfile::TempDir;
use vfield_e2e::Outcome;

/// Reads `words`, and prints the members and the options for the daemon; why it refuses, if it
/// does.
const READ: &str = r#"
words=$2
. "$1"
cat() { printf '%s\n' "$words"; }
vfield_say() { echo "said: $*"; }
vfield_read_command_line || exit 1
[ -z "$vfield_refused" ] || { echo "refused: $vfield_refused"; exit 0; }
printf '%s\n' "$vfield_members:$vfield_kind:$vfield_options"
"#;

/// The same with a directory that stands for the machine's: what it finds of keys.
const FIND: &str = r#"
words=$2 machine=$3
. "$1"
vfield_home=$machine/home vfield_own=$machine/own vfield_firmware=$machine/firmware vfield_credentials=$machine/credentials
vfield_encrypted=$machine/extra PATH=$machine/bin:$PATH
cat() { if [ $# = 1 ] && [ "$1" = /proc/cmdline ]; then printf '%s\n' "$words"; else command cat "$@"; fi; }
modprobe() { :; }
vfield_say() { echo "said: $*"; }
vfield_read_command_line || exit 1
vfield_find_trust && vfield_find_key || { echo failed; exit 0; }
echo "options:$vfield_options"
"#;

fn sh(script: &str, words: &str, machine: &Path) -> String {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../integration/root.sh");
    let output =
        Command::new("sh").args(["-euc", script, "sh"]).arg(root).arg(words).arg(machine).output().expect("a shell");
    assert!(output.status.success(), "{words}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).expect("text").trim_end().to_owned()
}

fn read(words: &str) -> String {
    sh(READ, words, Path::new("/"))
}

/// A machine, and what it has in its initramfs and its firmware.
struct Machine(TempDir);

impl Machine {
    fn new() -> std::io::Result<Self> {
        let dir = tempfile::tempdir()?;
        fs::create_dir_all(dir.path().join("home/keys"))?;
        Ok(Self(dir))
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn has(self, name: &str, bytes: &[u8]) -> std::io::Result<Self> {
        let path = self.path(name);
        fs::create_dir_all(path.parent().expect("a name"))?;
        fs::write(path, bytes)?;
        Ok(self)
    }

    fn has_program(self, name: &str) -> std::io::Result<Self> {
        let machine = self.has(name, b"")?;
        fs::set_permissions(machine.path(name), fs::Permissions::from_mode(0o755))?;
        Ok(machine)
    }

    /// What it finds if the command line has these words besides its root.
    fn finds(&self, words: &str) -> String {
        sh(FIND, &format!("root=vfield:os@a {words}"), self.0.path())
    }

    fn field_key(&self) -> std::io::Result<String> {
        fs::read_to_string(self.path("home/keys/field.key"))
    }
}

#[test]
fn words_become_options() {
    let words = "quiet root=vfield:os@10.0.0.1,10.0.0.2 vfield.store=1G vfield.join_boost=3 vfield.device=nbd";
    assert_eq!(read(words), "10.0.0.1 10.0.0.2:nbd: --store 1G --join-boost 3");
    assert_eq!(read("root=vfield:os@10.0.0.1"), "10.0.0.1:auto:");
    assert_eq!(read("root=vfield:os@a vfield.compress_store=yes"), "a:auto: --compress-store");
    let wrong = "vfield.compress_store= can only be vfield.compress_store=yes";
    assert_eq!(read("root=vfield:os@a vfield.compress_store=1"), format!("said: {wrong}\na:auto:"));
    assert_eq!(read("root=vfield:os@a vfield.stor=1"), "said: nothing is called vfield.stor\na:auto:");
}

#[test]
fn of_a_word_that_is_given_twice_the_last_counts() {
    let words = "root=vfield:os@a vfield.store=1G vfield.zone=x vfield.store=2G vfield.zone=y vfield.threads=2";
    assert_eq!(read(words), "a:auto: --store 2G --zone y --threads 2");
}

#[test]
fn no_word_becomes_an_option_of_its_own() {
    // Neither behind a comma, nor behind what a shell's echo makes a space.
    let refused = "there is a member without an address";
    for members in ["a,--trust=RWother", "--trust=RWother", "", ",a", "a,,b"] {
        let word = format!("root=vfield:os@{members}");
        assert_eq!(read(&word), format!("refused: {word}: {refused}"));
    }
    assert_eq!(read(r"root=vfield:os@a\0040--trust=x vfield.zone=/*"), r"a\0040--trust=x:auto: --zone /*");
    let word = "vfield.also=a,--trust=RWother";
    assert_eq!(read(&format!("root=vfield:os@a {word}")), format!("refused: {word}: there is an image without a name"));
}

#[test]
fn a_trusted_key_of_the_command_line_counts_where_the_initramfs_has_none() -> Outcome {
    let machine = Machine::new()?;
    assert_eq!(machine.finds(""), "options:");
    assert_eq!(machine.finds("vfield.trust=RWone,RWtwo"), "options: --trust RWone --trust RWtwo");
    assert_eq!(read("root=vfield:os@a vfield.trust="), "refused: vfield.trust= has no key");
    let machine = machine.has("etc/site.pub", b"site")?;
    let path = machine.path("etc/site.pub");
    assert_eq!(machine.finds(&format!("vfield.trust={}", path.display())), "options: --trust /keys/trust-1.pub");
    assert_eq!(fs::read(machine.path("home/keys/trust-1.pub"))?, b"site");
    assert!(
        machine.finds("vfield.trust=/none.pub").ends_with("said: the trusted key /none.pub cannot be read\nfailed")
    );
    Ok(())
}

#[test]
fn trusted_keys_of_the_initramfs_overrule_the_command_line() -> Outcome {
    let machine = Machine::new()?.has("own/trust/my site.pub", b"site")?.has("own/trust/vendor.pub", b"vendor")?;
    let options = "options: --trust /keys/trust-1.pub --trust /keys/trust-2.pub";
    assert_eq!(machine.finds(""), options);
    let said = "said: vfield.trust= is ignored: this initramfs has its own trusted keys";
    assert_eq!(machine.finds("vfield.trust=RWother"), format!("{said}\n{options}"));
    assert_eq!(fs::read(machine.path("home/keys/trust-1.pub"))?, b"site");
    assert_eq!(fs::read(machine.path("home/keys/trust-2.pub"))?, b"vendor");
    // One that should have keys and has none trusts nothing.
    let empty = Machine::new()?.has("own/trust/README", b"")?;
    let said = empty.finds("vfield.trust=RWother");
    assert!(said.contains("trust of this initramfs has no key") && said.ends_with("failed"), "{said}");
    Ok(())
}

#[test]
fn a_root_follows_only_a_tag_of_a_trusted_signer() -> Outcome {
    assert_eq!(read("root=vfield:os@a vfield.follow=prod vfield.failed=2,5"), "a:auto: --follow prod");
    for tag in ["", "-x", "a/b", "$(x)", "/.*/p;e"] {
        let word = format!("vfield.follow={tag}");
        assert_eq!(read(&format!("root=vfield:os@a {word}")), format!("refused: {word}: that is no tag"));
    }
    let saved = read("root=vfield:os@a vfield.follow=prod vfield.overlay_from=/dev/vda:/x");
    assert!(saved.starts_with("refused: vfield.overlay_from= and vfield.follow= exclude each other"), "{saved}");
    let machine = Machine::new()?;
    let said = machine.finds("vfield.follow=prod");
    assert!(said.starts_with("said: vfield.follow= needs vfield.trust=") && said.ends_with("failed"), "{said}");
    assert_eq!(machine.finds("vfield.follow=prod vfield.trust=RWone"), "options: --follow prod --trust RWone");
    let machine = machine.has("own/trust/site.pub", b"site")?;
    assert_eq!(machine.finds("vfield.follow=prod"), "options: --follow prod --trust /keys/trust-1.pub");
    Ok(())
}

#[test]
fn the_fields_key_is_a_credential_of_the_machine() -> Outcome {
    let raw = "firmware/qemu_fw_cfg/by_name/opt/io.systemd.credentials/vfield.key/raw";
    // Type 11, length 5, a handle, the number of strings, and these.
    let table = b"\x0b\x05\x00\x0e\x02io.systemd.credential:other=x\0io.systemd.credential:vfield.key=the key\0\0";
    let first = b"\x0b\x05\x00\x0e\x01io.systemd.credential:vfield.key=the key\0\0";
    // A whole key file, with its comment.
    let lines = b"\x0b\x05\x00\x0e\x02io.systemd.credential:vfield.key=# why\nthe key\0other\0\0";
    let places: [(&str, &[u8]); 6] = [
        (raw, b"the key"),
        ("firmware/dmi/entries/11-0/raw", table),
        ("firmware/dmi/entries/11-1/raw", first),
        ("firmware/dmi/entries/11-2/raw", lines),
        ("credentials/@initrd/vfield.key", b"the key\n"),
        ("credentials/@system/vfield.key", b"the key\n"),
    ];
    for (place, bytes) in places {
        // It counts whether the command line asks for it or not: nobody opens the field from there.
        for words in ["vfield.key=credential", ""] {
            let machine = Machine::new()?.has(place, bytes)?;
            assert_eq!(machine.finds(words), "options: --field-key /keys/field.key", "{place}");
            assert_eq!(machine.field_key()?.trim_end().trim_start_matches("# why\n"), "the key", "{place}");
            let mode = std::os::unix::fs::MetadataExt::mode(&fs::metadata(machine.path("home/keys/field.key"))?);
            assert_eq!(mode & 0o777, 0o600, "{place}");
        }
    }
    let machine = Machine::new()?.has("own/initramfs.key", b"own")?.has(raw, b"the key")?;
    assert_eq!(machine.finds(""), "options: --field-key /keys/field.key");
    assert_eq!(machine.field_key()?, "own");
    Ok(())
}

/// Decrypts a credential by cutting the machine's name off, as a TPM2 would with its key.
const DECRYPTER: &[u8] =
    b"#!/bin/sh\n[ \"$1\" = decrypt ] && [ \"$4\" = - ] && grep -q \"^here $2 \" \"$3\" && cut -d ' ' -f 3 \"$3\"\n";

#[test]
fn an_encrypted_credential_is_decrypted_on_its_machine_only() -> Outcome {
    for place in ["extra/credentials", "extra/global_credentials"] {
        let machine = Machine::new()?.has("bin/systemd-creds", DECRYPTER)?;
        let tool = fs::File::open(machine.path("bin/systemd-creds"))?;
        tool.set_permissions(std::os::unix::fs::PermissionsExt::from_mode(0o755))?;
        let machine = machine.has(&format!("{place}/vfield.key.cred"), b"here --name=vfield.key secret\n")?;
        // It counts before one that whoever made the machine's firmware could give.
        let machine = machine.has("credentials/@system/vfield.key", b"another\n")?;
        assert_eq!(machine.finds(""), "options: --field-key /keys/field.key", "{place}");
        assert_eq!(machine.field_key()?, "secret\n", "{place}");
        // Of another machine, or another credential's: not an open field, nor another key.
        for encrypted in ["there --name=vfield.key secret\n", "here --name=vfield.identity secret\n"] {
            fs::write(machine.path(&format!("{place}/vfield.key.cred")), encrypted)?;
            let said =
                "said: the credential vfield.key cannot be decrypted on this machine, and nothing boots without it";
            assert_eq!(machine.finds(""), format!("{said}\nfailed"), "{place}");
        }
    }
    Ok(())
}

#[test]
fn the_identity_is_a_credential_of_the_machine() -> Outcome {
    let machine = Machine::new()?.has("credentials/@system/vfield.identity", b"an identity\n")?;
    assert_eq!(machine.finds("vfield.identity=credential"), "options: --identity /keys/identity");
    assert_eq!(fs::read(machine.path("home/keys/identity"))?, b"an identity\n");
    let machine = machine.has("credentials/@system/vfield.key", b"the key\n")?;
    assert_eq!(machine.finds(""), "options: --field-key /keys/field.key --identity /keys/identity");
    let said = "said: vfield.identity=credential: this machine has no credential vfield.identity, and does not draw an \
                identity instead\nfailed";
    assert_eq!(Machine::new()?.finds("vfield.identity=credential"), said);
    let said = read("root=vfield:os@a vfield.identity=c0ffee");
    assert!(said.starts_with("refused: vfield.identity= can only be") && !said.contains("c0ffee"), "{said}");
    Ok(())
}

#[test]
fn signers_of_admission_lists_are_trusted_as_those_of_images_are() -> Outcome {
    let machine = Machine::new()?;
    assert_eq!(machine.finds("vfield.admission_trust=RWone"), "options: --admission-trust RWone");
    assert_eq!(read("root=vfield:os@a vfield.admission_trust="), "refused: vfield.admission_trust= has no key");
    let machine = machine.has("own/admission/site.pub", b"site")?;
    let said = "said: vfield.admission_trust= is ignored: this initramfs has its own trusted keys";
    let options = "options: --trust RWimage --admission-trust /keys/admission-trust-1.pub";
    assert_eq!(machine.finds("vfield.admission_trust=RWother vfield.trust=RWimage"), format!("{said}\n{options}"));
    assert_eq!(fs::read(machine.path("home/keys/admission-trust-1.pub"))?, b"site");
    let empty = Machine::new()?.has("own/admission/README", b"")?;
    assert!(empty.finds("").ends_with("failed"));
    Ok(())
}

#[test]
fn a_credential_that_is_missing_leads_into_no_open_field() -> Outcome {
    let machine = Machine::new()?.has("firmware/dmi/entries/11-0/raw", b"\x0b\x05\x00\x0e\x01other\0\0")?;
    assert_eq!(machine.finds(""), "options:");
    let said = "said: vfield.key=credential: this machine has no credential vfield.key, and does not join an open \
                field instead\nfailed";
    assert_eq!(machine.finds("vfield.key=credential"), said);
    Ok(())
}

#[test]
fn a_key_on_the_command_line_is_refused_and_not_repeated() {
    for words in ["vfield.key=c0ffee", "vfield.key=", "vfield.key=c0ffee vfield.key=credential"] {
        let said = read(&format!("root=vfield:os@a {words}"));
        assert!(said.starts_with("refused: vfield.key= can only be") && !said.contains("c0ffee"), "{said}");
    }
}

/// Runs the hook for a machine that is a directory: what it says of its own keys, and whether it
/// fails. The programs that it takes are in the file `taken` then.
const HOOK: &str = r#"
machine=$3 DESTDIR=$3/initramfs
for done in copy_file manual_add_modules auto_add_modules command; do eval "$done() { :; }"; done
copy_exec() { case ${1-} in */vfield) echo "${1#"$machine"} as $2" >>"$machine/taken" ;; esac; }
hook=$(sed -e '/hook-functions/d' -e "s,^own=.*,own=$machine/own," -e "/^for program in/s, /usr, $machine/usr,g" "$2")
(eval "$hook") 2>&1 || echo failed
"#;

/// The program that dracut's module takes from a machine that is a directory.
const MODULE: &str = r#"
dracutsysrootdir=$3
. "$2"
find_program || echo none
"#;

/// A path below `integration`.
fn integration(path: &str) -> String {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../integration").join(path).display().to_string()
}

fn run_hook(machine: &Machine) -> String {
    sh(HOOK, &integration("initramfs-tools/hooks/vfield"), machine.0.path())
}

#[test]
fn an_initramfs_gets_the_program_made_for_it_or_that_of_the_machine() -> Outcome {
    let module = integration("dracut/90vfield/module-setup.sh");
    let mut machine = Machine::new()?;
    assert_eq!(run_hook(&machine), "E: vfield: there is no program vfield\nfailed");
    assert_eq!(sh(MODULE, &module, machine.0.path()), "none");
    // Each is preferred to those before it.
    for place in ["/usr/local/bin/vfield", "/usr/bin/vfield", "/usr/lib/vfield/initramfs/vfield"] {
        machine = machine.has_program(&place[1..])?;
        assert_eq!(run_hook(&machine), "");
        assert_eq!(fs::read_to_string(machine.path("taken"))?, format!("{place} as /usr/bin/vfield\n"));
        fs::remove_file(machine.path("taken"))?;
        assert_eq!(sh(MODULE, &module, machine.0.path()), place);
    }
    Ok(())
}

#[test]
fn the_hook_takes_keys_along_or_fails() -> Outcome {
    let taken = |machine: &Machine, name: &str| {
        let own = machine.path("own");
        fs::read(machine.path("initramfs").join(own.strip_prefix("/").expect("absolute")).join(name))
    };
    let with_program = || Machine::new()?.has_program("usr/bin/vfield");
    let none = with_program()?;
    assert_eq!((run_hook(&none).as_str(), none.path("initramfs").exists()), ("", false));
    let machine = with_program()?.has("own/trust/my site.pub", b"site")?.has("own/trust/b.pub", b"b")?;
    let machine = machine.has("own/admission/c.pub", b"c")?;
    assert_eq!(run_hook(&machine), "");
    assert_eq!(taken(&machine, "admission/c.pub")?, b"c");
    assert_eq!((taken(&machine, "trust/my site.pub")?, taken(&machine, "trust/b.pub")?), (b"site".into(), b"b".into()));
    let machine = machine.has("own/initramfs.key", b"key")?;
    let said = run_hook(&machine);
    assert!(said.contains("the field's key is in this initramfs") && !said.contains("failed"), "{said}");
    assert_eq!(taken(&machine, "initramfs.key")?, b"key");
    let empty = with_program()?.has("own/trust/README", b"")?;
    let said = run_hook(&empty);
    assert!(said.contains("has no *.pub") && said.ends_with("failed"), "{said}");
    Ok(())
}

/// Mounts, and prints the command that runs in the daemon's directory.
const MOUNT: &str = r#"
words=$2
. "$1"
cat() { printf '%s\n' "$words"; }
vfield_mount_image() { [ "$1" = /root ]; }
vfield_run() { echo "run: $*" >&3; }
vfield_read_command_line || exit 1
vfield_mount /root 3>&1 >/dev/null
wait
! vfield_mount /elsewhere
"#;

#[test]
fn the_network_boot_is_told_of_a_root_that_is_mounted() {
    let url = "http://192.168.1.1:4480/booted/52-54-00-00-00-01/7";
    let mount = |words: &str| sh(MOUNT, words, Path::new("/"));
    assert_eq!(mount(&format!("root=vfield:os@a vfield.booted={url}")), format!("run: booted {url}"));
    assert_eq!(mount("root=vfield:os@a"), "");
    assert_eq!(mount("root=vfield:os@a vfield.booted=--help"), "", "a word is no option");
}
