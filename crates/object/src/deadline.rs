//! Deadlines for answers of a server.
//!
//! A machine that stood still, as one does whose host pauses it, finds its deadlines over, and the
//! answer in its sockets. Reading megabytes again would be the wrong conclusion. So a deadline ends
//! [`GRACE`] late: an answer that came in time has been handed on by then.

use std::time::Duration;
use tokio::time::error::Elapsed;
use tokio::time::timeout;

/// Time after a deadline for bytes that have come already. Handing them on takes a few turns of
/// the runtime, which a machine with more work than processors gives late. A server that is down
/// is noticed so much later.
const GRACE: Duration = Duration::from_millis(500);

/// Waits for a future for so long.
///
/// # Errors
/// If it has not ended then, although this machine did not stand still.
pub async fn within<F: Future>(limit: Duration, future: F) -> Result<F::Output, Elapsed> {
    let mut future = std::pin::pin!(future);
    match timeout(limit, &mut future).await {
        Ok(output) => Ok(output),
        Err(_) => timeout(GRACE, future).await,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::connection::speak;
    use http_body_util::{BodyExt as _, Full};
    use hyper::Request;
    use hyper::header::HOST;
    use std::io::{Read as _, Write as _};
    use std::net::TcpListener;
    use std::sync::mpsc;

    const LIMIT: Duration = Duration::from_millis(50);

    /// The runtime's thread does nothing until the answer lies in the socket and the deadline is
    /// over. hyper's task needs a turn after that.
    #[tokio::test]
    async fn what_came_while_this_machine_stood_still_counts() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let addr = listener.local_addr().unwrap();
        let ((go, gone), (done, ended)) = (mpsc::channel(), mpsc::channel());
        let server = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let mut request = Vec::new();
            while !request.ends_with(b"\r\n\r\n") {
                let mut byte = [0];
                stream.read_exact(&mut byte).unwrap();
                request.extend(byte);
            }
            stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\n").unwrap();
            gone.recv().unwrap();
            stream.write_all(b"body").unwrap();
            done.send(()).unwrap();
        });
        let mut sender = speak(tokio::net::TcpStream::connect(addr).await.unwrap()).await.unwrap();
        let request = Request::get("/").header(HOST, "h").body(Full::default()).unwrap();
        let mut body = sender.send_request(request).await.unwrap().into_body();
        let stands_still = async {
            go.send(()).unwrap();
            ended.recv().unwrap();
            std::thread::sleep(2 * LIMIT);
        };
        let (frame, ()) = tokio::join!(within(LIMIT, body.frame()), stands_still);
        assert_eq!(frame.unwrap().unwrap().unwrap().into_data().unwrap(), "body");
        server.join().unwrap();
    }

    #[tokio::test]
    async fn what_never_comes_ends() {
        within(LIMIT, std::future::pending::<()>()).await.unwrap_err();
    }
}
