//! How much is taken of the other side in a second.

use std::time::Duration;

use tokio::time::Instant;

/// How much a second is taken.
#[derive(Debug)]
pub struct Pace {
    packets: u32,
    left: u32,
    since: Instant,
}

impl Pace {
    /// So much; 0 is all.
    #[must_use]
    pub fn new(packets: u32) -> Self {
        Self { packets, left: packets, since: Instant::now() }
    }

    /// Waits for the next second where all of this one were taken.
    pub async fn wait(&mut self) {
        if self.packets == 0 {
            return;
        }
        if self.since.elapsed() >= Duration::from_secs(1) {
            (self.left, self.since) = (self.packets, Instant::now());
        }
        if self.left == 0 {
            tokio::time::sleep_until(self.since + Duration::from_secs(1)).await;
            (self.left, self.since) = (self.packets, Instant::now());
        }
        self.left -= 1;
    }
}
