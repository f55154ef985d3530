//! Addresses of NBD exports as clients write them: `nbd://HOST[:PORT]/NAME`,
//! `nbd+unix:///NAME?socket=PATH`.

use std::str::FromStr;
use vfield_console::failure::BadValue;
use vfield_control::values::endpoint::Endpoint;

const HINT: &str = "URIs look like nbd://127.0.0.1:10809/NAME or nbd+unix:///NAME?socket=/run/vfield.nbd";

/// An export of an NBD server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NbdUri {
    /// Where the server listens.
    pub server: Endpoint,
    /// Name of the export; "" is the server's first.
    pub name: String,
}

impl FromStr for NbdUri {
    type Err = BadValue;

    fn from_str(text: &str) -> Result<Self, BadValue> {
        let bad = |why: &str| BadValue::new(format!("{text:?} is no address of an NBD export: {why}"), HINT);
        if let Some(rest) = text.strip_prefix("nbd+unix://") {
            let (path, query) = rest.split_once('?').ok_or_else(|| bad("?socket= is missing"))?;
            let socket = query.split('&').find_map(|part| part.strip_prefix("socket="));
            let socket = socket.filter(|socket| !socket.is_empty()).ok_or_else(|| bad("?socket= is missing"))?;
            let socket = plain(socket).ok_or_else(|| bad("its % signs"))?;
            let name = plain(path.trim_start_matches('/')).ok_or_else(|| bad("its % signs"))?;
            return Ok(Self { server: Endpoint::Unix(socket.into()), name });
        }
        let rest =
            text.strip_prefix("nbd://").ok_or_else(|| bad("it begins neither with nbd:// nor with nbd+unix://"))?;
        let (host, name) = rest.split_once('/').unwrap_or((rest, ""));
        let name = plain(name).ok_or_else(|| bad("its % signs"))?;
        Ok(Self { server: Endpoint::Tcp(host.parse()?), name })
    }
}

/// Without escapes; `None` if they are no UTF-8 or no escapes at all.
fn plain(text: &str) -> Option<String> {
    let mut parts = text.split('%');
    let mut bytes = parts.next()?.as_bytes().to_vec();
    for part in parts {
        let digits = part.get(..2).filter(|digits| digits.bytes().all(|digit| digit.is_ascii_hexdigit()))?;
        bytes.push(u8::from_str_radix(digits, 16).ok()?);
        bytes.extend_from_slice(&part.as_bytes()[2..]);
    }
    String::from_utf8(bytes).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use vfield_export::nbd;

    #[test]
    fn what_exports_call_themselves_is_understood() {
        let unix = nbd::Address::Unix("/run/a b?.sock".into());
        assert_eq!(
            unix.uri("os v1").parse(),
            Ok(NbdUri { server: Endpoint::Unix("/run/a b?.sock".into()), name: "os v1".to_owned() })
        );
        let tcp: nbd::Address = "tcp:[::1]:7".parse().unwrap();
        assert_eq!(
            tcp.uri("").parse(),
            Ok(NbdUri { server: Endpoint::Tcp("[::1]:7".parse().unwrap()), name: String::new() })
        );
        let named: NbdUri = "nbd://lab-1/disk".parse().unwrap();
        assert_eq!((named.server, named.name), (Endpoint::Tcp("lab-1".parse().unwrap()), "disk".to_owned()));
    }

    #[test]
    fn what_is_no_uri_is_refused() {
        for text in ["", "disk", "nbd:", "nbd://", "nbd+unix:///x", "nbd+unix:///?socket=", "nbd://h/%4", "nbd://h/%ff"]
        {
            assert!(text.parse::<NbdUri>().is_err(), "{text}");
        }
    }

    proptest! {
        #[test]
        fn any_text_is_a_uri_or_a_refusal(text in "\\PC{0,30}") {
            let _ = format!("nbd://h/{text}").parse::<NbdUri>();
            let _ = format!("nbd+unix:///{text}?socket={text}").parse::<NbdUri>();
            let _ = text.parse::<NbdUri>();
        }
    }
}
