//! Signatures on the command line: `vfield sign`, and the files that lie beside an image that is
//! served.

use crate::args::SignOptions;
use crate::{publish, source_file};
use ct_codecs::{Base64, Decoder};
use minisign::{PublicKey, SecretKey, SecretKeyBox};
use std::ffi::OsString;
use std::io::{Cursor, ErrorKind, IsTerminal, Write as _};
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};
use vfield_console::failure::{Failure, plain};
use vfield_console::log::{Console, Style};
use vfield_console::new_file::NewFile;
use vfield_console::volume::Volume;
use vfield_console::{log, output};
use vfield_core::statement::Statement;
use vfield_core::wire::Proof;
use vfield_daemon::values::image::ImageName;
use vfield_trust::signature::{BadTrust, read_short, timestamp_of};
use zeroize::Zeroizing;

/// Behind the name of an image's file: the statement about it, and that statement's signature.
const STATEMENT: &str = ".vfield";
const SIGNATURE: &str = ".vfield.minisig";

/// Bytes 0 and 1 of every secret key: ed25519.
const ALGORITHM: [u8; 2] = *b"Ed";
/// Bytes 2 and 3 of a secret key that no password protects.
const NO_PASSWORD: [u8; 2] = [0, 0];

/// Runs `vfield sign`.
pub fn sign(options: &SignOptions, volume: Volume) -> Result<(), Failure> {
    let SignOptions { file, secret_key, statement: only_statement, name, chunk_size } = options;
    source_file::check(file)?;
    let chunk_size = chunk_size.of_image(file);
    // A password that is wrong is found out before a large file is hashed.
    let key = match secret_key {
        Some(path) => Some(secret(path)?),
        None if *only_statement => None,
        None => {
            let failure = Failure::usage("neither --secret-key nor --statement is given");
            return Err(failure.hint("make a key with `minisign -G`"));
        }
    };
    let name = match name {
        Some(ImageName(name)) => name.clone(),
        None => source_file::name_of(file)?,
    };
    let console: Console = log::start(Style::choose(false, volume), volume);
    let (id, header) = publish::id(file, chunk_size, &console)?;
    let statement = Statement { name, id, header }.to_string();
    let at = beside_it(file, STATEMENT);
    write(&at, &statement)?;
    if let Some(key) = key {
        let signature = beside_it(file, SIGNATURE);
        write(&signature, &of(&key, &statement, &at, later_than(&signature))?)?;
    }
    output::put(statement.as_bytes())
}

/// Seconds since 1970, and later than the signature that lies at `path`, whatever the clock says.
/// Of two signed images, readers refuse the earlier one.
pub fn later_than(path: &Path) -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
    let last = read_short(path).ok().flatten().and_then(|last| timestamp_of(&last)).unwrap_or_default();
    now.max(last.saturating_add(1))
}

/// A signature of the text in a file, made at `timestamp`, in seconds since 1970.
pub fn of(key: &SecretKey, text: &str, file: &Path, timestamp: u64) -> Result<String, Failure> {
    let file_name = file.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    let comment = format!("timestamp:{timestamp}\tfile:{file_name}\thashed");
    // With the public key it verifies what it has signed: a damaged key is found out here.
    let signed = PublicKey::from_secret_key(key)
        .and_then(|public| minisign::sign(Some(&public), key, Cursor::new(text), Some(&comment), None));
    signed.map(minisign::SignatureBox::into_string).map_err(|error| Failure::failed(format!("signing failed: {error}")))
}

/// The signature that lies beside an image's file, if there is one.
pub fn beside(file: &Path) -> Result<Option<Proof>, Failure> {
    let read = |behind: &str| {
        let path = beside_it(file, behind);
        match read_short(&path) {
            Ok(Some(text)) => Ok(Some(text)),
            // Beside a file of the longest names there is no room for another one.
            Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::InvalidFilename) => Ok(None),
            Ok(None) => Err(unfit(&path, "not a statement of `vfield sign`")),
            Err(error) => Err(unfit(&path, &plain(&error))),
        }
    };
    let (statement, signature) = (read(STATEMENT)?, read(SIGNATURE)?);
    Ok(statement.zip(signature).map(|(statement, signature)| Proof { statement, signature }))
}

fn unfit(path: &Path, why: &str) -> Failure {
    Failure::failed(format!("{}: {why}", path.display())).hint("sign the image again, or remove the file")
}

/// `error` for people.
pub fn explain(error: BadTrust) -> Failure {
    let fact = match &error {
        BadTrust::Io { path, source } => format!("trusted key {path}: {}", plain(source)),
        BadTrust::NotAKey(_) => error.to_string(),
    };
    Failure::failed(fact).hint("give the public key, or its file, as `minisign -G` made it")
}

fn beside_it(file: &Path, behind: &str) -> PathBuf {
    let mut name: OsString = file.as_os_str().to_owned();
    name.push(behind);
    name.into()
}

fn write(path: &Path, text: &str) -> Result<(), Failure> {
    let written = NewFile::create(path).and_then(|mut new| {
        new.file.write_all(text.as_bytes())?;
        new.finish()
    });
    written.map_err(|error| {
        Failure::failed(format!("{}: {}", path.display(), plain(&error))).hint("the image's directory must be writable")
    })
}

/// The secret key in a file; a password is asked for.
pub fn secret(path: &Path) -> Result<SecretKey, Failure> {
    let refused = |why: &str| Failure::failed(format!("secret key {}: {why}", path.display()));
    let text = read_short(path).map_err(|error| refused(&plain(&error)).hint("check --secret-key"))?;
    let not_a_key = || refused("not a secret key of minisign").hint("give a secret key of `minisign -G`");
    let text = Zeroizing::new(text.ok_or_else(not_a_key)?);
    if let Some(key) = without_password(&text) {
        return Ok(key);
    }
    if decoded(&text).is_none_or(|bytes| !bytes.starts_with(&ALGORITHM)) {
        return Err(not_a_key());
    }
    if !std::io::stdin().is_terminal() {
        return Err(refused("it needs a password").hint("sign at a terminal, or with a key without password"));
    }
    let sealed = SecretKeyBox::from_string(&text).map_err(|_| not_a_key())?;
    sealed.into_secret_key(None).map_err(|_| refused("wrong password, or not a secret key").hint("try again"))
}

/// The key's bytes: the line below the comment.
fn decoded(text: &str) -> Option<Zeroizing<Vec<u8>>> {
    Base64::decode_to_vec(text.lines().nth(1)?.trim(), None).ok().map(Zeroizing::new)
}

/// A key as `minisign -GW` makes it. The tool leaves out the checksum that the library would insist
/// on.
fn without_password(text: &str) -> Option<SecretKey> {
    let bytes = decoded(text)?;
    (bytes.get(2..4)? == NO_PASSWORD).then(|| SecretKey::from_bytes(&bytes).ok())?
}
