//! Object stores of others, as real programs: nginx with TLS, a server of buckets, a registry.

use crate::LabError;
use crate::daemon::Start;
use crate::lab::Host;
use crate::port;
use crate::process::{Process, run};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The environment variable with the path of `versitygw`.
const BUCKETS: &str = "VFIELD_S3_SERVER";

/// nginx over TLS, with a certificate for its address by an authority of its own.
#[derive(Debug)]
pub struct TlsServer {
    process: Process,
    addr: SocketAddr,
    authority: PathBuf,
}

impl TlsServer {
    /// Its name, which leads nowhere.
    pub const NAME: &str = "store.example";

    /// Serves the files of `dir` at a free port of a host.
    ///
    /// # Errors
    /// If nginx or openssl fails.
    pub fn start(host: &Host, dir: &Path) -> Result<Self, LabError> {
        let addr = free(host)?;
        let home = host.dir().join("tls");
        std::fs::create_dir(&home).map_err(LabError::at(&home))?;
        let authority = certify(&home, addr)?;
        let config = format!(
            "daemon off; user root; pid {home}/pid; error_log stderr; events {{}}
             http {{ access_log {home}/access; default_type application/octet-stream;
                 client_body_temp_path {home}/b; proxy_temp_path {home}/p; fastcgi_temp_path {home}/f;
                 uwsgi_temp_path {home}/u; scgi_temp_path {home}/s;
                 server {{ listen {addr} ssl; root {dir};
                     ssl_certificate {home}/server.pem; ssl_certificate_key {home}/server.key;
                     location /moved/ {{ rewrite ^/moved/(.*) https://{addr}/$1 redirect; }}
                     location /plain/ {{ rewrite ^/plain/(.*) http://{addr}/$1 redirect; }} }} }}",
            home = home.display(),
            dir = dir.display(),
        );
        let path = home.join("nginx.conf");
        std::fs::write(&path, config).map_err(LabError::at(&path))?;
        let mut command = host.command("nginx");
        command.arg("-p").arg(&home).arg("-c").arg(&path).args(["-e", "stderr"]);
        let process = host.listening(host.spawn("nginx", &mut command)?, addr)?;
        Ok(Self { process, addr, authority })
    }

    /// Where it listens.
    pub const fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// The file with its authority's certificate.
    pub fn authority(&self) -> &Path {
        &self.authority
    }

    /// Ends it without a word to its clients.
    pub fn kill(&mut self) {
        self.process.kill();
    }
}

/// A certificate for an address and [`TlsServer::NAME`], and the authority that signed it; returns
/// the file of the latter.
fn certify(dir: &Path, addr: SocketAddr) -> Result<PathBuf, LabError> {
    let request = |name: &str, subject: &str| {
        let mut command = Command::new("openssl");
        command.current_dir(dir).args(["req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256"]);
        command.args(["-noenc", "-days", "2", "-subj", subject, "-keyout", &format!("{name}.key")]);
        command.args(["-out", &format!("{name}.pem")]);
        command
    };
    run(&mut request("authority", "/CN=an authority"))?;
    let subject = format!("subjectAltName=IP:{},DNS:{}", addr.ip(), TlsServer::NAME);
    let mut server = request("server", "/CN=a server");
    server.args(["-CA", "authority.pem", "-CAkey", "authority.key", "-addext", &subject]);
    run(server.args(["-addext", "basicConstraints=critical,CA:FALSE"]))?;
    Ok(dir.join("authority.pem"))
}

/// `versitygw` with the directories of a directory as its buckets. It compares signatures.
#[derive(Debug)]
pub struct Buckets {
    _process: Process,
    addr: SocketAddr,
}

impl Buckets {
    /// The key that it knows.
    pub const KEY: &str = "AKIAIMAGES";
    /// The secret of that key, with characters that requests encode.
    pub const SECRET: &str = "a/secret+of=images";

    /// Serves the directories of `dir` at a free port of a host.
    ///
    /// # Errors
    /// If it cannot be started, or no one named it.
    pub fn start(host: &Host, dir: &Path) -> Result<Self, LabError> {
        Self::start_with(host, dir, &[])
    }

    /// The same, and every write is refused.
    ///
    /// # Errors
    /// If it cannot be started, or no one named it.
    pub fn start_read_only(host: &Host, dir: &Path) -> Result<Self, LabError> {
        Self::start_with(host, dir, &["--readonly"])
    }

    fn start_with(host: &Host, dir: &Path, options: &[&str]) -> Result<Self, LabError> {
        let missing = || LabError::Command { command: BUCKETS.to_owned(), why: "it is not set".to_owned() };
        let (program, addr) = (std::env::var_os(BUCKETS).ok_or_else(missing)?, free(host)?);
        let mut command = host.command(program);
        command.args(["--port", &addr.to_string(), "--access", Self::KEY, "--secret", Self::SECRET]);
        command.args(options).arg("posix");
        let process = host.listening(host.spawn("buckets", command.arg(dir))?, addr)?;
        Ok(Self { _process: process, addr })
    }

    /// Where it listens.
    pub const fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// The environment that tells a program where it is, and the key.
    pub fn environment(&self) -> [(&'static str, String); 3] {
        [
            ("AWS_ENDPOINT_URL_S3", format!("http://{}", self.addr)),
            ("AWS_ACCESS_KEY_ID", Self::KEY.to_owned()),
            ("AWS_SECRET_ACCESS_KEY", Self::SECRET.to_owned()),
        ]
    }

    /// A daemon with that environment.
    pub fn known_to<'a>(&self, start: Start<'a>) -> Start<'a> {
        self.environment().iter().fold(start, |start, (name, value)| start.env(name, value))
    }
}

/// Debian's `docker-registry`, which is empty and lets everybody push.
#[derive(Debug)]
pub struct Registry {
    _process: Process,
    addr: SocketAddr,
}

impl Registry {
    /// Keeps its blobs in a directory of a host, and listens at a free port.
    ///
    /// # Errors
    /// If it cannot be started.
    pub fn start(host: &Host) -> Result<Self, LabError> {
        let (addr, home) = (free(host)?, host.dir().join("registry"));
        std::fs::create_dir(&home).map_err(LabError::at(&home))?;
        let config = format!(
            "version: 0.1\nstorage: {{filesystem: {{rootdirectory: {}}}}}\nhttp: {{addr: \"{addr}\"}}\n",
            home.join("blobs").display()
        );
        let path = home.join("config.yml");
        std::fs::write(&path, config).map_err(LabError::at(&path))?;
        let mut command = host.command("docker-registry");
        let process = host.listening(host.spawn("registry", command.arg("serve").arg(&path))?, addr)?;
        Ok(Self { _process: process, addr })
    }

    /// Where it listens.
    pub const fn addr(&self) -> SocketAddr {
        self.addr
    }
}

/// A port of a host's address that is free on loopback. In a namespace, where all ports are, it is
/// the next one to its node's.
pub(crate) fn free(host: &Host) -> Result<SocketAddr, LabError> {
    let port = if host.is_apart() { host.addr().port() + 1 } else { port::free()? };
    Ok(SocketAddr::new(host.addr().ip(), port))
}
