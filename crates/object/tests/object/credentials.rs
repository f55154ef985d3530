//! Services that lend credentials: to machines, to containers, for tokens, for files of accounts.

use crate::server::{Asked, serve};
use std::collections::BTreeMap;
use std::net::{SocketAddr, TcpListener};
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};
use tokio::runtime::{Builder, Runtime};
use vfield_block::object::{ObjectError, ObjectStore as _};
use vfield_object::{Bucket, Place};

fn runtime() -> Runtime {
    Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap()
}

/// A store of one byte for each object, which says how it was asked.
struct Store {
    addr: SocketAddr,
    asked: Arc<Mutex<Vec<BTreeMap<String, String>>>>,
}

impl Store {
    fn start() -> Self {
        let asked = Arc::<Mutex<Vec<_>>>::default();
        let noted = Arc::clone(&asked);
        let addr = serve(move |question: Asked| {
            noted.lock().unwrap().push(question.headers);
            (206, "Content-Range: bytes 0-0/1\r\n".to_owned(), vec![7])
        });
        Self { addr, asked }
    }

    /// Opens an object, with these variables besides the store's; the headers that were sent.
    fn open(&self, set: &[(&str, String)]) -> Result<BTreeMap<String, String>, ObjectError> {
        self.opened(&self.place("s3://images/a", set))
    }

    fn place(&self, url: &str, set: &[(&str, String)]) -> Place {
        let endpoint = format!("http://{}", self.addr);
        let variable = |name: &str| match name {
            "AWS_ENDPOINT_URL_S3" | "STORAGE_EMULATOR_HOST" | "AZURE_STORAGE_SERVICE_ENDPOINT" => {
                Some(endpoint.clone())
            }
            name => set.iter().find(|(key, _)| *key == name).map(|(_, value)| value.clone()),
        };
        Place::parse(url, &variable).unwrap()
    }

    fn opened(&self, place: &Place) -> Result<BTreeMap<String, String>, ObjectError> {
        runtime().block_on(place.open("")).map(|_| self.asked.lock().unwrap().pop().unwrap())
    }
}

fn time(after: Duration) -> String {
    let seconds = (SystemTime::now() + after).duration_since(SystemTime::UNIX_EPOCH).unwrap().as_secs();
    let said = Command::new("date").args(["-u", "+%Y-%m-%dT%H:%M:%SZ", "-d"]).arg(format!("@{seconds}")).output();
    String::from_utf8(said.unwrap().stdout).unwrap().trim().to_owned()
}

/// Keys in the form in which machines and containers get them.
fn keys(number: u32, life: Duration) -> Vec<u8> {
    let until = time(life);
    format!(
        r#"{{"Code":"Success","AccessKeyId":"KEY{number}","SecretAccessKey":"s","Token":"t","Expiration":"{until}"}}"#
    )
    .into_bytes()
}

const HOUR: Duration = Duration::from_secs(3600);

fn is_signed(headers: &BTreeMap<String, String>, key: &str) -> bool {
    headers["authorization"].contains(&format!("Credential={key}/")) && headers["x-amz-security-token"] == "t"
}

/// A metadata service with a role, or without one.
fn machine(role: Option<&'static str>, life: Duration) -> (SocketAddr, Arc<AtomicU32>) {
    let given = Arc::new(AtomicU32::new(0));
    let count = Arc::clone(&given);
    let addr = serve(move |asked| {
        let keys_of = "/latest/meta-data/iam/security-credentials/";
        let has_token = asked.headers.get("x-aws-ec2-metadata-token").is_some_and(|token| token == "session");
        match (asked.method.as_str(), asked.target.as_str()) {
            ("PUT", "/latest/api/token") => (200, String::new(), b"session".to_vec()),
            _ if !has_token => (401, String::new(), Vec::new()),
            ("GET", path) if path == keys_of => {
                role.map_or((404, String::new(), Vec::new()), |role| (200, String::new(), role.into()))
            }
            ("GET", path) if role.is_some_and(|role| path == format!("{keys_of}{role}")) => {
                (200, String::new(), keys(count.fetch_add(1, Ordering::Relaxed) + 1, life))
            }
            (method, path) => panic!("{method} {path}"),
        }
    });
    (addr, given)
}

