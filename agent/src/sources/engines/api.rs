//! One question to an engine's API: `GET` over its Unix socket, bounded in time and bytes.
//!
//! Nothing but `GET /containers/ID/json` is ever asked, without a version in the path, which Docker and Podman both
//! answer. A connection is made for each question, so that one that hangs holds no other.

use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use axum::body::{Body, Bytes, to_bytes};
use hyper::{Request, StatusCode, client::conn::http1};
use hyper_util::rt::TokioIo;

use super::super::answers::DetailsError;
use super::super::reach::Reach;

/// An answer that takes longer is none. Podman starts a service for it, which takes some tenths of a second.
const TIMEOUT: Duration = Duration::from_secs(5);
/// Largest answer taken: one about a container with labels and mounts is 10 KiB.
const MAX_ANSWER_BYTES: usize = 1 << 20;

/// Why an engine's socket is not asked at all; `None` when it can be.
pub(crate) fn unusable(socket: &Path) -> Option<String> {
    let data = match std::fs::metadata(socket) {
        Ok(data) => data,
        Err(error) => return Some(error.to_string()),
    };
    // Whoever answers there says how other programs are treated.
    let ours = nix::unistd::geteuid().as_raw();
    match data.uid() {
        _ if !data.file_type().is_socket() => Some("it is not a socket".into()),
        owner if owner != 0 && owner != ours => Some(format!("it belongs to user {owner} and not to root")),
        _ => None,
    }
}

/// What the engine says of one container, as JSON.
pub(super) async fn inspect(socket: PathBuf, reach: Reach, id: String) -> Result<Bytes, DetailsError> {
    inspect_within(TIMEOUT, &socket, &reach, &id).await
}

async fn inspect_within(
    time: Duration,
    socket: &Path,
    reach: &Reach,
    id: &str,
) -> Result<Bytes, DetailsError> {
    let answer = tokio::time::timeout(time, ask(socket, reach, &format!("/containers/{id}/json"))).await;
    match answer {
        Ok(Ok((StatusCode::OK, body))) => Ok(body),
        Ok(Ok((StatusCode::NOT_FOUND, _))) => Err(DetailsError::Gone),
        Ok(Ok((status, _))) => Err(DetailsError::Failed(format!("it answers {status}"))),
        Ok(Err(why)) => Err(DetailsError::Failed(why)),
        Err(_) => Err(DetailsError::Failed(format!("it does not answer within {time:?}"))),
    }
}

async fn ask(socket: &Path, reach: &Reach, path: &str) -> Result<(StatusCode, Bytes), String> {
    let stream = reach.connect(socket).await.map_err(|error| format!("cannot connect: {error}"))?;
    let failed = |error: hyper::Error| format!("it does not speak HTTP: {error}");
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await.map_err(failed)?;
    let request = Request::get(path).header("host", "localhost").header("connection", "close");
    let request = request.body(Body::empty()).map_err(|error| error.to_string())?;
    let answer = async {
        let answer = sender.send_request(request).await.map_err(failed)?;
        let (head, body) = answer.into_parts();
        let body = to_bytes(Body::new(body), MAX_ANSWER_BYTES).await;
        let body = body.map_err(|error| format!("its answer ends early or is above 1 MiB: {error}"))?;
        Ok((head.status, body))
    };
    // Both in this task: dropped together when the time is over.
    let mut connection = std::pin::pin!(connection);
    let mut answer = std::pin::pin!(answer);
    tokio::select! {
        answer = &mut answer => answer,
        // What it read before it ended is still to be had.
        _ = &mut connection => answer.await,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};
    use std::os::unix::net::UnixListener;

    /// What is made of an engine that answers with these bytes, and hangs up or not.
    async fn answered(bytes: Vec<u8>, hangs_up: bool) -> Result<Bytes, DetailsError> {
        let dir = tempfile::tempdir().unwrap();
        let socket = dir.path().join("s");
        let listener = UnixListener::bind(&socket).unwrap();
        assert_eq!(unusable(&socket), None);
        let engine = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let mut request = [0; 4096];
            let read = stream.read(&mut request).unwrap();
            // Whoever asked may have heard enough.
            let _ = stream.write_all(&bytes);
            if !hangs_up {
                let _ = stream.read(&mut [0; 1]);
            }
            String::from_utf8_lossy(&request[..read]).into_owned()
        });
        let answer = inspect(socket, Reach::Here, "c1".into()).await;
        let request = engine.join().unwrap();
        assert!(request.starts_with("GET /containers/c1/json HTTP/1.1\r\n"), "{request}");
        answer
    }

    fn why(answer: Result<Bytes, DetailsError>) -> String {
        match answer.unwrap_err() {
            DetailsError::Failed(why) => why,
            other => panic!("{other:?}"),
        }
    }

    #[tokio::test]
    async fn answers_are_taken_whole_and_bounded() {
        let ok = "HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}";
        assert_eq!(answered(ok.into(), true).await.unwrap(), "{}");
        let chunked = "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n";
        assert_eq!(answered(chunked.into(), false).await.unwrap(), "{}");
        let gone = "HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\n\r\n";
        assert_eq!(answered(gone.into(), true).await, Err(DetailsError::Gone));
        let broken = "HTTP/1.1 500 Internal Server Error\r\ncontent-length: 0\r\n\r\n";
        assert!(why(answered(broken.into(), true).await).contains("500"));
        assert!(why(answered("220 mail.example.com ESMTP\r\n".into(), true).await).contains("HTTP"));
        assert!(why(answered(Vec::new(), true).await).contains("HTTP"));
        let cut = "HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\n{}";
        assert!(why(answered(cut.into(), true).await).contains("ends early"));
        let mut endless = b"HTTP/1.1 200 OK\r\n\r\n".to_vec();
        endless.resize(MAX_ANSWER_BYTES + 4096, b' ');
        assert!(why(answered(endless, true).await).contains("above 1 MiB"));
    }

    #[tokio::test]
    async fn one_that_hangs_is_given_up() {
        let dir = tempfile::tempdir().unwrap();
        let socket = dir.path().join("s");
        let _listener = UnixListener::bind(&socket).unwrap();
        let answer = inspect_within(Duration::from_millis(20), &socket, &Reach::Here, "c1").await;
        assert!(why(answer).contains("within 20ms"));
    }

    #[test]
    fn what_is_no_socket_of_root_is_not_asked() {
        let dir = tempfile::tempdir().unwrap();
        assert!(unusable(&dir.path().join("none")).is_some_and(|why| why.contains("No such file")));
        assert_eq!(unusable(dir.path()).as_deref(), Some("it is not a socket"));
        let socket = dir.path().join("s");
        let _listener = UnixListener::bind(&socket).unwrap();
        if std::os::unix::fs::chown(&socket, Some(65534), None).is_ok() {
            assert_eq!(unusable(&socket).as_deref(), Some("it belongs to user 65534 and not to root"));
        }
    }
}
