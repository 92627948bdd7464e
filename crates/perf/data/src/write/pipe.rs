//! Recordings for a pipe: what the header of a file holds stands in records before those of the kernel.
//!
//! ```text
//!   magic, size 16 │ HEADER_ATTR … EVENT_UPDATE … HEADER_FEATURE … TRACING_DATA │ records … │ BUILD_ID …
//! ```

use super::{EventToWrite, FeaturesToWrite, Form, MAGIC, WriteOptions, Writer, features};
use crate::error::WriteError;
use crate::features::{BuildId, Compression, Feature};
use crate::kind::file_type;
use dioptra_perfrecords::ATTR_SIZE_IN_FILES;
use std::io::Write;

/// Bytes before the first record: the magic and their own number.
const PIPE_HEADER_SIZE: u64 = 16;
/// EVENT_UPDATE: a name.
const UPDATE_NAME: u64 = 2;
/// Bytes of a piece of a section that is not ours in one record, which holds 64 KiB.
const PIECE: usize = 48 << 10;
/// Texts and data end at multiples of this many bytes.
const ALIGN: usize = 8;

/// Returns the records that tell a pipe's readers the build ids of modules. They may stand anywhere behind the head.
///
/// # Errors
/// [`WriteError::TooLong`] if a path does not fit into a record of 64 KiB.
pub fn build_id_records(ids: &[BuildId]) -> Result<Vec<u8>, WriteError> {
    features::encode_build_ids(ids)
}

impl<W: Write> Writer<W> {
    /// Starts a recording that goes into a pipe (`-o -`): writes the attrs, all ids, names and features.
    ///
    /// All ids must be known: see [`Writer::add_ids`]. Features that are not known yet, and build ids, may be passed to
    /// [`Writer::finish`].
    ///
    /// # Errors
    /// [`WriteError::Io`], and [`WriteError::TooLong`] where ids or a feature do not fit into a record of 64 KiB.
    pub fn create_pipe(
        out: W,
        events: &[EventToWrite],
        features: &FeaturesToWrite,
        options: WriteOptions,
    ) -> Result<Self, WriteError> {
        let mut writer = Writer::new(out, Form::Pipe(Vec::new()), events, options)?;
        writer.put(MAGIC)?;
        writer.put(&PIPE_HEADER_SIZE.to_ne_bytes())?;
        for event in events {
            let mut body = event.attr.to_bytes(ATTR_SIZE_IN_FILES);
            body.extend(event.ids.iter().flat_map(|id| id.to_ne_bytes()));
            writer.put_record(file_type::HEADER_ATTR, &body)?;
        }
        for event in events {
            // Names are linked by ids: without one, readers name the event after its attr.
            let Some(id) = event.ids.first() else {
                continue;
            };
            let mut body = UPDATE_NAME.to_ne_bytes().to_vec();
            body.extend(id.to_ne_bytes());
            body.extend(event.name.as_bytes());
            body.resize((body.len() + 1).next_multiple_of(ALIGN), 0);
            writer.put_record(file_type::EVENT_UPDATE, &body)?;
        }
        writer.put_new_features(features)?;
        writer.data_start = writer.position;
        writer.flush()?;
        Ok(writer)
    }

    /// Ends a pipe.
    pub(super) fn finish_pipe(mut self, features: &FeaturesToWrite) -> Result<u64, WriteError> {
        self.put_new_features(features)?;
        self.put(&features::encode_build_ids(&features.build_ids)?)?;
        self.flush()?;
        self.out.flush()?;
        Ok(self.position)
    }

    /// Writes the features that the pipe does not have yet.
    fn put_new_features(&mut self, features: &FeaturesToWrite) -> Result<(), WriteError> {
        let Form::Pipe(written) = &self.form else {
            return Ok(());
        };
        let mut written = written.clone();
        let compression = self.compressor.as_ref().map(|compressor| Compression {
            // The ratio is not known yet.
            ratio: 1,
            ..compressor.describe()
        });
        let sections =
            features::encode(features, &self.table.events, self.sample_time, compression)?;
        for (feature, bytes) in sections {
            // Events and build ids have records of their own.
            let own_record = [Feature::EVENT_DESC, Feature::BUILD_ID].contains(&feature);
            if own_record || written.contains(&feature) {
                continue;
            }
            written.push(feature);
            if feature == Feature::TRACING_DATA {
                self.put_tracing_data(&bytes)?;
                continue;
            }
            let is_given = |(given, _): &(Feature, Vec<u8>)| *given == feature;
            if features.sections.iter().any(is_given) && bytes.len() > PIECE {
                for piece in bytes.chunks(PIECE) {
                    self.put_feature(feature, piece)?;
                }
                continue;
            }
            self.put_feature(feature, &bytes)?;
        }
        self.form = Form::Pipe(written);
        Ok(())
    }

    fn put_feature(&mut self, feature: Feature, bytes: &[u8]) -> Result<(), WriteError> {
        let mut body = u64::from(feature.0).to_ne_bytes().to_vec();
        body.extend(bytes);
        body.resize(body.len().next_multiple_of(ALIGN), 0);
        self.put_record(file_type::HEADER_FEATURE, &body)
    }

    /// The descriptions of tracepoints: a record that states how many bytes follow it.
    fn put_tracing_data(&mut self, bytes: &[u8]) -> Result<(), WriteError> {
        let padded = bytes.len().next_multiple_of(ALIGN);
        let length = u32::try_from(padded).map_err(|_| WriteError::TooLong {
            section: "TRACING_DATA",
            length: padded,
        })?;
        self.put_record(file_type::TRACING_DATA, &length.to_ne_bytes())?;
        self.put(bytes)?;
        self.put(&[0; ALIGN][..padded - bytes.len()])
    }
}
