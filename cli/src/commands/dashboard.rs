//! `evenkeel dashboard`: the recommender's pages at a loopback address, with one's own credential.
//!
//! Whoever reaches the address acts as its owner. So a key of chance in the printed URL becomes a cookie, without which nothing is
//! passed on; requests have to call it by its address or as localhost, and pages of other sites send nothing (Host, Origin).

mod head;
pub(crate) mod target;

use std::fs::File;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use clap::Args;

use self::head::{HeadRefusal, RequestHead};
use self::target::Upstream;
use crate::client::Address;
use crate::failure::Failure;
use crate::output::YesOrNo;

/// Requests at once; further ones are answered 503.
const MOST: usize = 64;
/// How long a browser may take to say what it wants.
const PATIENCE: Duration = Duration::from_secs(10);

/// Show the recommender's pages in a browser, with your own credential.
///
/// Listens on 127.0.0.1 until it is interrupted, and passes requests for pages on to the recommender: over its socket, or with --http over its
/// HTTP address with your token (--token-file, --kube-auth) or certificate. Open the printed URL: its key lets your browser in, and nobody else's.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  evenkeel dashboard
  evenkeel dashboard --port 8080
  evenkeel dashboard --http https://recommender.example:9521 --ca-file ca.crt --token-file anna.token
  kubectl -n evenkeel port-forward service/evenkeel-recommender 9521 &
  kubectl evenkeel dashboard --http https://localhost:9521 --ca-file ca.crt --kube-auth")]
pub(crate) struct DashboardArgs {
    /// HTTP address of the recommender, https://HOST:PORT or http://HOST:PORT; its socket without.
    #[arg(long, value_name = "URL")]
    http: Option<String>,
    /// Port to listen on; 0 = one that is free.
    #[arg(long, default_value_t = 0, value_name = "PORT")]
    port: u16,
}

/// What every request needs.
struct Proxy {
    target: Upstream,
    address: Address,
    key: String,
    port: u16,
}

pub(crate) fn run(args: &DashboardArgs, address: &Address) -> Result<YesOrNo, Failure> {
    let target = Upstream::of(args.http.as_deref(), address)?;
    let failed = |why: std::io::Error| {
        let remedy = "choose another port with --port";
        Failure::new("cannot listen", format!("127.0.0.1:{}", args.port), why.to_string(), remedy)
    };
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, args.port)).map_err(failed)?;
    let port = listener.local_addr().map_err(failed)?.port();
    let key = key()
        .map_err(|why| Failure::new("cannot start", "/dev/urandom", why.to_string(), "make it readable"))?;
    let proxy = Arc::new(Proxy { target, address: address.clone(), key, port });
    // Told at once: nobody waits for it to be served.
    proxy.connect()?;
    let mut out = std::io::stdout();
    let url = format!("http://127.0.0.1:{port}/ui/?key={}\n", proxy.key);
    out.write_all(url.as_bytes()).and_then(|()| out.flush()).map_err(|why| {
        Failure::new(
            "cannot print the address",
            "standard output",
            why.to_string(),
            "give it one that can be written",
        )
    })?;
    serve(&listener, &proxy);
    Ok(YesOrNo::Yes)
}

fn key() -> std::io::Result<String> {
    let mut bytes = [0; 16];
    File::open("/dev/urandom")?.read_exact(&mut bytes)?;
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}

