//! Time off the CPU in timelines.

use crate::client::Running;
use crate::records::{ID, Records, attr, event, two, word};
use dioptra_perfrecords::SampleType;
use serde_json::json;

#[test]
fn lanes_say_when_threads_were_off_the_cpu() {
    let mut records = Records {
        time: 999,
        ..Records::default()
    };
    let sample = |records: &mut Records, tid| records.sample_on(ID, (5, tid), 0x10, 1, 0, &[]);
    sample(&mut records, 7);
    sample(&mut records, 8);
    for (misc, time) in [(1 << 13, 1010), (0, 1025), (1 << 13, 1095)] {
        let ids = [two(5, 7), word(time), two(0, 0), word(ID)].concat();
        records.push(14, misc, &[&ids]);
    }
    records.time = 1098;
    sample(&mut records, 8);
    let events = [event("cpu-clock", attr(SampleType::CPU), &[ID])];
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("perf.data");
    std::fs::write(&file, records.file(&events)).expect("the recording");
    let web = Running::start(&[&file], None);
    let timeline = web.ask("/api/timeline?bins=10&span=0..100");
    let rows = timeline["rows"].as_array().expect("rows");
    let row = |tid: u32| {
        let row = rows.iter().find(|row| row["number"] == tid);
        row.expect("the thread").clone()
    };
    assert_eq!(row(7)["off"], json!([0, 1000, 500, 0, 0, 0, 0, 0, 0, 500]));
    assert!(row(8).get("off").is_none(), "nothing is known of it");
    for rows in ["process", "all", "cpu"] {
        let timeline = web.ask(&format!("/api/timeline?rows={rows}"));
        assert!(timeline["rows"][0].get("off").is_none(), "{rows}");
    }
}
