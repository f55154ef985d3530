//! Whom a daemon becomes when everything is set up, as far as it can be found out before.

use crate::values::user::UserName;
use rustix::process::geteuid;
use vfield_console::failure::{Failure, plain};

/// Where the users of a machine are. Not asked of the C library, whose other sources cannot be had
/// in a static program.
const USERS: &str = "/etc/passwd";

/// A user without the rights of root.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct User {
    /// As people know him.
    pub name: String,
    /// The numeric user id.
    pub uid: u32,
    /// The numeric group id.
    pub gid: u32,
}

impl User {
    /// Finds him; `None` if this process is of that user already.
    pub fn find(wanted: &UserName) -> Result<Option<Self>, Failure> {
        let users = std::fs::read_to_string(USERS)
            .map_err(|error| Failure::failed(format!("--user: {USERS}: {}", plain(&error))))?;
        let user = among(&users, &wanted.0).ok_or_else(|| {
            let failure = Failure::failed(format!("--user: there is no user {:?} in {USERS}", wanted.0));
            failure.hint("create one with `useradd --system`, or give a number; most machines have the user nobody")
        })?;
        let (own, is_root) = (geteuid().as_raw(), geteuid().is_root());
        match user.uid {
            0 => Err(Failure::usage("--user: root has the rights that --user is to drop")
                .hint("name a user without other rights")),
            uid if uid == own => Ok(None),
            _ if !is_root => {
                let failure = Failure::failed(format!("--user: only root can become {}", user.name));
                Err(failure.hint("start the daemon as that user, or leave --user out"))
            }
            _ => Ok(Some(user)),
        }
    }
}

/// The user of that name or number in a file of users. A number without an entry is its own group.
fn among(users: &str, wanted: &str) -> Option<User> {
    let known = users.lines().find_map(|line| {
        let mut fields = line.split(':');
        let (name, uid, gid) = (fields.next()?, fields.nth(1)?, fields.next()?);
        let user = User { name: name.to_owned(), uid: uid.parse().ok()?, gid: gid.parse().ok()? };
        (name == wanted || uid == wanted).then_some(user)
    });
    let number = || wanted.parse().ok().map(|id| User { name: wanted.to_owned(), uid: id, gid: id });
    known.or_else(number)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn users_have_names_or_numbers() {
        let users = "root:x:0:0:root:/root:/bin/bash\nrubbish\nx:y\nvfield:x:977:978::/:/bin/false\n";
        let user = User { name: "vfield".to_owned(), uid: 977, gid: 978 };
        assert_eq!(among(users, "vfield"), Some(user.clone()));
        assert_eq!(among(users, "977"), Some(user));
        assert_eq!(among(users, "4711"), Some(User { name: "4711".to_owned(), uid: 4711, gid: 4711 }));
        assert_eq!(among(users, "nobody"), None);
        assert_eq!(among(users, "-1"), None);
        assert_eq!(among("", ""), None);
    }
}
