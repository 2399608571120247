//! What forms send: `application/x-www-form-urlencoded`, as the URL standard has it.

use std::collections::BTreeMap;

use axum::body::Bytes;
use axum::extract::{FromRequest, Request};
use axum::http::{StatusCode, header};

use super::problem;
use crate::api::http::Problem;

/// Fields of one form.
const MOST: usize = 32;

/// A form's fields by name; of a name given twice the last one.
#[derive(Debug, Default)]
pub(super) struct FormFields(BTreeMap<String, String>);

impl FormFields {
    /// The form of a request; the router's limit on bodies holds.
    pub(super) async fn of(request: Request) -> Result<Self, Problem> {
        let refused = |why: String| {
            problem(StatusCode::BAD_REQUEST, "the form cannot be read", why, "send it from its page")
        };
        let kind = request
            .headers()
            .get(header::CONTENT_TYPE)
            .and_then(|kind| kind.to_str().ok())
            .unwrap_or_default();
        if !kind.starts_with("application/x-www-form-urlencoded") {
            return Err(refused(format!("its content type is {kind:?}")));
        }
        let body = Bytes::from_request(request, &()).await;
        let body = body.map_err(|rejection| {
            problem(rejection.status(), "the form cannot be read", rejection.body_text(), "send less")
        })?;
        Self::read(&body).ok_or_else(|| refused("it is no list of at most 32 fields in UTF-8".to_owned()))
    }

    fn read(body: &[u8]) -> Option<Self> {
        let mut fields = BTreeMap::new();
        for field in body.split(|byte| *byte == b'&').filter(|field| !field.is_empty()) {
            let mut parts = field.splitn(2, |byte| *byte == b'=');
            let (name, value) = (decoded(parts.next()?)?, decoded(parts.next().unwrap_or_default())?);
            fields.insert(name, value);
            if fields.len() > MOST {
                return None;
            }
        }
        Some(Self(fields))
    }

    /// A field; empty where there is none. Lines end as they do here.
    pub(super) fn text(&self, name: &str) -> String {
        self.0.get(name).map(|value| value.replace("\r\n", "\n")).unwrap_or_default()
    }
}

/// Plus signs as spaces, and percent-encoded bytes; nothing where that is no UTF-8.
fn decoded(text: &[u8]) -> Option<String> {
    let digit = |byte: Option<&u8>| byte.and_then(|byte| char::from(*byte).to_digit(16));
    let (mut bytes, mut at) = (Vec::with_capacity(text.len()), 0);
    while let Some(byte) = text.get(at) {
        let pair = digit(text.get(at + 1)).zip(digit(text.get(at + 2)));
        match (byte, pair) {
            (b'%', Some((high, low))) => {
                bytes.push(u8::try_from(high * 16 + low).ok()?);
                at += 2;
            }
            (b'+', _) => bytes.push(b' '),
            (byte, _) => bytes.push(*byte),
        }
        at += 1;
    }
    String::from_utf8(bytes).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_form_is_read_as_browsers_write_it() {
        let form = FormFields::read(b"text=a%3A+1%0D%0Ab%3A+%C3%BC&on=&x=%zz&y").unwrap();
        assert_eq!(form.text("text"), "a: 1\nb: ü");
        assert_eq!(
            (form.text("on"), form.text("x"), form.text("y"), form.text("z")),
            ("".into(), "%zz".into(), "".into(), "".into())
        );
        assert!(FormFields::read(b"x=%ff").is_none(), "no UTF-8");
        let many: String = (0..40).map(|n| format!("f{n}=1&")).collect();
        assert!(FormFields::read(many.as_bytes()).is_none());
    }
}
