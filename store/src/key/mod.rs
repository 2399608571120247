//! Owns the names under which things are known: streams, nodes, series and the subjects of history. Depends on nothing else
//! here.

mod image;
mod series;
mod stream;
mod subject;

pub use image::Image;
pub use series::{ReplicaKey, SeriesId, SeriesKey};
pub use stream::{NodeKey, StreamKey};
pub use subject::Subject;
