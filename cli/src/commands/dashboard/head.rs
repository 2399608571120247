//! The head of a request: what of it decides, and what of it is passed on.

use std::io::Read;

/// Largest head.
const MAX_HEAD: usize = 32 << 10;
/// What a proxy makes anew (RFC 9110, 7.6.1), and what is this program's own business.
const KEPT_BACK: [&str; 9] = [
    "host",
    "connection",
    "keep-alive",
    "proxy-connection",
    "te",
    "upgrade",
    "authorization",
    "cookie",
    "origin",
];

/// Why a request is not passed on.
#[derive(Debug)]
pub(super) struct HeadRefusal {
    status: u16,
    why: String,
}

impl HeadRefusal {
    pub(super) fn new(status: u16, why: impl Into<String>) -> Self {
        Self { status, why: why.into() }
    }

    pub(super) fn answer(&self) -> String {
        let (status, why) = (self.status, &self.why);
        let length = why.len() + 1;
        format!(
            "HTTP/1.1 {status} Refused\r\nContent-Type: text/plain; charset=utf-8\r\nX-Content-Type-Options: nosniff\r\n\
             Cache-Control: no-store\r\nConnection: close\r\nContent-Length: {length}\r\n\r\n{why}\n"
        )
    }
}

/// Leads to another page with a cookie.
pub(super) fn moved(to: &str, cookie: &str) -> String {
    format!(
        "HTTP/1.1 303 See Other\r\nLocation: {to}\r\nSet-Cookie: {cookie}\r\nReferrer-Policy: no-referrer\r\n\
         Cache-Control: no-store\r\nConnection: close\r\nContent-Length: 0\r\n\r\n"
    )
}

/// A head that was read.
#[derive(Debug)]
pub(super) struct RequestHead {
    method: String,
    to: String,
    fields: Vec<(String, String)>,
}

impl RequestHead {
    /// Reads one, and what came behind it.
    ///
    /// # Errors
    /// When it is none, or too large.
    pub(super) fn read(stream: &mut impl Read) -> Result<(Self, Vec<u8>), HeadRefusal> {
        let (mut got, mut buffer) = (Vec::new(), [0; 4096]);
        let end = loop {
            if let Some(end) = got.windows(4).position(|four| four == b"\r\n\r\n") {
                break end;
            }
            match stream.read(&mut buffer) {
                Ok(read @ 1..) if got.len() < MAX_HEAD => got.extend_from_slice(&buffer[..read]),
                _ => return Err(HeadRefusal::new(400, "this is no request of at most 32 KiB")),
            }
        };
        let behind = got.split_off(end + 4);
        let head = std::str::from_utf8(&got).ok().and_then(Self::of);
        Ok((head.ok_or_else(|| HeadRefusal::new(400, "this is no request"))?, behind))
    }

    fn of(text: &str) -> Option<Self> {
        let mut lines = text.trim_end_matches("\r\n").split("\r\n");
        let mut first = lines.next()?.split(' ');
        let (method, to) = (first.next()?.to_owned(), first.next()?.to_owned());
        if first.next() != Some("HTTP/1.1") || !to.starts_with('/') {
            return None;
        }
        let field = |line: &str| {
            let (name, value) = line.split_once(':')?;
            let is_name =
                !name.is_empty() && name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-' || b == b'_');
            is_name.then(|| (name.to_owned(), value.trim().to_owned()))
        };
        let fields = lines.map(field).collect::<Option<Vec<_>>>()?;
        Some(Self { method, to, fields })
    }

    fn field(&self, name: &str) -> Option<&str> {
        let mut all = self.fields.iter().filter(|(known, _)| known.eq_ignore_ascii_case(name));
        all.next().map(|(_, value)| value.as_str())
    }

    /// Whether it is for a page of ours, called by a name of ours, and sent by no page of others.
    ///
    /// # Errors
    /// What is wrong.
    pub(super) fn is_for(&self, port: u16) -> Result<(), HeadRefusal> {
        let hosts = [format!("127.0.0.1:{port}"), format!("localhost:{port}")];
        let host = self.field("host").unwrap_or_default();
        if !hosts.iter().any(|own| own == host) {
            return Err(HeadRefusal::new(421, format!("call it http://{}", hosts[0])));
        }
        let of_others = self.field("origin").is_some_and(|origin| origin != format!("http://{host}"))
            || self.field("sec-fetch-site").is_some_and(|site| !matches!(site, "same-origin" | "none"));
        if of_others && (self.method != "GET" || self.field("origin").is_some()) {
            return Err(HeadRefusal::new(403, "a page of another site sends it"));
        }
        let path = self.to.split('?').next().unwrap_or_default();
        match path == "/" || path == "/ui" || path.starts_with("/ui/") {
            true => Ok(()),
            false => Err(HeadRefusal::new(404, "only pages are passed on, below /ui/")),
        }
    }

    /// The key in its address.
    pub(super) fn key(&self) -> Option<&str> {
        self.to.split_once("?key=").map(|(_, key)| key)
    }

    /// Whether a cookie holds the key.
    ///
    /// # Errors
    /// When it does not.
    pub(super) fn has_cookie(&self, name: &str, key: &str) -> Result<(), HeadRefusal> {
        let cookies =
            self.field("cookie").unwrap_or_default().split(';').filter_map(|c| c.trim().split_once('='));
        match cookies.filter(|(of, _)| *of == name).any(|(_, value)| value == key) {
            true => Ok(()),
            false => Err(HeadRefusal::new(
                403,
                "open the URL that evenkeel dashboard printed: its key lets this browser in",
            )),
        }
    }

    /// Bytes of its body.
    ///
    /// # Errors
    /// When that is not said in advance.
    pub(super) fn length(&self) -> Result<u64, HeadRefusal> {
        let unknown = || HeadRefusal::new(411, "a body is passed on with its length alone");
        if self.field("transfer-encoding").is_some() {
            return Err(unknown());
        }
        self.field("content-length").map_or(Ok(0), |length| length.parse().map_err(|_| unknown()))
    }

    /// The head that is sent on.
    pub(super) fn passed_on(&self, host: &str, token: Option<&str>) -> String {
        let mut text =
            format!("{} {} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n", self.method, self.to);
        if let Some(token) = token {
            text.push_str(&format!("Authorization: Bearer {token}\r\n"));
        }
        let passed =
            self.fields.iter().filter(|(name, _)| !KEPT_BACK.contains(&name.to_ascii_lowercase().as_str()));
        for (name, value) in passed {
            text.push_str(&format!("{name}: {value}\r\n"));
        }
        text.push_str("\r\n");
        text
    }
}