/// Serves until the process ends; each request on a thread of its own.
fn serve(listener: &TcpListener, proxy: &Arc<Proxy>) {
    let busy = Arc::new(AtomicUsize::new(0));
    for stream in listener.incoming() {
        let Ok(mut stream) = stream else { continue };
        if busy.load(Ordering::Relaxed) >= MOST {
            refuse(&mut stream, &HeadRefusal::new(503, "as many requests as may be passed on at once are"));
            continue;
        }
        busy.fetch_add(1, Ordering::Relaxed);
        let (proxy, done) = (Arc::clone(proxy), Arc::clone(&busy));
        let started = std::thread::Builder::new().name("request".to_owned()).spawn(move || {
            // A browser that is gone has nobody to tell.
            if let Err(refused) = proxy.pass_on(&mut stream) {
                refuse(&mut stream, &refused);
            }
            done.fetch_sub(1, Ordering::Relaxed);
        });
        if started.is_err() {
            busy.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

fn refuse(stream: &mut TcpStream, refused: &HeadRefusal) {
    let _gone = stream.write_all(refused.answer().as_bytes());
}

impl Proxy {
    fn connect(&self) -> Result<target::UpstreamConnection, Failure> {
        self.target.connect()
    }

    /// Passes one request on, and its answer back.
    fn pass_on(&self, stream: &mut TcpStream) -> Result<(), HeadRefusal> {
        let _unlimited = stream.set_read_timeout(Some(PATIENCE));
        let (head, begun) = RequestHead::read(stream)?;
        head.is_for(self.port)?;
        if head.key() == Some(self.key.as_str()) {
            let cookie = format!("evenkeel_{}={}; Path=/; HttpOnly; SameSite=Strict", self.port, self.key);
            let _gone = stream.write_all(head::moved("/ui/", &cookie).as_bytes());
            return Ok(());
        }
        head.has_cookie(&format!("evenkeel_{}", self.port), &self.key)?;
        let token = self.address.token().map_err(|failure| HeadRefusal::new(502, failure.cause()))?;
        let mut line = self.connect().map_err(|failure| HeadRefusal::new(502, failure.cause()))?;
        let passed = head.passed_on(self.target.host(), token.as_deref());
        let length = head.length()?;
        let gone = |_| HeadRefusal::new(502, "the recommender closed the connection");
        line.write_all(passed.as_bytes()).and_then(|()| line.write_all(&begun)).map_err(gone)?;
        let rest = length.saturating_sub(begun.len() as u64);
        std::io::copy(&mut Read::by_ref(stream).take(rest), &mut line).map_err(gone)?;
        line.flush().map_err(gone)?;
        back(&mut line, stream);
        Ok(())
    }
}

/// The answer as it comes, until either side ends it.
fn back(line: &mut target::UpstreamConnection, stream: &mut TcpStream) {
    let mut buffer = vec![0; 16 << 10];
    while let Ok(read @ 1..) = line.read(&mut buffer) {
        if stream.write_all(&buffer[..read]).is_err() {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Answers one request with what it was sent.
    fn recommender() -> (String, std::thread::JoinHandle<String>) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let served = std::thread::spawn(move || {
            // The first connection is the look at the start.
            drop(listener.accept().unwrap());
            let (mut stream, _) = listener.accept().unwrap();
            let mut got = Vec::new();
            let mut buffer = [0; 4096];
            while !String::from_utf8_lossy(&got).contains("csrf=1") {
                let read = stream.read(&mut buffer).unwrap();
                got.extend_from_slice(&buffer[..read]);
            }
            stream.write_all(b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\npassed").unwrap();
            String::from_utf8(got).unwrap()
        });
        (url, served)
    }

    #[test]
    fn a_browser_with_the_key_is_passed_on_with_the_token_and_nobody_else() {
        let dir = tempfile::tempdir().unwrap();
        let token = dir.path().join("token");
        std::fs::write(&token, "ek_secret\n").unwrap();
        let (url, served) = recommender();
        let trust = evenkeel_proto::line::Trust { token: Some(token), ..Default::default() };
        let address = Address::new(crate::client::Peer::Recommender, "unix:///nowhere").with_trust(trust);
        let target = Upstream::of(Some(&url), &address).unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let proxy = Arc::new(Proxy { target, address, key: "k".repeat(32), port });
        drop(proxy.connect().unwrap());
        let serving = Arc::clone(&proxy);
        std::thread::spawn(move || serve(&listener, &serving));
        let ask = |head: &str| {
            let mut stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
            stream.write_all(head.as_bytes()).unwrap();
            let mut answer = String::new();
            let _reset = stream.read_to_string(&mut answer);
            answer
        };
        let host = format!("127.0.0.1:{port}");
        for (head, want) in [
            (format!("GET /ui/ HTTP/1.1\r\nHost: {host}\r\n\r\n"), "403"),
            (format!("GET /ui/?key=wrong HTTP/1.1\r\nHost: {host}\r\n\r\n"), "403"),
            (format!("GET /ui/?key={} HTTP/1.1\r\nHost: evil.example:{port}\r\n\r\n", proxy.key), "421"),
            (
                format!(
                    "GET /ui/?key={} HTTP/1.1\r\nHost: {host}\r\nOrigin: http://evil.example\r\n\r\n",
                    proxy.key
                ),
                "403",
            ),
            (
                format!(
                    "GET /metrics HTTP/1.1\r\nHost: {host}\r\nCookie: evenkeel_{port}={}\r\n\r\n",
                    proxy.key
                ),
                "404",
            ),
            ("rubbish\r\n\r\n".to_owned(), "400"),
        ] {
            let answer = ask(&head);
            assert!(answer.starts_with(&format!("HTTP/1.1 {want}")), "{head}: {answer}");
        }
        let answer = ask(&format!("GET /ui/?key={} HTTP/1.1\r\nHost: localhost:{port}\r\n\r\n", proxy.key));
        assert!(
            answer.starts_with("HTTP/1.1 303") && answer.contains("HttpOnly; SameSite=Strict"),
            "{answer}"
        );
        let answer = ask(&format!(
            "POST /ui/panic HTTP/1.1\r\nHost: {host}\r\nOrigin: http://{host}\r\nCookie: a=b; evenkeel_{port}={}\r\n\
             Authorization: Bearer mine\r\nContent-Length: 6\r\n\r\ncsrf=1",
            proxy.key
        ));
        assert!(answer.ends_with("passed"), "{answer}");
        let got = served.join().unwrap();
        assert!(
            got.contains("Authorization: Bearer ek_secret\r\n") && got.ends_with("\r\n\r\ncsrf=1"),
            "{got}"
        );
        assert!(!got.contains("Cookie") && !got.contains("mine") && !got.contains("Origin"), "{got}");
    }
}
