//! Passes that a service lends for some hours: fetched once for all requests, and renewed in time.
//!
//! Owns the pass that was lent last. Invariants: one request fetches, and the others wait for it. A
//! pass that still counts is used while the service fails. No secret is in any `Debug` text.

use super::aws::AwsService;
use super::azure::AzureService;
use super::google::GoogleService;
use super::{Lent, Pass};
use crate::client::Client;
use crate::connection::Connections;
use crate::trust;
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::Mutex;
use vfield_block::object::ObjectError;

/// So long before its end a pass is renewed, unless it is shorter than twice that. Services have
/// the next one by then.
const RENEWED_BEFORE: Duration = Duration::from_secs(300);
/// Pause after a renewal that failed while the pass before still counts.
const PAUSE: Duration = Duration::from_secs(30);
/// For so long a machine without an account is not asked again. A request to a public bucket waits
/// for the answer.
const NONE_FOR: Duration = Duration::from_secs(300);

/// A service that lends passes.
#[derive(Debug)]
pub enum Service {
    Aws(AwsService),
    Google(GoogleService),
    Azure(AzureService),
}

impl Service {
    async fn lend(&self, connections: &Connections) -> Result<Option<Lent>, ObjectError> {
        match self {
            Self::Aws(service) => service.lend(connections).await,
            Self::Google(service) => service.lend(connections).await,
            Self::Azure(service) => service.lend(connections).await,
        }
    }
}

/// A service, and what it lent last.
pub struct Lender {
    service: Service,
    connections: Arc<Connections>,
    held: Mutex<Option<Held>>,
}

struct Held {
    pass: Option<Pass>,
    until: Instant,
    renewed_at: Instant,
}

impl Lender {
    /// Nothing is lent yet.
    pub fn new(service: Service) -> Self {
        Self { service, connections: Client::connections(trust::connector()), held: Mutex::default() }
    }

    /// The pass for the next request; `None` if this machine has no account.
    ///
    /// # Errors
    /// If the service lends none.
    pub async fn pass(&self) -> Result<Option<Pass>, ObjectError> {
        let mut held = self.held.lock().await;
        if let Some(held) = held.as_ref().filter(|held| Instant::now() < held.renewed_at) {
            return Ok(held.pass.clone());
        }
        let lent = self.service.lend(&self.connections).await;
        let now = Instant::now();
        match (lent, held.as_mut().filter(|held| now < held.until && held.pass.is_some())) {
            (Ok(lent), _) => {
                let (pass, life) = lent.map_or((None, NONE_FOR), |lent| (Some(lent.pass), lent.life));
                let renewed_at = now + if pass.is_some() { life - RENEWED_BEFORE.min(life / 2) } else { life };
                *held = Some(Held { pass: pass.clone(), until: now + life, renewed_at });
                Ok(pass)
            }
            (Err(error), Some(held)) => {
                tracing::warn!(%error, "credentials are not renewed yet");
                held.renewed_at = now + PAUSE;
                Ok(held.pass.clone())
            }
            (Err(error), None) => Err(error),
        }
    }

    /// The file that is read for each pass.
    pub fn file(&self) -> Option<&PathBuf> {
        match &self.service {
            Service::Aws(service) => service.file(),
            Service::Google(service) => service.file(),
            Service::Azure(service) => service.file(),
        }
    }
}

impl fmt::Debug for Lender {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.service.fmt(f)
    }
}
