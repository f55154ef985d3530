//! The kinds of values that say what a daemon is to do, each in a file of its own.
//!
//! A value that exists is valid: parsing is the only way to make one.

pub mod device;
pub mod disk;
pub mod http;
pub mod image;
pub mod image_limit;
pub mod limit;
pub mod overlay;
pub mod sandbox;
pub mod store;
pub mod tag;
pub mod user;

vfield_console::written! {
    disk::Disk: "a directory, with a size if need be: \"DIR:100G\"",
    http::HttpAddress: "an address or a port",
    image::ImageName: "the name of an image",
    image::Wanted: "the name or id of an image",
    image_limit::ImageLimit: "the name of an image and a rate: \"viver.squash=50M\"",
    limit::Limit: "a rate such as \"50M\", or rates by time of day",
    overlay::OverlayPlace: "\"ram\" or a directory",
    store::Store: "a size such as \"128M\", a share such as \"30%\", \"all\" or 0",
    tag::Tagged: "the name of a tag",
    user::UserName: "the name or number of a user",
}
