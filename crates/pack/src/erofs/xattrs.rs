//! Extended attributes as bytes, behind the inode that has them.
//!
//! A header of 12 bytes comes first. Each attribute has the lengths of name and value, the number
//! of the name's prefix, the rest of the name, and the value. Zeros fill it up to a multiple of 4.

/// Bytes of the header.
const HEADER_BYTES: u64 = 12;
/// Bytes of an attribute without its name and its value.
const ENTRY_BYTES: u64 = 4;
/// Most bytes of all attributes of an inode: their number of words has 16 bits.
pub const BYTES_MAX: u64 = bytes(u16::MAX);
/// Most bytes of one value.
pub const VALUE_BYTES_MAX: usize = u16::MAX as usize;

/// The prefixes of names that EROFS has numbers for. Access lists have the whole name as prefix.
const PREFIXES: [(&[u8], u8); 5] = [
    (b"user.", 1),
    (b"system.posix_acl_access", 2),
    (b"system.posix_acl_default", 3),
    (b"trusted.", 4),
    (b"security.", 6),
];

/// The number of a name's prefix, and the rest of the name. `None` if EROFS has no such prefix or
/// the rest is too long.
pub fn split(name: &[u8]) -> Option<(u8, &[u8])> {
    let (prefix, number) = PREFIXES.iter().find(|(prefix, _)| name.starts_with(prefix))?;
    let rest = &name[prefix.len()..];
    let is_list = matches!(number, 2 | 3);
    (rest.is_empty() == is_list && rest.len() <= usize::from(u8::MAX)).then_some((*number, rest))
}

/// One attribute: its whole name and its value.
pub type Xattr = (Box<[u8]>, Box<[u8]>);

/// Bytes of these attributes behind an inode, a multiple of 4; 0 without any.
pub fn length_bytes(xattrs: &[Xattr]) -> u64 {
    let of = |(name, value): &Xattr| {
        let rest = split(name).map_or(0, |(_, rest)| rest.len());
        (ENTRY_BYTES + (rest + value.len()) as u64).next_multiple_of(4)
    };
    if xattrs.is_empty() { 0 } else { HEADER_BYTES + xattrs.iter().map(of).sum::<u64>() }
}

/// Appends the attributes to `out`. Each has a name that [`split`] knows and a value of at most
/// [`VALUE_BYTES_MAX`].
pub fn encode(xattrs: &[Xattr], out: &mut Vec<u8>) {
    if xattrs.is_empty() {
        return;
    }
    out.extend([0; HEADER_BYTES as usize]);
    for (name, value) in xattrs {
        let (number, rest) = split(name).expect("checked when it was taken into the tree");
        out.extend([rest.len() as u8, number]);
        out.extend((value.len() as u16).to_le_bytes());
        out.extend(rest);
        out.extend(&value[..]);
        let odd = (rest.len() + value.len()) % 4;
        out.extend(std::iter::repeat_n(0, (4 - odd) % 4));
    }
}

/// The count in an inode for attributes of `bytes` bytes.
///
/// # Panics
/// If there are more than [`BYTES_MAX`].
pub fn count(bytes: u64) -> u16 {
    if bytes == 0 { 0 } else { u16::try_from((bytes - HEADER_BYTES) / 4 + 1).expect("at most BYTES_MAX") }
}

/// The bytes of attributes with this count in their inode.
pub const fn bytes(count: u16) -> u64 {
    if count == 0 { 0 } else { HEADER_BYTES + (count as u64 - 1) * 4 }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn xattr(name: &str, value: &[u8]) -> Xattr {
        (name.as_bytes().into(), value.into())
    }

    #[test]
    fn lengths_are_those_of_the_bytes() {
        for xattrs in [
            vec![],
            vec![xattr("user.a", b"")],
            vec![xattr("security.capability", &[1; 20]), xattr("system.posix_acl_access", &[2; 37])],
        ] {
            let mut bytes = Vec::new();
            encode(&xattrs, &mut bytes);
            assert_eq!(bytes.len() as u64, length_bytes(&xattrs));
            assert_eq!(super::bytes(count(bytes.len() as u64)), bytes.len() as u64);
        }
    }

    #[test]
    fn other_names_have_no_place() {
        for name in ["system.nfs4_acl", "btrfs.compression", "user.", "system.posix_acl_access2", ""] {
            assert_eq!(split(name.as_bytes()), None, "{name}");
        }
        assert_eq!(split(b"trusted.overlay.opaque"), Some((4, &b"overlay.opaque"[..])));
    }
}
