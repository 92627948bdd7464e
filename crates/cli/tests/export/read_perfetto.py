"""Reads a trace with Perfetto's own definitions, checks the format's rules, and prints what it holds as JSON."""

import collections
import json
import sys

from perfetto.protos.perfetto.trace import perfetto_trace_pb2 as definitions

CLEARED = 1
NEEDS_STATE = 2
KINDS = ["event_names", "function_names", "source_paths", "mapping_paths", "build_ids", "mappings", "frames", "callstacks"]


class Sequence:
    """The state of a packet sequence."""

    def __init__(self):
        self.interned = {kind: {} for kind in KINDS}
        self.defaults = None


def main():
    with open(sys.argv[1], "rb") as file:
        content = file.read()
    trace = definitions.Trace()
    trace.ParseFromString(content)
    trace.DiscardUnknownFields()
    assert len(trace.SerializeToString()) == len(content), "all fields are defined"
    sequences = {}
    tracks = {}
    processes = {}
    threads = {}
    clocks = None
    samples = []
    slices = []
    instants = []
    open_slices = collections.defaultdict(list)
    counters = collections.defaultdict(int)
    before = 0
    described = set()
    for packet in trace.packet:
        if packet.HasField("clock_snapshot"):
            # Several files may be one, and each begins with its clock.
            described = set()
            before = 0
        assert packet.trusted_packet_sequence_id, packet
        if packet.HasField("clock_snapshot"):
            assert not clocks or clocks.primary_trace_clock == packet.clock_snapshot.primary_trace_clock
            clocks = packet.clock_snapshot
        if packet.HasField("track_descriptor"):
            track = packet.track_descriptor
            assert track.uuid and track.uuid not in described, "a track is described once in a file"
            described.add(track.uuid)
            tracks[track.uuid] = track
            if track.HasField("process"):
                processes[track.process.pid] = track.process.process_name
            if track.HasField("thread"):
                parent = tracks[track.parent_uuid]
                assert parent.process.pid == track.thread.pid
                threads[track.thread.tid] = track.thread.thread_name
        if packet.sequence_flags & CLEARED:
            assert packet.trusted_packet_sequence_id not in sequences
            sequence = sequences[packet.trusted_packet_sequence_id] = Sequence()
            sequence.defaults = packet.trace_packet_defaults
        if not packet.HasField("perf_sample") and not packet.HasField("track_event"):
            continue
        assert packet.sequence_flags & NEEDS_STATE
        sequence = sequences[packet.trusted_packet_sequence_id]
        interned = sequence.interned
        for kind in KINDS:
            for entry in getattr(packet.interned_data, kind):
                assert entry.iid and entry.iid not in interned[kind], f"{kind} {entry.iid} twice"
                interned[kind][entry.iid] = entry
        assert packet.timestamp >= before, "events are in the order of time"
        before = packet.timestamp
        if packet.HasField("track_event"):
            event = packet.track_event
            track = tracks[event.track_uuid]
            thread = track if track.HasField("thread") else tracks[track.parent_uuid]
            notes = {note.name: note.string_value for note in event.debug_annotations}
            if event.type == event.TYPE_SLICE_BEGIN:
                slice = {
                    "name": interned["event_names"][event.name_iid].name,
                    "pid": thread.thread.pid,
                    "tid": thread.thread.tid,
                    "clock": sequence.defaults.timestamp_clock_id,
                    "track": track.name,
                    "begin": packet.timestamp,
                    "end": None,
                    "notes": notes,
                    "around": [around["name"] for around in open_slices[event.track_uuid]],
                }
                open_slices[event.track_uuid].append(slice)
                slices.append(slice)
            elif event.type == event.TYPE_SLICE_END:
                slice = open_slices[event.track_uuid].pop()
                slice["end"] = packet.timestamp
                slice["notes"].update(notes)
            else:
                assert event.type == event.TYPE_INSTANT and event.name
                instants.append({"name": event.name, "tid": thread.thread.tid, "notes": notes})
            continue
        timebase = sequence.defaults.perf_sample_defaults.timebase
        sample = packet.perf_sample
        assert sample.pid in processes and sample.tid in threads
        place = (timebase.name, sample.cpu)
        weight = sample.timebase_count - counters[place]
        counters[place] = sample.timebase_count
        frames = []
        for frame in interned["callstacks"][sample.callstack_iid].frame_ids:
            frame = interned["frames"][frame]
            mapping = interned["mappings"][frame.mapping_id]
            path = [interned["mapping_paths"][part].str.decode() for part in mapping.path_string_ids]
            build_id = mapping.build_id and interned["build_ids"][mapping.build_id].str.hex()
            source = frame.source_path_iid and interned["source_paths"][frame.source_path_iid].str.decode()
            frames.append(
                {
                    "name": interned["function_names"][frame.function_name_id].str.decode(),
                    "module": "/".join(path),
                    "build_id": build_id or None,
                    "file": source or None,
                    "line": frame.line_number,
                    "address": frame.rel_pc,
                    "inside": mapping.exact_offset <= frame.rel_pc < mapping.exact_offset + mapping.end - mapping.start,
                }
            )
        samples.append(
            {
                "event": timebase.name,
                "clock": sequence.defaults.timestamp_clock_id,
                "time": packet.timestamp,
                "pid": sample.pid,
                "tid": sample.tid,
                "cpu": sample.cpu,
                "mode": sample.cpu_mode,
                "weight": weight,
                # The innermost function is last.
                "frames": frames,
            }
        )
    result = {"processes": processes, "threads": threads, "samples": samples, "slices": slices, "instants": instants}
    if clocks is not None:
        result["primary_clock"] = clocks.primary_trace_clock
        result["clocks"] = {clock.clock_id: clock.timestamp for clock in clocks.clocks}
    json.dump(result, sys.stdout)


main()