#[test]
fn a_machine_has_the_keys_of_its_role() {
    let store = Store::start();
    let (addr, given) = machine(Some("room"), HOUR);
    let place = store.place("s3://images/a", &[("AWS_EC2_METADATA_SERVICE_ENDPOINT", format!("http://{addr}"))]);
    for _ in 0..3 {
        assert!(is_signed(&store.opened(&place).unwrap(), "KEY1"));
    }
    assert_eq!(given.load(Ordering::Relaxed), 1);
}

#[test]
fn keys_are_renewed_before_they_end() {
    let store = Store::start();
    let (addr, _) = machine(Some("room"), Duration::from_secs(3));
    let place = store.place("s3://images/a", &[("AWS_EC2_METADATA_SERVICE_ENDPOINT", format!("http://{addr}"))]);
    assert!(is_signed(&store.opened(&place).unwrap(), "KEY1"));
    while is_signed(&store.opened(&place).unwrap(), "KEY1") {
        std::thread::sleep(Duration::from_millis(50));
    }
}

#[test]
fn a_machine_without_an_account_signs_nothing() {
    let store = Store::start();
    let (without_role, _) = machine(None, HOUR);
    // Nobody listens.
    let closed = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    for addr in [without_role, closed] {
        let headers = store.open(&[("AWS_EC2_METADATA_SERVICE_ENDPOINT", format!("http://{addr}"))]).unwrap();
        assert!(!headers.contains_key("authorization"));
    }
    assert!(!store.open(&[]).unwrap().contains_key("authorization"));
}

#[test]
fn a_container_has_keys_for_its_token() {
    let store = Store::start();
    let addr = serve(|asked| match asked.headers.get("authorization").map(String::as_str) {
        Some("of-the-cluster") if asked.target == "/keys" => (200, String::new(), keys(1, HOUR)),
        _ => (403, String::new(), b"{}".to_vec()),
    });
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("token");
    std::fs::write(&file, "of-the-cluster\n").unwrap();
    let uri = ("AWS_CONTAINER_CREDENTIALS_FULL_URI", format!("http://{addr}/keys"));
    let token = ("AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE", file.to_str().unwrap().to_owned());
    let place = store.place("s3://images/a", &[uri.clone(), token]);
    assert_eq!(place.files(), [file]);
    assert!(is_signed(&store.opened(&place).unwrap(), "KEY1"));
    let refused = store.open(&[uri]).unwrap_err();
    assert!(refused.to_string().contains("403 Forbidden from 127.0.0.1") && !refused.may_pass(), "{refused}");
}

#[test]
fn a_container_asks_nobody_far_away_without_tls() {
    let refusal = |url: &str| {
        let variable = |name: &str| (name == "AWS_CONTAINER_CREDENTIALS_FULL_URI").then(|| url.to_owned());
        Bucket::parse("s3://images/a", &variable).err().map(|bad| bad.fact)
    };
    for url in ["http://keys.example/of-mine", "http://10.0.0.1/", "http://2/", "no URL"] {
        assert!(refusal(url).is_some_and(|fact| fact.contains("AWS_CONTAINER_CREDENTIALS_FULL_URI")), "{url}");
    }
    for url in ["http://169.254.170.23/v1/credentials", "http://[fd00:ec2::23]/v1/credentials", "http://[::1]:80/"] {
        assert_eq!(refusal(url), None, "{url}");
    }
}

