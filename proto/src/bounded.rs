//! Owns the bound on what a message unfolds to: an empty sub-message takes two bytes on the wire and hundreds in memory, so
//! that a bound in bytes alone is none. It is looked at before anything is decoded.

use std::any::TypeId;
use std::marker::PhantomData;

use prost::Message;
use prost::bytes::Buf;
use prost::encoding::{DecodeContext, WireType, decode_key, decode_varint, skip_field};
use tonic::Status;
use tonic::codec::{Codec, DecodeBuf, Decoder};
use tonic_prost::ProstCodec;

use crate::v1;

/// Parts a message may have: of each container announced a few dozen, of 10,000 and more containers.
pub const MOST_PARTS: usize = 1 << 20;
/// A repeated message takes as much memory as so many texts, or entries of a map.
const MESSAGE: usize = 8;

/// The codec of all services: prost's, but a message of a stream between agent and recommender is looked at before.
#[derive(Debug, Clone)]
pub struct BoundedCodec<T, U>(PhantomData<(T, U)>);

impl<T, U> Default for BoundedCodec<T, U> {
    fn default() -> Self {
        Self(PhantomData)
    }
}

impl<T, U> Codec for BoundedCodec<T, U>
where
    T: Message + Send + 'static,
    U: Message + Default + Send + 'static,
{
    type Encode = T;
    type Decode = U;
    type Encoder = <ProstCodec<T, U> as Codec>::Encoder;
    type Decoder = BoundedDecoder<<ProstCodec<T, U> as Codec>::Decoder>;

    fn encoder(&mut self) -> Self::Encoder {
        ProstCodec::<T, U>::default().encoder()
    }

    fn decoder(&mut self) -> Self::Decoder {
        BoundedDecoder(ProstCodec::<T, U>::default().decoder())
    }
}

/// Decodes what is within the bound.
#[derive(Debug, Clone)]
pub struct BoundedDecoder<D>(D);

impl<D> Decoder for BoundedDecoder<D>
where
    D: Decoder<Error = Status>,
    D::Item: 'static,
{
    type Item = D::Item;
    type Error = Status;

    fn decode(&mut self, buffer: &mut DecodeBuf<'_>) -> Result<Option<Self::Item>, Status> {
        let form =
            [(TypeId::of::<v1::StreamRequest>(), REQUEST), (TypeId::of::<v1::StreamResponse>(), RESPONSE)];
        let form = form.into_iter().find(|(of, _)| *of == TypeId::of::<D::Item>());
        if form.is_some_and(|(_, form)| parts(buffer.chunk(), form) > MOST_PARTS) {
            return Err(Status::resource_exhausted(format!(
                "a message unfolds to more than {MOST_PARTS} parts; send fewer frames or announcements in a message"
            )));
        }
        self.0.decode(buffer)
    }
}

