//! Suite `host`: agent and recommender together, through restarts, kills and full disks.

#[path = "cases/stream_answers.rs"]
mod answers;
#[path = "cases/stream_events.rs"]
mod events;
#[path = "cases/stream_losses.rs"]
mod losses;
#[path = "cases/stream_overlay.rs"]
mod overlay;
#[path = "cases/stream_starts.rs"]
mod starts;
#[path = "cases/stream_upgrade.rs"]
mod upgrade;
