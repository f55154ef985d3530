//! Claims: publishers and sweeps keep out of each other's way.
//!
//! A writer puts an object below `writers/` and then looks whether `sweep` is there. A sweep puts
//! `sweep` and then looks at `writers/`. A store that shows each write to all later reads, as S3
//! does, so shows at least one of them the other. Invariant: while a claim counts, nothing is
//! removed. A claim of somebody who died counts for [`CLAIM_LASTS`], by the store's clock.

use crate::BucketError;
use crate::list::list;
use crate::patience::patiently;
use crate::upload::put;
use bytes::Bytes;
use rustix::rand::{GetRandomFlags, getrandom};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime};
use vfield_core::hex::hex;
use vfield_object::{Bucket, Listed, When, WriteError};

/// What the names of claims begin with.
pub const DIR: &str = "writers/";
/// The object that is there while rubbish is removed.
pub const SWEEP: &str = "sweep";
/// For so long a claim counts after it was put last.
pub const CLAIM_LASTS: Duration = Duration::from_secs(24 * 3600);
/// For so long a sweep counts after it was put; it ends by itself in half of that time.
pub const SWEEP_LASTS: Duration = Duration::from_secs(3600);
/// A claim is put again when it is so old: a third of its time is left for a store that fails.
const RENEWED_AFTER: Duration = Duration::from_secs(8 * 3600);
/// The text of a claim while it counts. It is not removed later: a publisher need not have the
/// right to remove anything.
const WRITES: &str = "writes\n";
/// What it is once its writer is done.
const DONE: &str = "done\n";

/// A number that nobody else has, as digits.
pub fn number() -> Result<String, BucketError> {
    let mut number = [0; 8];
    let drawn = getrandom(&mut number, GetRandomFlags::empty()).map_err(|error| BucketError::File(error.into()))?;
    assert_eq!(drawn, number.len(), "few random bytes come at once");
    Ok(hex(&number))
}

/// A moment of this machine, which may sleep later.
#[derive(Debug, Clone, Copy)]
pub struct Moment(Instant, SystemTime);

impl Moment {
    /// This moment, by both clocks.
    pub fn now() -> Self {
        Self(Instant::now(), SystemTime::now())
    }

    /// The time since then, by the clock that says more. One stands still while the machine sleeps,
    /// and the other may be set back: then it says nothing that can be relied on.
    pub fn age(&self) -> Duration {
        self.0.elapsed().max(self.1.elapsed().unwrap_or(Duration::MAX))
    }
}

/// A claim of this process.
#[derive(Debug)]
pub struct Claim {
    name: String,
    put: Mutex<Moment>,
    is_compared: bool,
}

impl Claim {
    /// Claims the bucket. It is the first write, so a missing right shows here.
    ///
    /// # Errors
    /// If it cannot be written to, or is swept now.
    pub async fn take(bucket: &Bucket) -> Result<Self, BucketError> {
        let claim = Self { name: format!("{DIR}{}", number()?), put: Moment::now().into(), is_compared: false };
        claim.write(bucket, WRITES).await?;
        match claim.look(bucket).await {
            Ok(is_compared) => Ok(Self { is_compared, ..claim }),
            Err(error) => {
                claim.end(bucket).await;
                Err(error)
            }
        }
    }

    /// Puts the claim again if it is old. It is called before anything is written that counts on
    /// other objects. A sweep that began since the claim was taken has found it, and ended.
    ///
    /// # Errors
    /// If it counts no more, or the store fails.
    pub async fn renew(&self, bucket: &Bucket) -> Result<(), BucketError> {
        let age = self.put.lock().unwrap_or_else(PoisonError::into_inner).age();
        if age > CLAIM_LASTS - SWEEP_LASTS {
            return Err(BucketError::Late);
        }
        if age > RENEWED_AFTER {
            self.write(bucket, WRITES).await?;
            *self.put.lock().unwrap_or_else(PoisonError::into_inner) = Moment::now();
        }
        Ok(())
    }

    /// True if the store heeds conditions of writes.
    pub const fn is_compared(&self) -> bool {
        self.is_compared
    }

    /// Ends the claim. If the store fails, it counts for [`CLAIM_LASTS`].
    pub async fn end(self, bucket: &Bucket) {
        if let Err(error) = self.write(bucket, DONE).await {
            tracing::warn!(%error, "rubbish cannot be removed from the bucket for a day");
        }
    }

    /// True for a claim in a list that counts at this time of the store.
    pub fn counts(listed: &Listed, now_s: u64) -> bool {
        let age_s = now_s.saturating_sub(listed.written_s);
        listed.length_bytes != DONE.len() as u64 && age_s < CLAIM_LASTS.as_secs()
    }

    async fn write(&self, bucket: &Bucket, text: &'static str) -> Result<(), BucketError> {
        put(bucket, &self.name, Bytes::from_static(text.as_bytes())).await
    }

    /// Looks whether the bucket is swept, and whether the store compares: it does if it refuses to
    /// write the claim as a new object.
    async fn look(&self, bucket: &Bucket) -> Result<bool, BucketError> {
        if let Some(sweep) = list(bucket, SWEEP).await?.into_iter().find(|listed| listed.name == SWEEP) {
            // This claim was put just now, and its time is by the same clock.
            let own = list(bucket, &self.name).await?;
            let age_s = own.first().map_or(0, |own| own.written_s.saturating_sub(sweep.written_s));
            if age_s < SWEEP_LASTS.as_secs() {
                return Err(BucketError::Sweeping);
            }
        }
        let putting = || async {
            match bucket.put(&self.name, Bytes::from_static(WRITES.as_bytes()), When::Absent).await {
                Err(WriteError::Lost) => Ok(true),
                Err(error) if error.knows_no_conditions() => Ok(false),
                Err(WriteError::Failed(error)) => Err(error),
                Ok(_) => Ok(false),
            }
        };
        patiently(putting).await.map_err(BucketError::store(self.name.as_str()))
    }
}
