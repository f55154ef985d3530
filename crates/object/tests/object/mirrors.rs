//! Several places of one object: which is asked, and when.

use bytes::Bytes;
use std::future::pending;
use std::sync::Arc;
use std::sync::Mutex;
use std::time::{Duration, Instant};
use tokio::runtime::{Builder, Runtime};
use vfield_block::extent::Extent;
use vfield_block::object::{Object, ObjectError, ObjectOpening, ObjectReading, ObjectStore};
use vfield_object::Mirrors;

/// What a place does with the next requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Does {
    Delivers,
    Fails,
    /// A person has to change something first.
    Refuses,
    /// It asks for a pause of so many seconds.
    AsksForPause(u64),
    /// It says nothing for ever.
    Waits,
    /// It says nothing to the next request, and delivers from then on.
    WaitsOnce,
}

#[derive(Debug)]
struct Place {
    name: &'static str,
    length_bytes: u64,
    does: Mutex<Does>,
    asked: Mutex<u32>,
}

#[derive(Debug, Clone)]
struct Shared(Arc<Place>);

impl Shared {
    fn new(name: &'static str, does: Does) -> Self {
        Self::of_length(name, does, 100)
    }

    fn of_length(name: &'static str, does: Does, length_bytes: u64) -> Self {
        Self(Arc::new(Place { name, length_bytes, does: Mutex::new(does), asked: Mutex::new(0) }))
    }

    fn now(&self, does: Does) {
        *self.0.does.lock().unwrap() = does;
    }

    /// How often it was asked for bytes since the last call.
    fn asked(&self) -> u32 {
        std::mem::take(&mut *self.0.asked.lock().unwrap())
    }

    async fn answer(&self) -> Result<(), ObjectError> {
        let does = *self.0.does.lock().unwrap();
        match does {
            Does::Delivers => Ok(()),
            Does::Fails => Err(ObjectError::passing(format!("{} fails", self.0.name))),
            Does::Refuses => Err(ObjectError::lasting(format!("{} refuses", self.0.name))),
            Does::AsksForPause(seconds) => {
                let after = Some(Duration::from_secs(seconds));
                Err(ObjectError::Failed { why: format!("{} is busy", self.0.name), after, lasting: false })
            }
            Does::Waits => pending().await,
            Does::WaitsOnce => {
                self.now(Does::Delivers);
                pending().await
            }
        }
    }
}

impl ObjectStore for Shared {
    fn address(&self) -> &str {
        self.0.name
    }

    fn open(&self, _: &str) -> ObjectOpening<'_> {
        let place = self.clone();
        Box::pin(async move {
            place.answer().await?;
            Ok(Box::new(place) as Box<dyn Object>)
        })
    }
}

impl Object for Shared {
    fn length_bytes(&self) -> u64 {
        self.0.length_bytes
    }

    fn read(&self, extent: Extent) -> ObjectReading<'_> {
        *self.0.asked.lock().unwrap() += 1;
        Box::pin(async move {
            self.answer().await?;
            Ok(Bytes::from(vec![self.0.name.as_bytes()[0]; extent.len() as usize]))
        })
    }

    fn changed(&self) -> Option<String> {
        None
    }
}

fn runtime() -> Runtime {
    Builder::new_current_thread().enable_time().build().unwrap()
}

async fn open(places: &[&Shared]) -> Result<Box<dyn Object>, ObjectError> {
    let places = places.iter().map(|place| Arc::new((*place).clone()) as Arc<dyn ObjectStore>).collect();
    Mirrors::new(places).open("").await
}

/// The first letter of the place whose bytes come.
async fn read(object: &dyn Object) -> Result<char, ObjectError> {
    object.read(Extent::from(10..20)).await.map(|bytes| char::from(bytes[0]))
}