#[test]
fn a_token_of_the_cluster_is_exchanged() {
    let store = Store::start();
    let addr = serve(|asked| {
        let field = |name: &str| {
            asked.body.split('&').find_map(|field| field.strip_prefix(&format!("{name}=")).map(str::to_owned))
        };
        assert_eq!((asked.method.as_str(), field("Action").as_deref()), ("POST", Some("AssumeRoleWithWebIdentity")));
        assert_eq!(field("RoleArn").as_deref(), Some("arn%3Aaws%3Aiam%3A%3A1%3Arole%2Froom"));
        match field("WebIdentityToken").as_deref() {
            Some("head.body.end") => {
                let until = time(HOUR);
                let body = format!(
                    "<AssumeRoleWithWebIdentityResponse><Credentials><AccessKeyId>KEY1</AccessKeyId>\
                     <SecretAccessKey>s</SecretAccessKey><SessionToken>t</SessionToken>\
                     <Expiration>{until}</Expiration></Credentials></AssumeRoleWithWebIdentityResponse>"
                );
                (200, String::new(), body.into_bytes())
            }
            _ => (
                400,
                String::new(),
                b"<ErrorResponse><Error><Code>ExpiredTokenException</Code></Error></ErrorResponse>".to_vec(),
            ),
        }
    });
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("token");
    let set = [
        ("AWS_WEB_IDENTITY_TOKEN_FILE", file.to_str().unwrap().to_owned()),
        ("AWS_ROLE_ARN", "arn:aws:iam::1:role/room".to_owned()),
        ("AWS_ENDPOINT_URL_STS", format!("http://{addr}")),
    ];
    let place = store.place("s3://images/a", &set);
    assert!(store.opened(&place).unwrap_err().to_string().contains("no token is in it"));
    std::fs::write(&file, "old").unwrap();
    let refused = store.opened(&place).unwrap_err().to_string();
    assert!(refused.contains("which lends keys (ExpiredTokenException)"), "{refused}");
    std::fs::write(&file, "head.body.end").unwrap();
    assert!(is_signed(&store.opened(&place).unwrap(), "KEY1"));
}

