//! The export to read or write: the daemon's, or one given by its URI.

use super::file::FileUser;
use super::load::{Channel, Doing};
use super::nbd::Nbd;
use super::outcome::Image;
use crate::args::Via;
use crate::values::nbd_uri::NbdUri;
use std::path::PathBuf;
use vfield_console::failure::Failure;
use vfield_control::message::DaemonStatus;
use vfield_control::offer::{ExportKind, ExportStatus};
use vfield_control::selection::{self, Named, Undecided};
use vfield_export::nbd::Address;
use vfield_node::status::ImageStatus;

/// Something to read from.
#[derive(Debug, Clone)]
pub struct Export {
    /// As it is shown.
    pub shown: String,
    way: Way,
    /// Nothing is read beyond this.
    end_bytes: u64,
}

#[derive(Debug, Clone)]
enum Way {
    Nbd(Address, String),
    File(PathBuf),
}

impl Export {
    /// The export of a daemon, NBD where it has it unless `via` says otherwise.
    ///
    /// # Errors
    /// If it exports nothing of the kind.
    pub fn of_daemon(status: &DaemonStatus, image: &ImageStatus, via: Option<Via>) -> Result<Self, Failure> {
        // The client of this program speaks no TLS.
        let readable = |export: &&ExportStatus| !export.is_tls();
        let of_kind = |kind| status.exports.iter().filter(readable).find(move |export| export.kind == kind);
        let address = |kind| of_kind(kind).map(|export| &export.address);
        let (nbd, mount) = (|| address(ExportKind::Nbd), || address(ExportKind::Fuse));
        let none = |what: &str, how: &str| {
            Failure::failed(format!("the daemon at {} {what}", status.control))
                .hint(format!("start it with {how}, or name an NBD export with --nbd URI"))
        };
        let found = match via {
            None => nbd().map(|uri| (Some(uri), None)).or_else(|| mount().map(|dir| (None, Some(dir)))),
            Some(Via::Nbd) => nbd().map(|uri| (Some(uri), None)),
            Some(Via::Fuse) => mount().map(|dir| (None, Some(dir))),
        };
        match found {
            Some((Some(uri), _)) => {
                let mut uri: NbdUri =
                    uri.parse().map_err(|_| none("has an export that cannot be read here", "--nbd"))?;
                image.name.clone_into(&mut uri.name);
                let place = uri.server.resolve()?;
                // The server rounds up to whole sectors; bytes past the image are padding.
                let shown = place.uri(&uri.name);
                Ok(Self { shown, way: Way::Nbd(place, uri.name), end_bytes: image.size_bytes })
            }
            Some((None, Some(dir))) => {
                let path = PathBuf::from(dir).join(&image.name);
                Ok(Self { shown: path.display().to_string(), way: Way::File(path), end_bytes: image.size_bytes })
            }
            _ => Err(match via {
                None => none("exports its images neither over NBD nor as files", "--nbd unix:PATH or --mount DIR"),
                Some(Via::Nbd) => none("has no NBD export", "--nbd unix:PATH"),
                Some(Via::Fuse) => none("has no mount", "--mount DIR"),
            }),
        }
    }

    /// The export that was named, of whatever server.
    ///
    /// # Errors
    /// If it cannot be reached.
    pub fn named(uri: &NbdUri) -> Result<Self, Failure> {
        let place = uri.server.resolve()?;
        let end_bytes = Nbd::connect(&place, &uri.name, 0)?.device_bytes();
        if end_bytes == 0 {
            return Err(Failure::failed(format!("the export {:?} is empty", uri.name)));
        }
        Ok(Self { shown: place.uri(&uri.name), way: Way::Nbd(place, uri.name.clone()), end_bytes })
    }

    /// How much there is to read.
    pub const fn end_bytes(&self) -> u64 {
        self.end_bytes
    }

    /// Streams that read or write it in blocks, and how many requests each of them is to have under
    /// way: a file's user has one, so there are `depth` times as many.
    ///
    /// # Errors
    /// If it cannot be reached, or is read-only and to be written.
    pub fn open(
        &self,
        doing: Doing,
        streams: u64,
        depth: u64,
        block_bytes: u64,
    ) -> Result<(Vec<Box<dyn Channel>>, usize), Failure> {
        let mut channels: Vec<Box<dyn Channel>> = Vec::new();
        match &self.way {
            Way::Nbd(place, name) => {
                for _ in 0..streams {
                    let nbd = Nbd::connect(place, name, block_bytes)?.until(self.end_bytes).doing(doing)?;
                    channels.push(Box::new(nbd));
                }
                Ok((channels, depth as usize))
            }
            Way::File(path) => {
                for _ in 0..streams * depth {
                    channels.push(Box::new(FileUser::open(path, doing, block_bytes, self.end_bytes)?));
                }
                Ok((channels, 1))
            }
        }
    }
}

/// Why nothing was written to `place`.
pub fn read_only(place: &dyn std::fmt::Display) -> Failure {
    let failure = Failure::failed(format!("{place} is read-only: nothing was written"));
    failure.hint("to write, start the daemon with --overlay ram or --overlay DIR")
}