/// What is counted of a message: its fields of these numbers are messages, counted by a form of their own.
#[derive(Debug, Clone, Copy)]
struct MessageShape(&'static [(u32, usize, MessageShape)]);

const REQUEST: MessageShape = MessageShape(&[(2, 0, MessageShape(&[(1, MESSAGE, FRAME)]))]);
const FRAME: MessageShape = MessageShape(&[
    (5, MESSAGE, MessageShape(&[(2, 0, MessageShape(&[]))])),
    (7, MESSAGE, MessageShape(&[])),
    (8, MESSAGE, MessageShape(&[])),
]);
const RESPONSE: MessageShape = MessageShape(&[
    (4, 0, MessageShape(&[(5, MESSAGE, MessageShape(&[]))])),
    (11, 0, MessageShape(&[(5, MESSAGE, POD)])),
]);
const POD: MessageShape = MessageShape(&[(8, 0, AMOUNTS), (10, MESSAGE, MessageShape(&[(3, 0, AMOUNTS)]))]);
const AMOUNTS: MessageShape = MessageShape(&[]);

/// Parts of a message: each text, map entry and packed list is one, each repeated message [`MESSAGE`] and its own. What is
/// no message has as many as there are until it breaks off: prost refuses it.
fn parts(mut bytes: &[u8], form: MessageShape) -> usize {
    let mut count = 0_usize;
    while !bytes.is_empty() && count <= MOST_PARTS {
        let Ok((number, wire)) = decode_key(&mut bytes) else { break };
        if wire != WireType::LengthDelimited {
            if skip_field(wire, number, &mut bytes, DecodeContext::default()).is_err() {
                break;
            }
            count += 1;
            continue;
        }
        let Ok(length) = decode_varint(&mut bytes) else { break };
        let Some((inner, rest)) = usize::try_from(length).ok().and_then(|at| bytes.split_at_checked(at))
        else {
            break;
        };
        bytes = rest;
        count += match form.0.iter().find(|(of, ..)| *of == number) {
            Some((_, own, form)) => own + parts(inner, *form),
            None => 1,
        };
    }
    count
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(frame: v1::Frame) -> Vec<u8> {
        let frames = v1::Frames { frames: vec![frame] };
        v1::StreamRequest { message: Some(v1::stream_request::Message::Frames(frames)) }.encode_to_vec()
    }

    #[test]
    fn empty_messages_in_millions_are_refused_and_a_node_full_of_containers_is_not() {
        let empty =
            v1::Frame { announced: vec![v1::Announcement::default(); 200_000], ..v1::Frame::default() };
        assert!(parts(&request(empty), REQUEST) > MOST_PARTS);
        let decisions =
            v1::Frame { decisions: vec![v1::Decision::default(); 200_000], ..v1::Frame::default() };
        assert!(parts(&request(decisions), REQUEST) > MOST_PARTS);
        let identity = v1::ContainerIdentity {
            id: "x".repeat(64),
            labels: (0..16).map(|i| (format!("label-{i}"), "value".to_owned())).collect(),
            namespace: "shop".into(),
            ..v1::ContainerIdentity::default()
        };
        let announced = (0..10_000).map(|slot| v1::Announcement { slot, identity: Some(identity.clone()) });
        let full = v1::Frame { announced: announced.collect(), ..v1::Frame::default() };
        let parts = parts(&request(full), REQUEST);
        assert!((10_000..MOST_PARTS / 2).contains(&parts), "{parts}");
    }

    #[test]
    fn empty_pods_in_millions_are_refused_and_a_node_full_of_pods_is_not() {
        let told = |pods: v1::NodePods| {
            let message = Some(v1::stream_response::Message::Pods(pods));
            parts(&v1::StreamResponse { message }.encode_to_vec(), RESPONSE)
        };
        let changed = vec![v1::PodRequirements::default(); 200_000];
        assert!(told(v1::NodePods { changed, ..v1::NodePods::default() }) > MOST_PARTS);
        let pod = v1::PodRequirements {
            containers: vec![v1::ContainerRequirements::default(); 200_000],
            ..v1::PodRequirements::default()
        };
        assert!(told(v1::NodePods { changed: vec![pod], ..v1::NodePods::default() }) > MOST_PARTS);
        let resources = v1::Requirements {
            requests: (0..4).map(|at| (format!("resource-{at}"), "1".to_owned())).collect(),
            ..v1::Requirements::default()
        };
        let container =
            v1::ContainerRequirements { resources: Some(resources), ..v1::ContainerRequirements::default() };
        let pod = v1::PodRequirements { containers: vec![container; 4], ..v1::PodRequirements::default() };
        let parts = told(v1::NodePods { changed: vec![pod; 4096], ..v1::NodePods::default() });
        assert!((4096..MOST_PARTS / 2).contains(&parts), "{parts}");
    }

    #[test]
    fn what_is_no_message_is_left_to_prost() {
        for bytes in [&[0x12, 0xff][..], &[0xff; 20], &[0x12, 0x05, 0x0a], &[0x0f, 0x00]] {
            assert!(parts(bytes, REQUEST) < 10, "{bytes:?}");
        }
    }
}
