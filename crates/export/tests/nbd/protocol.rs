//! The NBD export byte by byte: what clients send that no library would let them, and waits.

use crate::support::{CHUNK, Client, Image, SIMPLE, STRUCTURED, limits, request, serve, serve_one, serve_with};

const READ: u16 = 0;
const WRITE: u16 = 1;
const DISC: u16 = 2;
const FLUSH: u16 = 3;
const CACHE: u16 = 5;
const STATUS: u16 = 7;
const DF: u16 = 1 << 2;
const MIB: u64 = 1 << 20;

type Test = Result<(), Box<dyn std::error::Error>>;

/// Puts a structured read's answer together.
fn read_chunks(client: &mut Client, start: u64, length: usize) -> (Vec<u8>, usize) {
    let (mut bytes, mut filled, mut chunks) = (vec![0xee; length], 0, 0);
    loop {
        let (flags, kind, _, data) = client.chunk();
        let at = (u64::from_be_bytes(data[..8].try_into().expect("an offset")) - start) as usize;
        let part = match kind {
            1 => data[8..].to_vec(),
            2 => vec![0; u32::from_be_bytes(data[8..12].try_into().expect("a length")) as usize],
            other => panic!("chunk of kind {other}"),
        };
        bytes[at..at + part.len()].copy_from_slice(&part);
        (filled, chunks) = (filled + part.len(), chunks + 1);
        if flags & 1 != 0 {
            assert_eq!(filled, length, "chunks overlap or leave gaps");
            return (bytes, chunks);
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_form_of_read_gives_the_same_bytes() -> Test {
    let image = Image::new("a", 5 * MIB as usize + 700);
    let served = serve_one(&image);
    let (mut simple, mut structured) = (served.connect(), served.connect());
    assert_eq!(simple.go(SIMPLE), (5 * MIB + 1024, 1 | 2 | 4 | 256 | 1024));
    assert_eq!(structured.go(STRUCTURED), (5 * MIB + 1024, 1 | 2 | 4 | 128 | 256 | 1024));
    let end = 5 * MIB + 1024;
    for (start, length) in [
        (0, 1),
        (0, 512),
        (100, 4096),
        (CHUNK - 1, 2),
        (3 * CHUNK - 10, 20),
        (3 * CHUNK, CHUNK),
        (3 * CHUNK + 1, 100),
        (0, MIB),
        (7, 2 * MIB),
        (MIB - 1, 2 * MIB + 5),
        (0, end),
        (end - 1024, 1024),
        (end - 1, 1),
        (5 * MIB + 600, 300),
    ] {
        let expected = image.device(start, length);
        simple.request(READ, 0, 1, start, length as u32);
        assert_eq!(simple.simple(), (0, 1));
        assert!(simple.receive(length as usize) == expected, "simple {start}+{length}");
        structured.request(READ, 0, 2, start, length as u32);
        assert!(read_chunks(&mut structured, start, length as usize).0 == expected, "chunks {start}+{length}");
        structured.request(READ, DF, 3, start, length as u32);
        let (bytes, chunks) = read_chunks(&mut structured, start, length as usize);
        assert!(chunks == 1 && bytes == expected, "df {start}+{length}");
    }
    assert_eq!(image.pins.load(std::sync::atomic::Ordering::SeqCst), 0);
    served.serving.shutdown().await;
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn illegal_requests_get_errors_and_the_connection_lives_on() -> Test {
    let served = serve(&[Image::new("a", 1000)]);
    let mut client = served.connect();
    client.go(SIMPLE);
    let invalid = [
        (READ, 0, 0, u32::MAX),
        (READ, 0, 0, 1025),
        (READ, 0, 1024, 1),
        (READ, 0, u64::MAX, 512),
        (READ, DF, 0, 512),
        (READ, 0, 1025, 0),
        (STATUS, 0, 0, 512),
        (CACHE, 0, 1000, 512),
        (99, 0, 0, 0),
        (FLUSH, 1 << 15, 0, 0),
    ];
    for (command, flags, offset, length) in invalid {
        client.request(command, flags, 5, offset, length);
        assert_eq!(client.simple(), (22, 5), "{command} {offset}+{length}");
    }
    client.send(&[&request(WRITE, 0, 6, 0, 1000), &[0xff; 1000]]);
    assert_eq!(client.simple(), (1, 6));
    for command in [4, 6] {
        client.request(command, 0, 7, 0, 512);
        assert_eq!(client.simple(), (1, 7));
    }
    for (command, length) in [(FLUSH, 0), (CACHE, 1024), (READ, 0)] {
        client.request(command, 0, 8, 0, length);
        assert_eq!(client.simple(), (0, 8));
    }
    assert_eq!(served.serving.counts().refused, invalid.len() as u64 + 3);
    client.request(DISC, 0, 9, 0, 0);
    assert!(client.rest().is_empty());
    served.serving.shutdown().await;
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_structured_error_says_why() -> Test {
    let served = serve(&[Image::new("a", 1000)]);
    let mut client = served.connect();
    client.go(STRUCTURED);
    client.request(READ, DF, 1, 0, u32::MAX);
    let (flags, kind, cookie, data) = client.chunk();
    assert_eq!((flags, kind, cookie, data[3]), (1, 0x8001, 1, 75));
    assert_eq!(&data[6..], b"more than 32 MiB cannot be read at once");
    client.request(READ, 0, 2, 0, 0);
    assert_eq!(client.chunk(), (1, 0, 2, vec![]));
    served.serving.shutdown().await;
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn garbage_ends_the_connection_and_nothing_else() -> Test {
    let image = Image::new("a", 4096);
    let served = serve_one(&image);
    let mut good = served.connect();
    good.go(SIMPLE);
    for garbage in [&b"GET / HTTP/1.0\r\n\r\n"[..], &[0xff; 4096], &[0; 64]] {
        let mut client = served.connect();
        client.send(&[garbage]);
        client.rest();
        let mut client = served.connect();
        client.go(SIMPLE);
        client.send(&[garbage]);
        assert!(client.rest().is_empty());
    }
    let mut client = served.connect();
    client.go(SIMPLE);
    client.request(WRITE, 0, 1, 0, (32 << 20) + 1);
    assert!(client.rest().is_empty());
    good.request(READ, 0, 1, 0, 4096);
    assert_eq!((good.simple(), good.receive(4096)), ((0, 1), image.device(0, 4096)));
    served.serving.shutdown().await;
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_may_vanish_after_any_byte() -> Test {
    let served = serve(&[Image::new("a", 4096)]);
    let go = [b"IHAVEOPT", &7_u32.to_be_bytes()[..], &6_u32.to_be_bytes(), &[0; 6]].concat();
    let read = request(READ, 0, 1, 0, 4096);
    let all = [&3_u32.to_be_bytes()[..], &go, &read, &request(WRITE, 0, 2, 0, 10), &[1; 10]].concat();
    for length in 0..=all.len() {
        let mut client = served.connect();
        client.send(&[&all[..length]]);
    }
    served.until_connected(0).await;
    let mut client = served.connect();
    client.go(SIMPLE);
    served.serving.shutdown().await;
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_miss_does_not_hold_up_later_hits() -> Test {
    let image = Image::new("a", 2 * MIB as usize);
    image.change(|gaps| gaps.missing = [1, 5].into());
    let served = serve_one(&image);
    for structured in [SIMPLE, STRUCTURED] {
        image.change(|gaps| gaps.missing = [1, 5].into());
        let mut client = served.connect();
        client.go(structured);
        client.request(READ, 0, 1, CHUNK + 3, 100);
        client.request(READ, 0, 2, 5 * CHUNK - 50, 100);
        client.request(READ, DF * u16::from(structured), 3, 0, 100);
        let read = |client: &mut Client, cookie: u64, start: u64| {
            if structured {
                let (flags, kind, found, data) = client.chunk();
                assert_eq!((flags, kind, found), (1, 1, cookie));
                assert_eq!(data[8..], image.device(start, 100));
            } else {
                assert_eq!(client.simple(), (0, cookie));
                assert_eq!(client.receive(100), image.device(start, 100));
            }
        };
        read(&mut client, 3, 0);
        image.until_waiting(2).await;
        image.change(|gaps| gaps.missing.retain(|chunk| *chunk != 5));
        read(&mut client, 2, 5 * CHUNK - 50);
        image.change(|gaps| gaps.missing.retain(|chunk| *chunk != 1));
        read(&mut client, 1, CHUNK + 3);
    }
    served.serving.shutdown().await;
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn advice_is_followed_as_far_as_it_is_bounded_and_forgotten_beyond() -> Test {
    let image = Image::new("a", 32 * MIB as usize);
    let chunks = 32 * MIB / CHUNK;
    image.change(|gaps| gaps.missing = (1..chunks).collect());
    let limits = limits(|limits| {
        limits.advice_bytes = 4 * CHUNK;
        limits.advice_bytes_of_all = 6 * CHUNK;
    });
    let served = serve_with(std::slice::from_ref(&image), |server| server.with_limits(limits));
    let (mut first, mut second) = (served.connect(), served.connect());
    first.go(SIMPLE);
    second.go(SIMPLE);
    // Each is about four chunks, of which one is asked for at a time.
    for cookie in 0..100 {
        first.request(CACHE, 0, cookie, (1 + 4 * cookie) * CHUNK, 4 * CHUNK as u32);
    }
    (4..100).for_each(|cookie| assert_eq!(first.simple(), (0, cookie), "forgotten"));
    image.until_waiting(4).await;
    for cookie in 0..100 {
        second.request(CACHE, 0, cookie, (1 + 4 * cookie) * CHUNK, 4 * CHUNK as u32);
    }
    (2..100).for_each(|cookie| assert_eq!(second.simple(), (0, cookie), "forgotten"));
    image.until_waiting(6).await;
    // Chunks that are here are read meanwhile.
    first.request(READ, 0, 100, 0, 512);
    assert_eq!(first.simple(), (0, 100));
    first.receive(512);
    // A client that goes leaves nothing behind, and room for others.
    drop(second);
    image.until_waiting(4).await;
    served.until_connected(1).await;
    image.change(|gaps| gaps.missing.clear());
    let mut done: Vec<_> = (0..4).map(|_| first.simple()).collect();
    done.sort_unstable();
    assert_eq!(done, (0..4).map(|cookie| (0, cookie)).collect::<Vec<_>>());
    assert_eq!(image.pins.load(std::sync::atomic::Ordering::SeqCst), 0);
    served.serving.shutdown().await;
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn advice_holds_up_no_end() -> Test {
    let image = Image::new("a", MIB as usize);
    image.change(|gaps| gaps.missing = [2].into());
    let served = serve_one(&image);
    let mut leaving = served.connect();
    leaving.go(SIMPLE);
    leaving.request(CACHE, 0, 1, 0, MIB as u32);
    image.until_waiting_for(2).await;
    leaving.request(DISC, 0, 2, 0, 0);
    assert_eq!(leaving.simple(), (0, 1));
    assert!(leaving.rest().is_empty());
    let mut staying = served.connect();
    staying.go(SIMPLE);
    staying.request(CACHE, 0, 3, 0, MIB as u32);
    image.until_waiting_for(2).await;
    let stopped = tokio::spawn(served.serving.shutdown());
    assert_eq!(staying.simple(), (0, 3));
    stopped.await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_long_read_waits_window_by_window() -> Test {
    let image = Image::new("a", 4 * MIB as usize);
    let served = serve_one(&image);
    for (structured, flags) in [(SIMPLE, 0), (STRUCTURED, 0), (STRUCTURED, DF)] {
        image.change(|gaps| gaps.missing = [4, 40].into());
        let mut client = served.connect();
        client.go(structured);
        client.request(READ, flags, 1, 5, 3 * MIB as u32);
        image.until_waiting_for(4).await;
        assert!(!image.prefetched.lock().unwrap().is_empty());
        let reading = tokio::task::spawn_blocking(move || {
            if structured {
                return read_chunks(&mut client, 5, 3 * MIB as usize).0;
            }
            assert_eq!(client.simple(), (0, 1));
            client.receive(3 * MIB as usize)
        });
        image.change(|gaps| gaps.missing.retain(|chunk| *chunk != 4));
        image.until_waiting_for(40).await;
        image.change(|gaps| gaps.missing.retain(|chunk| *chunk != 40));
        let bytes = reading.await?;
        assert!(bytes == image.device(5, 3 * MIB));
    }
    served.serving.shutdown().await;
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_error_is_reported_or_the_connection_ends() -> Test {
    let image = Image::new("a", 4 * MIB as usize);
    image.change(|gaps| gaps.broken = [8, 40].into());
    let served = serve_one(&image);
    let mut client = served.connect();
    client.go(SIMPLE);
    // Within the first window an error is an error, also after bytes that are there.
    client.request(READ, 0, 1, 0, MIB as u32);
    assert_eq!(client.simple(), (5, 1));
    client.request(READ, 0, 2, 0, 100);
    assert_eq!(client.simple(), (0, 2));
    client.receive(100);
    // Later it is too late.
    client.request(READ, 0, 3, MIB, 3 * MIB as u32);
    assert_eq!(client.simple(), (0, 3));
    assert!(client.rest().len() < 3 * MIB as usize);
    let mut client = served.connect();
    client.go(STRUCTURED);
    client.request(READ, 0, 4, MIB, 3 * MIB as u32);
    let last = loop {
        let (flags, kind, _, data) = client.chunk();
        if flags & 1 != 0 {
            break (kind, data);
        }
    };
    assert_eq!((last.0, last.1[3]), (0x8001, 5));
    assert!(String::from_utf8(last.1[6..].to_vec())?.contains("no copy of bytes 2621440.."));
    client.request(READ, 0, 5, 0, 100);
    assert_eq!(client.chunk().2, 5);
    served.serving.shutdown().await;
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn waiting_requests_are_bounded_and_given_up_with_the_client() -> Test {
    let image = Image::new("a", MIB as usize);
    image.change(|gaps| gaps.missing = [0].into());
    let served = serve_with(std::slice::from_ref(&image), |server| {
        server.with_limits(limits(|limits| limits.waiting_requests = 4))
    });
    let mut client = served.connect();
    client.go(SIMPLE);
    for cookie in 0..10 {
        client.request(READ, 0, cookie, 0, 512);
    }
    client.request(READ, 0, 10, CHUNK, 512);
    image.until_waiting(4).await;
    // Counted after the fact, so it may still lag behind.
    assert!(served.serving.counts().requests <= 4);
    image.change(|gaps| gaps.missing.clear());
    let mut cookies: Vec<_> = (0..11).map(|_| (client.simple().1, client.receive(512)).0).collect();
    cookies.sort_unstable();
    assert_eq!(cookies, Vec::from_iter(0..11));
    image.change(|gaps| gaps.missing = [0].into());
    client.request(READ, 0, 1, 0, 512);
    image.until_waiting(1).await;
    drop(client);
    image.until_waiting(0).await;
    served.until_connected(0).await;
    served.serving.shutdown().await;
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_that_pauses_keeps_nothing_of_the_source_in_place() -> Test {
    let image = Image::new("a", 8 * MIB as usize);
    let served = serve_one(&image);
    let mut client = served.connect();
    client.go(SIMPLE);
    for cookie in 0..4 {
        client.request(READ, 0, cookie, 5, 7 * MIB as u32);
    }
    let pins = || image.pins.load(std::sync::atomic::Ordering::SeqCst);
    let pinned = |wanted: bool| async move {
        while (pins() > 0) != wanted {
            tokio::task::yield_now().await;
        }
    };
    let limit = std::time::Duration::from_secs(20);
    tokio::time::timeout(limit, pinned(true)).await?;
    tokio::time::timeout(limit, pinned(false)).await?;
    // Its answers are those that it would have had.
    let expected = image.device(5, 7 * MIB);
    for cookie in 0..4 {
        assert_eq!(client.simple(), (0, cookie));
        assert!(client.receive(expected.len()) == expected);
    }
    served.serving.shutdown().await;
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn windows_that_wait_keep_little_of_the_source_in_place() -> Test {
    let image = Image::new("a", 8 * MIB as usize);
    // The last chunk of each window.
    image.change(|gaps| gaps.missing = (0..8).map(|window| 16 * window + 15).collect());
    let limits = limits(|limits| limits.held_bytes_of_all = 2 * MIB);
    let served = serve_with(std::slice::from_ref(&image), |server| server.with_limits(limits));
    let mut client = served.connect();
    client.go(SIMPLE);
    for window in 0..8 {
        client.request(READ, 0, window, window * MIB, MIB as u32);
    }
    for window in 0..8 {
        image.until_waiting_for(16 * window + 15).await;
    }
    // Of fifteen chunks of a window eight lie in the file.
    let pins = image.pins.load(std::sync::atomic::Ordering::SeqCst);
    assert!(pins <= 2 * 8, "{pins} chunks are kept in place");
    image.change(|gaps| gaps.missing.clear());
    let mut found = std::collections::BTreeMap::new();
    for _ in 0..8 {
        let (error, window) = client.simple();
        assert_eq!(error, 0);
        found.insert(window, client.receive(MIB as usize));
    }
    assert!(found.iter().all(|(window, bytes)| *bytes == image.device(window * MIB, MIB)));
    assert_eq!(found.len(), 8);
    served.serving.shutdown().await;
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_that_never_reads_is_not_answered_without_end() -> Test {
    let image = Image::new("a", 8 * MIB as usize);
    let served = serve_one(&image);
    let mut client = served.connect();
    client.go(STRUCTURED);
    for cookie in 0..200 {
        client.request(READ, 0, cookie, 0, 8 * MIB as u32);
    }
    // Other clients are served meanwhile; 8 windows of this one would be 128 pieces.
    let mut other = served.connect();
    other.go(SIMPLE);
    for _ in 0..20 {
        other.request(READ, 0, 1, 0, 512);
        assert_eq!(other.simple(), (0, 1));
        other.receive(512);
    }
    assert!(image.pins.load(std::sync::atomic::Ordering::SeqCst) <= 32);
    assert!(served.serving.counts().sent_bytes < 8 * MIB);
    drop(client);
    served.until_connected(1).await;
    assert_eq!(image.pins.load(std::sync::atomic::Ordering::SeqCst), 0);
    served.serving.shutdown().await;
    Ok(())
}