/// True if a daemon exports what `uri` names.
pub fn is_of(status: &DaemonStatus, uri: &NbdUri) -> bool {
    let server = |export: &ExportStatus| export.address.parse::<NbdUri>().ok().map(|export| export.server);
    status.exports.iter().filter_map(server).any(|server| server == uri.server)
}

/// The image that a person means by `wanted`: its name, its id, or the beginning of its id; without
/// a wish the only one.
///
/// # Errors If it is none of them, or could be several. `whose` names their owner, for people.
pub fn choose<'a>(wanted: Option<&str>, images: &'a [Image], whose: &str) -> Result<&'a Image, Failure> {
    let undecided = |undecided: Undecided| undecided.explain(wanted.unwrap_or_default(), whose);
    selection::choose_or_only(wanted, images).map_err(undecided)
}

impl Named for Image {
    fn has_name(&self, name: &str) -> bool {
        self.name == name
    }

    fn id(&self) -> String {
        self.id.clone()
    }

    fn names(&self) -> String {
        self.name.clone()
    }
}

impl From<&ImageStatus> for Image {
    fn from(image: &ImageStatus) -> Self {
        Self {
            name: image.name.clone(),
            id: image.id.clone(),
            size_bytes: image.size_bytes,
            chunk_size_bytes: image.chunk_size_bytes,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn image(name: &str, id: &str) -> Image {
        Image { name: name.to_owned(), id: id.repeat(32), size_bytes: 1000, chunk_size_bytes: 64 << 10 }
    }

    #[test]
    fn images_are_found_by_name_and_by_id() {
        let images = [image("red", "ab"), image("blue", "ac"), image("blue", "ad")];
        let id = |wanted| choose(wanted, &images, "it").map(|image| image.id[..2].to_owned());
        assert_eq!(id(Some("red")).unwrap(), "ab");
        assert_eq!(id(Some("ADAD")).unwrap(), "ad");
        for (wanted, fact) in [
            (Some("blue"), "it has several images \"blue\": blue (id acacacacacac), blue (id adadadadadad)"),
            (Some("ad"), "it has no image \"ad\""),
            (Some("green"), "it has no image \"green\""),
            (None, "it has several images"),
        ] {
            assert_eq!(id(wanted).unwrap_err().fact(), fact);
        }
        assert_eq!(choose(None, &images[..1], "it").unwrap().name, "red");
        assert_eq!(choose(None, &[], "it").unwrap_err().fact(), "it has no image");
    }

    #[test]
    fn the_export_is_the_daemons_nbd_server_or_its_mount() {
        let wanted = ImageStatus { name: "a b".to_owned(), size_bytes: 1000, ..ImageStatus::default() };
        let both = [
            ExportStatus::of_all(ExportKind::Fuse, "/mnt/x"),
            ExportStatus::of_all(ExportKind::Nbd, "nbd+unix:///?socket=/run/n.sock"),
            ExportStatus::of_all(ExportKind::Nbd, "nbd://127.0.0.1:7/"),
        ];
        let shown = |exports: &[ExportStatus], via| {
            let exports = exports.to_vec();
            let status = DaemonStatus { exports, control: "/run/c".to_owned(), ..DaemonStatus::default() };
            Export::of_daemon(&status, &wanted, via).map(|export| export.shown).map_err(|failure| failure.to_string())
        };
        assert_eq!(shown(&both, None).unwrap(), "nbd+unix:///a%20b?socket=/run/n.sock");
        assert_eq!(shown(&both[2..], None).unwrap(), "nbd://127.0.0.1:7/a%20b");
        assert_eq!(shown(&both, Some(Via::Fuse)).unwrap(), "/mnt/x/a b");
        assert_eq!(shown(&both[..1], None).unwrap(), "/mnt/x/a b");
        assert_eq!(
            shown(&[], None).unwrap_err(),
            "vfield: the daemon at /run/c exports its images neither over NBD nor as files\nhint: start it with --nbd unix:PATH or --mount \
             DIR, or name an NBD export with --nbd URI"
        );
        assert!(shown(&both[..1], Some(Via::Nbd)).unwrap_err().contains("has no NBD export"));
        assert!(shown(&both[1..], Some(Via::Fuse)).unwrap_err().contains("has no mount"));
        let under_tls = [ExportStatus::of_all(ExportKind::Nbd, "nbds://127.0.0.1:7/"), both[0].clone()];
        assert!(under_tls[0].is_tcp());
        assert_eq!(shown(&under_tls, None).unwrap(), "/mnt/x/a b");
    }

    #[test]
    fn a_named_export_may_be_the_daemons() {
        let exports = vec![
            ExportStatus::of_all(ExportKind::Nbd, "nbd+unix:///?socket=/run/n.sock"),
            ExportStatus::of_all(ExportKind::Fuse, "/mnt"),
        ];
        let status = DaemonStatus { exports, ..DaemonStatus::default() };
        assert!(is_of(&status, &"nbd+unix:///x?socket=/run/n.sock".parse().unwrap()));
        assert!(!is_of(&status, &"nbd+unix:///x?socket=/run/m.sock".parse().unwrap()));
    }
}
