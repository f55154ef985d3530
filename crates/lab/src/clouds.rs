//! Stand-ins for clouds, as real programs: moto for AWS, with its metadata service and its exchange
//! of tokens; Azurite for Azure's blobs, with its signatures.

use crate::LabError;
use crate::lab::Host;
use crate::object_stores::free;
use crate::process::{Process, run};
use std::ffi::OsString;
use std::net::SocketAddr;
use std::path::Path;

/// Time to make a bucket or a blob.
const SOON: std::time::Duration = std::time::Duration::from_secs(60);

/// `moto_server`: buckets, a machine's metadata service, and an exchange of tokens. It compares no
/// signatures.
#[derive(Debug)]
pub struct Aws {
    _process: Process,
    addr: SocketAddr,
}

/// Makes a bucket.
const NEW_BUCKET: &str = "import sys, urllib.request as r
key = {'Authorization': 'AWS4-HMAC-SHA256 Credential=x/20260101/us-east-1/s3/aws4_request'}
r.urlopen(r.Request(sys.argv[1], method='PUT', headers=key))";

impl Aws {
    /// The environment variable with the path of `moto_server`.
    const PROGRAM: &str = "VFIELD_AWS";

    /// Listens at a free port of a host, and has the bucket `images`.
    ///
    /// # Errors
    /// If it cannot be started, or no one named it.
    pub fn start(host: &Host) -> Result<Self, LabError> {
        let (program, addr) = (named(Self::PROGRAM)?, free(host)?);
        let mut command = host.command(program);
        command.args(["-H", &addr.ip().to_string(), "-p", &addr.port().to_string()]);
        let process = host.listening(host.spawn("aws", &mut command)?, addr)?;
        run(host.client(SOON, "python3").args(["-c", NEW_BUCKET, &format!("http://{addr}/images")]))?;
        Ok(Self { _process: process, addr })
    }

    /// Its address, as it stands in variables.
    pub fn endpoint(&self) -> String {
        format!("http://{}", self.addr)
    }
}

/// `azurite-blob`: blobs of one account.
#[derive(Debug)]
pub struct Azure {
    _process: Process,
    addr: SocketAddr,
}

/// Puts a file into a new container, signed with the account's key.
const NEW_BLOB: &str = "import sys, hmac, hashlib, base64, email.utils, urllib.request as r
url, account, key, file = sys.argv[1:]
def put(path, query, body, extra):
    headers = {'x-ms-date': email.utils.formatdate(usegmt=True), 'x-ms-version': '2021-08-06', **extra}
    own = ''.join(f'{name}:{headers[name]}\\n' for name in sorted(headers))
    about = f'/{account}/{account}/{path}' + ''.join(f'\\n{part.replace(\"=\", \":\")}' for part in query)
    length = str(len(body)) if body else ''
    text = f'PUT\\n\\n\\n{length}\\n\\napplication/octet-stream\\n\\n\\n\\n\\n\\n\\n{own}{about}'
    sign = hmac.new(base64.b64decode(key), text.encode(), hashlib.sha256).digest()
    headers['Authorization'] = f'SharedKey {account}:{base64.b64encode(sign).decode()}'
    headers['Content-Type'] = 'application/octet-stream'
    where = f'{url}/{path}' + ('?' + '&'.join(query) if query else '')
    r.urlopen(r.Request(where, body, headers, method='PUT'))
put('images', ['restype=container'], b'', {})
put('images/disk.img', [], open(file, 'rb').read(), {'x-ms-blob-type': 'BlockBlob'})";

impl Azure {
    /// The environment variable with the path of `azurite-blob`.
    const PROGRAM: &str = "VFIELD_AZURE";
    /// The account that it knows.
    pub const ACCOUNT: &str = "room";
    /// The key of that account.
    pub const KEY: &str = "YSBrZXkgb2Ygc2l4dGVlbg==";

    /// Listens at a free port of a host, and has a file as the blob `images/disk.img`.
    ///
    /// # Errors
    /// If it cannot be started, or no one named it.
    pub fn start(host: &Host, file: &Path) -> Result<Self, LabError> {
        let (program, addr) = (named(Self::PROGRAM)?, free(host)?);
        let mut command = host.command(program);
        command.args(["--blobHost", &addr.ip().to_string(), "--blobPort", &addr.port().to_string()]);
        command.args(["--silent", "--location"]).arg(host.dir().join("blobs"));
        command.env("AZURITE_ACCOUNTS", format!("{}:{}", Self::ACCOUNT, Self::KEY));
        let process = host.listening(host.spawn("azure", &mut command)?, addr)?;
        let azure = Self { _process: process, addr };
        let mut put = host.client(SOON, "python3");
        put.args(["-c", NEW_BLOB, &azure.endpoint(), Self::ACCOUNT, Self::KEY]).arg(file);
        run(&mut put)?;
        Ok(azure)
    }

    /// The address of the account, as it stands in variables.
    pub fn endpoint(&self) -> String {
        format!("http://{}/{}", self.addr, Self::ACCOUNT)
    }
}

/// The program that a variable names.
fn named(variable: &str) -> Result<OsString, LabError> {
    let missing = || LabError::Command { command: variable.to_owned(), why: "it is not set".to_owned() };
    std::env::var_os(variable).ok_or_else(missing)
}
