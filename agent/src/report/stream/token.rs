//! The token that lets the stream in. Where it ends, its file is read again while the stream is open (a kubelet writes a new one at
//! 80 % of its life), and a newer token is sent before the stream would end.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::Context as _;
use evenkeel_proto::bearer;
use evenkeel_proto::v1;

use crate::trust::now;

/// The file is read again at least and at most so often, and five times in what is left of the token.
const OFTEN: Duration = Duration::from_secs(1);
const SELDOM: Duration = Duration::from_secs(30);

/// The token of one connection.
pub(super) struct Token {
    file: Option<PathBuf>,
    /// What the recommender took.
    taken: String,
    /// What was sent and not answered.
    sent: Option<String>,
    /// Seconds since 1970; 0 where it does not end.
    ends: u64,
    looked: Instant,
    refused: String,
}

impl Token {
    /// What is in the file now.
    ///
    /// # Errors
    /// When it cannot be read, or holds no token.
    pub(super) fn read(file: Option<&Path>) -> anyhow::Result<Self> {
        let taken = match file {
            Some(file) => bearer::read(file)
                .with_context(|| format!("cannot read the token in {} (stream.token)", file.display()))?,
            None => String::new(),
        };
        let (file, refused) = (file.map(Path::to_owned), String::new());
        Ok(Self { file, taken, sent: None, ends: 0, looked: Instant::now(), refused })
    }

    /// What each call carries; empty where there is none.
    pub(super) fn text(&self) -> &str {
        &self.taken
    }

    /// When the recommender says it ends.
    pub(super) fn ends(&mut self, at: u64) {
        self.ends = at;
    }

    /// Time until the file is to be read again; as good as for ever where the token does not end.
    pub(super) fn due(&self) -> Duration {
        if self.ends == 0 || self.file.is_none() {
            return Duration::MAX;
        }
        let left = Duration::from_secs(self.ends.saturating_sub(now()));
        (left / 5).clamp(OFTEN, SELDOM).saturating_sub(self.looked.elapsed())
    }

    /// The newer token in the file, where there is one that has not been sent. One that cannot be read is looked for again.
    pub(super) fn renewal(&mut self) -> Option<v1::Renewal> {
        self.looked = Instant::now();
        let token = bearer::read(self.file.as_deref()?);
        let token =
            token.inspect_err(|error| tracing::warn!(%error, "the file of the token cannot be read")).ok()?;
        if token == self.taken {
            return None;
        }
        // Sent again where the answer was lost.
        self.sent = Some(token.clone());
        Some(v1::Renewal { token })
    }

    /// What the recommender said to a newer token; why it was refused is told once.
    pub(super) fn answered(&mut self, answer: v1::Renewed) {
        let v1::Renewed { token_ends, refused } = answer;
        let sent = self.sent.take();
        if refused.is_empty() {
            self.taken = sent.unwrap_or_default();
            self.ends = token_ends;
        } else if self.refused != refused {
            tracing::warn!(
                why = refused,
                "the recommender does not take the newer token; the stream ends with the old one"
            );
        }
        self.refused = refused;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_newer_token_is_sent_until_it_is_taken() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("token");
        std::fs::write(&file, "old\n").unwrap();
        let mut token = Token::read(Some(&file)).unwrap();
        assert_eq!(token.due(), Duration::MAX, "it does not end");
        token.ends(now() + 3600);
        assert!(token.due() <= SELDOM);
        token.ends(now());
        assert!(token.due() <= OFTEN);
        assert_eq!(token.renewal(), None);
        std::fs::write(&file, "new").unwrap();
        let newer = v1::Renewal { token: "new".into() };
        assert_eq!(token.renewal(), Some(newer.clone()));
        token.answered(v1::Renewed { token_ends: 0, refused: "silence".into() });
        assert_eq!(token.renewal(), Some(newer), "another time");
        token.answered(v1::Renewed { token_ends: now() + 10, refused: String::new() });
        assert_eq!(token.renewal(), None);
        assert!(token.due() <= Duration::from_secs(2));
        std::fs::remove_file(&file).unwrap();
        assert_eq!(token.renewal(), None);
        assert_eq!(Token::read(None).unwrap().due(), Duration::MAX);
    }
}
