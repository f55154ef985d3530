//! Records of pax: lines of `LENGTH KEY=VALUE` that say more than a header's fields can.

use crate::erofs::xattrs::Xattr;

/// Before the name of an extended attribute.
const XATTR: &[u8] = b"SCHILY.xattr.";
/// Keys of attributes whose form is another one; they are counted and left out.
const OTHER_ATTRIBUTES: [&[u8]; 3] = [b"SCHILY.acl.", b"LIBARCHIVE.xattr.", b"RHT.security."];

/// What records say about an entry; each replaces a field of its header.
#[derive(Debug, Clone, Default)]
pub struct Records {
    /// The path, in place of the header's.
    pub path: Option<Vec<u8>>,
    /// The target of a link.
    pub target: Option<Vec<u8>>,
    /// Bytes behind the header.
    pub size_bytes: Option<u64>,
    /// Number of the user who owns it.
    pub uid: Option<u32>,
    /// Number of the group that owns it.
    pub gid: Option<u32>,
    /// Time of the last change: seconds and nanoseconds.
    pub mtime: Option<(i64, u32)>,
    /// Extended attributes, in the tar's order.
    pub xattrs: Vec<Xattr>,
    /// Attributes in a form that is not read.
    pub left_out: u64,
    /// Format of a sparse file: major and minor number.
    pub sparse: [Option<u64>; 2],
    /// The path of a sparse file.
    pub sparse_path: Option<Vec<u8>>,
    /// The length of a sparse file.
    pub sparse_bytes: Option<u64>,
    /// True if a sparse file has a format that is not read.
    pub sparse_old: bool,
}

impl Records {
    /// Adds records in their text form; `None` if they are none.
    pub fn read(&mut self, mut text: &[u8]) -> Option<()> {
        while !text.is_empty() {
            let space = text.iter().position(|byte| *byte == b' ')?;
            let length: usize = number(&text[..space])?;
            let record = text.get(space + 1..length)?.strip_suffix(b"\n")?;
            let equals = record.iter().position(|byte| *byte == b'=')?;
            self.set(&record[..equals], &record[equals + 1..])?;
            text = &text[length..];
        }
        Some(())
    }

    fn set(&mut self, key: &[u8], value: &[u8]) -> Option<()> {
        match key {
            b"path" => self.path = Some(value.to_vec()),
            b"linkpath" => self.target = Some(value.to_vec()),
            b"size" => self.size_bytes = Some(number(value)?),
            b"uid" => self.uid = Some(number(value)?),
            b"gid" => self.gid = Some(number(value)?),
            b"mtime" => self.mtime = Some(time(value)?),
            b"GNU.sparse.major" => self.sparse[0] = Some(number(value)?),
            b"GNU.sparse.minor" => self.sparse[1] = Some(number(value)?),
            b"GNU.sparse.name" => self.sparse_path = Some(value.to_vec()),
            b"GNU.sparse.realsize" => self.sparse_bytes = Some(number(value)?),
            b"GNU.sparse.map" | b"GNU.sparse.numblocks" => self.sparse_old = true,
            _ => {
                if let Some(name) = key.strip_prefix(XATTR) {
                    self.xattrs.push((name.into(), value.into()));
                } else if OTHER_ATTRIBUTES.iter().any(|prefix| key.starts_with(prefix)) {
                    self.left_out += 1;
                }
            }
        }
        Some(())
    }
}

/// A number in decimal digits.
pub fn number<T: std::str::FromStr>(text: &[u8]) -> Option<T> {
    std::str::from_utf8(text).ok()?.parse().ok()
}

/// Seconds with a fraction, as whole seconds and the nanoseconds behind them.
fn time(text: &[u8]) -> Option<(i64, u32)> {
    let text = std::str::from_utf8(text).ok()?;
    let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
    let seconds: i64 = whole.parse().ok()?;
    let digits: String = fraction.chars().chain(std::iter::repeat('0')).take(9).collect();
    let nanoseconds: u32 = digits.parse().ok()?;
    match nanoseconds {
        0 => Some((seconds, 0)),
        // The fraction of a time before 1970 counts backwards.
        _ if text.starts_with('-') => Some((seconds.checked_sub(1)?, 1_000_000_000 - nanoseconds)),
        _ => Some((seconds, nanoseconds)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_are_read_by_their_length() {
        let mut records = Records::default();
        let text = b"22 SCHILY.xattr.a=\n=b\n\n12 path=a=b\n11 uid=1001\n18 mtime=-1.25\n";
        let text = [&text[..22], b"12 path=a=b\n", b"12 uid=1001\n", b"15 mtime=-1.25\n"].concat();
        assert_eq!(records.read(&text), Some(()), "{}", String::from_utf8_lossy(&text));
        assert_eq!(records.path.as_deref(), Some(&b"a=b"[..]));
        assert_eq!((records.uid, records.mtime), (Some(1001), Some((-2, 750_000_000))));
        assert_eq!(records.xattrs.len(), 1);
        for text in ["", "5", "5 a=b", "99 a=b\n", "6 a=b\nx", "4 a\n\n", "0 a=b\n", "x a=b\n"] {
            assert_eq!(Records::default().read(text.as_bytes()).is_some(), text.is_empty(), "{text:?}");
        }
    }
}
