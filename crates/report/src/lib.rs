//! Tables as values, and their text, CSV and JSON.