/// What a service says is not trusted.
#[test]
fn answers_that_lend_nothing_are_told() {
    let store = Store::start();
    for body in [
        String::new(),
        "<html>log in</html>".to_owned(),
        r#"{"AccessKeyId":"a","SecretAccessKey":"b","Expiration":"soon"}"#.to_owned(),
        r#"{"AccessKeyId":"a","SecretAccessKey":"b","Expiration":"2020-01-01T00:00:00Z"}"#.to_owned(),
        format!(r#"{{"AccessKeyId":"a\r\nx: y","SecretAccessKey":"b","Expiration":"{}"}}"#, time(HOUR)),
    ] {
        let answer = body.clone();
        let addr = serve(move |_| (200, String::new(), answer.clone().into_bytes()));
        let uri = ("AWS_CONTAINER_CREDENTIALS_FULL_URI", format!("http://{addr}/"));
        let refused = store.open(&[uri]).unwrap_err();
        assert!(refused.to_string().contains("answers with no keys") && refused.may_pass(), "{body}: {refused}");
    }
}

/// Runs OpenSSL on the files of a folder; true if it succeeded.
fn openssl(dir: &Path, args: &str) -> bool {
    Command::new("openssl").args(args.split(' ')).current_dir(dir).output().unwrap().status.success()
}

/// Checks a signature as Google does, by another program than ours.
fn is_signed_by(dir: &Path, assertion: &str) -> bool {
    let (text, signature) = assertion.rsplit_once('.').unwrap();
    let plain = signature.replace('-', "+").replace('_', "/");
    let padded = format!("{plain}{}\n", "=".repeat((4 - plain.len() % 4) % 4));
    std::fs::write(dir.join("text"), text).unwrap();
    std::fs::write(dir.join("signature.txt"), padded).unwrap();
    openssl(dir, "base64 -d -A -in signature.txt -out signature")
        && openssl(dir, "dgst -sha256 -verify public.pem -signature signature text")
}

#[test]
fn an_account_of_google_has_a_token_for_its_file() {
    let (store, dir) = (Store::start(), tempfile::tempdir().unwrap());
    assert!(openssl(dir.path(), "genpkey -algorithm RSA -pkeyopt rsa_keygen_bits:2048 -out key.pem"));
    assert!(openssl(dir.path(), "pkey -in key.pem -pubout -out public.pem"));
    let folder = dir.path().to_owned();
    let addr = serve(move |asked| {
        let (kind, assertion) = asked.body.split_once("&assertion=").unwrap();
        assert_eq!(kind, "grant_type=urn%3Aietf%3Aparams%3Aoauth%3Agrant-type%3Ajwt-bearer");
        match is_signed_by(&folder, assertion) {
            true => (200, String::new(), br#"{"access_token":"ya29.room","expires_in":3599}"#.to_vec()),
            false => (401, String::new(), br#"{"error":"invalid_grant"}"#.to_vec()),
        }
    });
    let file = dir.path().join("account.json");
    let place = store.place("gs://images/a", &[("GOOGLE_APPLICATION_CREDENTIALS", file.to_str().unwrap().to_owned())]);
    assert_eq!((place.address(), place.files()), ("gs://images/a", vec![file.clone()]));
    let write = |account: &str| std::fs::write(&file, account).unwrap();
    let key = std::fs::read_to_string(dir.path().join("key.pem")).unwrap();
    for (account, says) in [
        ("no JSON".to_owned(), "it is no file of an account"),
        (r#"{"type":"external_account"}"#.to_owned(), "neither a service account's file nor a person's"),
        (account(&key, "http://tokens.example/"), "is not encrypted"),
        (account("none", &format!("http://{addr}/token")), "its private_key is none"),
    ] {
        write(&account);
        let refused = store.opened(&place).unwrap_err();
        assert!(refused.to_string().contains(says) && !refused.may_pass(), "{refused}");
    }
    write(&account(&key, &format!("http://{addr}/token")));
    assert_eq!(store.opened(&place).unwrap()["authorization"], "Bearer ya29.room");
    assert!(!format!("{place:?}").contains("ya29"));
}

/// The file of a service account.
fn account(key: &str, token_uri: &str) -> String {
    let of = |text: &str| serde_json::Value::from(text).to_string();
    let (key, token_uri) = (of(key), of(token_uri));
    format!(r#"{{"type":"service_account","client_email":"r@e","private_key":{key},"token_uri":{token_uri}}}"#)
}

#[test]
fn a_machine_of_google_has_the_token_of_its_account() {
    let store = Store::start();
    let addr = serve(|asked| {
        assert_eq!(asked.target, "/computeMetadata/v1/instance/service-accounts/default/token");
        match asked.headers.get("metadata-flavor").map(String::as_str) {
            Some("Google") => (200, String::new(), br#"{"access_token":"ya29.vm","expires_in":3000}"#.to_vec()),
            _ => (403, String::new(), Vec::new()),
        }
    });
    let place = store.place("gs://images/a", &[("GCE_METADATA_HOST", addr.to_string())]);
    assert_eq!(store.opened(&place).unwrap()["authorization"], "Bearer ya29.vm");
    // Elsewhere nobody is asked.
    assert!(!store.opened(&store.place("gs://images/a", &[])).unwrap().contains_key("authorization"));
}

#[test]
fn an_application_of_azure_has_a_token_for_its_secret_or_that_of_the_cluster() {
    let (store, dir) = (Store::start(), tempfile::tempdir().unwrap());
    let addr = serve(|asked| {
        assert_eq!(asked.target, "/rooms/oauth2/v2.0/token");
        let has = |field: &str| asked.body.split('&').any(|other| other == field);
        assert!(has("client_id=room") && has("scope=https%3A%2F%2Fstorage.azure.com%2F.default"), "{}", asked.body);
        let kind = "client_assertion_type=urn%3Aietf%3Aparams%3Aoauth%3Aclient-assertion-type%3Ajwt-bearer";
        match has("client_secret=s3cret") || (has(kind) && has("client_assertion=head.body.end")) {
            true => (200, String::new(), br#"{"access_token":"eyJ0.room","expires_in":"3599"}"#.to_vec()),
            false => (401, String::new(), br#"{"error":"invalid_client"}"#.to_vec()),
        }
    });
    let file = dir.path().join("token");
    std::fs::write(&file, "head.body.end\n").unwrap();
    let application = [
        ("AZURE_CLIENT_ID", "room".to_owned()),
        ("AZURE_TENANT_ID", "rooms".to_owned()),
        ("AZURE_AUTHORITY_HOST", format!("http://{addr}/")),
    ];
    let with = |name, value: &str| {
        store.place("az://room/images/a", &[&application[..], &[(name, value.to_owned())]].concat())
    };
    for place in [with("AZURE_CLIENT_SECRET", "s3cret"), with("AZURE_FEDERATED_TOKEN_FILE", file.to_str().unwrap())] {
        let headers = store.opened(&place).unwrap();
        assert_eq!(
            (headers["authorization"].as_str(), headers["x-ms-version"].as_str()),
            ("Bearer eyJ0.room", "2021-08-06")
        );
    }
    let refused = store.opened(&with("AZURE_CLIENT_SECRET", "another")).unwrap_err();
    assert!(refused.to_string().contains("401 Unauthorized") && !refused.may_pass(), "{refused}");
}
