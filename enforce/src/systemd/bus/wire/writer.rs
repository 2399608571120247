//! Values as they are written to the bus.

use super::Argument;
use crate::systemd::property::{Property, PropertyValue};

/// What is longer than a length can say is refused by the bus, which takes 128 MiB at most.
pub(super) fn length(length: usize) -> u32 {
    u32::try_from(length).unwrap_or(u32::MAX)
}

#[derive(Default)]
pub(super) struct BusWriter(pub(super) Vec<u8>);

impl BusWriter {
    pub(super) fn align(&mut self, to: usize) {
        self.0.resize(self.0.len().next_multiple_of(to), 0);
    }

    pub(super) fn number(&mut self, number: u32) {
        self.align(4);
        self.0.extend_from_slice(&number.to_le_bytes());
    }

    fn text(&mut self, text: &str) {
        self.number(length(text.len()));
        self.0.extend_from_slice(text.as_bytes());
        self.0.push(0);
    }

    /// Signatures here have a few letters.
    pub(super) fn signature(&mut self, signature: &str) {
        self.0.push(u8::try_from(signature.len()).unwrap_or(u8::MAX));
        self.0.extend_from_slice(signature.as_bytes());
        self.0.push(0);
    }

    pub(super) fn field(&mut self, code: u8, signature: &str, text: &str) {
        self.align(8);
        self.0.push(code);
        self.signature(signature);
        self.text(text);
    }

    /// An array of structs; its length does not count what stands between it and the first.
    pub(super) fn array(&mut self, entries: impl FnOnce(&mut Self)) {
        self.number(0);
        let place = self.0.len() - 4;
        self.align(8);
        let from = self.0.len();
        entries(self);
        let length = length(self.0.len() - from).to_le_bytes();
        if let Some(space) = self.0.get_mut(place..place + 4) {
            space.copy_from_slice(&length);
        }
    }

    pub(super) fn argument(&mut self, argument: &Argument<'_>) {
        match argument {
            Argument::Text(text) => self.text(text),
            Argument::Bool(is) => self.number((*is).into()),
            Argument::Properties(properties) => self.array(|entries| {
                for Property { name, value, .. } in *properties {
                    entries.align(8);
                    entries.text(name);
                    match value {
                        PropertyValue::Number(number) => {
                            entries.signature("t");
                            entries.align(8);
                            entries.0.extend_from_slice(&number.to_le_bytes());
                        }
                        PropertyValue::Bits(bits) => {
                            entries.signature("ay");
                            entries.number(length(bits.len()));
                            entries.0.extend_from_slice(bits);
                        }
                    }
                }
            }),
        }
    }
}
