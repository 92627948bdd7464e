//! The unit of an event's weights.

use crate::columns::weight_unit;
use dioptra_profile::EventProfile;
use dioptra_tables::Unit;

/// Returns the unit of an event's weights; `None` where a sample does not state for how many events it stands.
pub fn unit_of(event: &EventProfile) -> Option<Unit> {
    event.weighs_events().then(|| weight_unit(event))
}
