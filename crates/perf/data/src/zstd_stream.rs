//! The two halves of a zstd stream, as compressed records need them.
//!
//! Without the cargo feature `zstd` neither half can be made: reading leaves compressed records out, with a note, and writing
//! them is refused.

#[cfg(feature = "zstd")]
pub(crate) use with::{Decoder, Encoder};
#[cfg(not(feature = "zstd"))]
pub(crate) use without::{Decoder, Encoder};

/// The bytes that one step of a stream took in and gave out.
#[derive(Clone, Copy)]
pub(crate) struct Step {
    pub taken: usize,
    pub written: usize,
}

#[cfg(feature = "zstd")]
mod with {
    use super::Step;
    use std::io;
    use zstd::stream::raw::{self, CParameter, DParameter, InBuffer, Operation, OutBuffer};

    /// Unpacks a stream that comes in pieces.
    pub(crate) struct Decoder(raw::Decoder<'static>);

    impl Decoder {
        /// Makes a decoder that may reserve `1 << window_log` bytes to look back.
        pub fn new(window_log: u32) -> io::Result<Self> {
            let mut decoder = raw::Decoder::new()?;
            decoder.set_parameter(DParameter::WindowLogMax(window_log))?;
            Ok(Decoder(decoder))
        }

        pub fn run(&mut self, input: &[u8], output: &mut [u8]) -> io::Result<Step> {
            run(&mut self.0, input, output)
        }
    }

    /// Packs a stream that can be unpacked at every flush.
    pub(crate) struct Encoder(raw::Encoder<'static>);

    impl Encoder {
        /// Makes an encoder of a level, which looks back `1 << window_log` bytes at most if that is given.
        pub fn new(level: i32, window_log: Option<u32>) -> io::Result<Self> {
            let mut encoder = raw::Encoder::new(level)?;
            if let Some(log) = window_log {
                encoder.set_parameter(CParameter::WindowLog(log))?;
            }
            Ok(Encoder(encoder))
        }

        pub fn run(&mut self, input: &[u8], output: &mut [u8]) -> io::Result<Step> {
            run(&mut self.0, input, output)
        }

        /// Gives out bytes that wait inside. Returns the number of bytes written, and whether more wait.
        pub fn flush(&mut self, output: &mut [u8]) -> io::Result<(usize, bool)> {
            let mut output = OutBuffer::around(output);
            let waiting = self.0.flush(&mut output)?;
            Ok((output.pos(), waiting > 0))
        }
    }

    fn run(stream: &mut impl Operation, input: &[u8], output: &mut [u8]) -> io::Result<Step> {
        let mut input = InBuffer::around(input);
        let mut output = OutBuffer::around(output);
        stream.run(&mut input, &mut output)?;
        Ok(Step {
            taken: input.pos(),
            written: output.pos(),
        })
    }
}

#[cfg(not(feature = "zstd"))]
mod without {
    use super::Step;
    use std::io;

    fn absent<T>() -> io::Result<T> {
        Err(io::Error::new(
            io::ErrorKind::Unsupported,
            "this program was built without dioptra-perfdata's feature `zstd`",
        ))
    }

    /// A decoder that can't be made.
    pub(crate) enum Decoder {}

    impl Decoder {
        pub fn new(_window_log: u32) -> io::Result<Self> {
            absent()
        }

        pub fn run(&mut self, _input: &[u8], _output: &mut [u8]) -> io::Result<Step> {
            match *self {}
        }
    }

    /// An encoder that can't be made.
    pub(crate) enum Encoder {}

    impl Encoder {
        pub fn new(_level: i32, _window_log: Option<u32>) -> io::Result<Self> {
            absent()
        }

        pub fn run(&mut self, _input: &[u8], _output: &mut [u8]) -> io::Result<Step> {
            match *self {}
        }

        pub fn flush(&mut self, _output: &mut [u8]) -> io::Result<(usize, bool)> {
            match *self {}
        }
    }
}