#[test]
fn the_second_place_serves_while_the_first_fails() {
    runtime().block_on(async {
        let (a, b) = (Shared::new("a", Does::Delivers), Shared::new("b", Does::Delivers));
        let object = open(&[&a, &b]).await.unwrap();
        assert_eq!((read(&*object).await, a.asked(), b.asked()), (Ok('a'), 1, 0));
        for does in [Does::Fails, Does::Refuses, Does::AsksForPause(30)] {
            a.now(does);
            assert_eq!(read(&*object).await, Ok('b'), "{does:?}");
        }
        // It is preferred from then on, and the first one takes over where it fails.
        assert_eq!((a.asked(), b.asked()), (1, 3));
        a.now(Does::Delivers);
        b.now(Does::Fails);
        assert_eq!(read(&*object).await, Ok('a'));
    });
}

#[test]
fn a_silent_place_costs_a_second_once() {
    runtime().block_on(async {
        let (a, b) = (Shared::new("a", Does::Delivers), Shared::new("b", Does::Delivers));
        let object = open(&[&a, &b]).await.unwrap();
        a.now(Does::Waits);
        let begun = Instant::now();
        assert_eq!(read(&*object).await, Ok('b'));
        assert!(begun.elapsed() >= Duration::from_secs(1));
        a.asked();
        assert_eq!((read(&*object).await, a.asked()), (Ok('b'), 0));
    });
}

#[test]
fn a_single_place_is_asked_once_more_for_a_slow_read_and_not_for_each() {
    runtime().block_on(async {
        let a = Shared::new("a", Does::Delivers);
        let object = open(&[&a]).await.unwrap();
        a.now(Does::WaitsOnce);
        assert_eq!((read(&*object).await, a.asked()), (Ok('a'), 2));
        // Until more reads were delivered, it is waited for.
        a.now(Does::WaitsOnce);
        let waited = tokio::time::timeout(Duration::from_secs(5), read(&*object)).await;
        assert!(waited.is_err() && a.asked() == 1);
        a.now(Does::Fails);
        assert_eq!((read(&*object).await, a.asked()), (Err(ObjectError::passing("a fails")), 1));
    });
}

#[test]
fn a_place_that_cannot_be_opened_is_opened_later() {
    runtime().block_on(async {
        let (a, b) = (Shared::new("a", Does::Refuses), Shared::new("b", Does::Delivers));
        let object = open(&[&a, &b]).await.unwrap();
        assert_eq!((read(&*object).await, a.asked()), (Ok('b'), 0));
        a.now(Does::Delivers);
        b.now(Does::Fails);
        assert_eq!(read(&*object).await, Ok('a'));
    });
}

#[test]
fn an_object_of_another_length_is_no_mirror() {
    runtime().block_on(async {
        let (a, b) = (Shared::new("a", Does::Delivers), Shared::of_length("b", Does::Delivers, 99));
        let object = open(&[&a, &b]).await.unwrap();
        a.now(Does::Fails);
        let failure = read(&*object).await.unwrap_err();
        assert_eq!(failure.to_string(), "a fails; b has 99 bytes in place of 100");
        assert!(failure.may_pass());
    });
}

#[test]
fn all_failures_are_one() {
    runtime().block_on(async {
        for (one, other, after, lasting) in [
            (Does::Refuses, Does::Refuses, None, true),
            (Does::Refuses, Does::Fails, None, false),
            (Does::Refuses, Does::AsksForPause(9), Some(9), false),
            (Does::AsksForPause(7), Does::AsksForPause(9), Some(7), false),
            (Does::AsksForPause(7), Does::Fails, None, false),
        ] {
            let (a, b) = (Shared::new("a", one), Shared::new("b", other));
            let Err(ObjectError::Failed { why, after: pause, lasting: lasts }) = open(&[&a, &b]).await else {
                panic!("{one:?}, {other:?}");
            };
            assert!(why.starts_with("a ") && why.contains("; b "), "{why}");
            assert_eq!((pause, lasts), (after.map(Duration::from_secs), lasting), "{one:?}, {other:?}");
        }
    });
}
