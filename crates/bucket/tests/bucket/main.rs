//! Images in a bucket, against a store in memory.

mod image;
mod index;
mod memory;
mod publishing;
mod pushing;
mod reading;
mod sweeping;
mod uploading;

use image::Image;
use std::sync::Arc;
use tokio::runtime::{Builder, Runtime};
use vfield_bucket::{BucketError, Packed, Published, Which};
use vfield_core::tag::TagName;
use vfield_object::Bucket;

fn runtime() -> Runtime {
    Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap()
}

fn tag(name: &str) -> TagName {
    name.parse().unwrap()
}

async fn publish(bucket: &Arc<Bucket>, image: &Arc<Image>, name: &str) -> Result<Published, BucketError> {
    vfield_bucket::publish(bucket, image, &tag(name), None, &|_, _| {}).await
}

/// The image of a tag, to be opened.
fn packed(memory: &memory::Memory, name: &str) -> Packed {
    let bucket = Arc::into_inner(memory.bucket("s3://images/room")).unwrap();
    Packed::new(bucket, Which::Tag(tag(name)))
}
