"""Reads OpenTelemetry's profiles with its own definitions, checks the format's rules, and prints the samples as JSON."""

import json
import sys

from opentelemetry.proto.collector.profiles.v1development import profiles_service_pb2 as service
from opentelemetry.proto.profiles.v1development import profiles_pb2 as definitions

TABLES = ["mapping", "location", "function", "link", "string", "attribute", "stack"]


def value_of(any_value):
    """Returns the value of an attribute, which must be set."""
    kind = any_value.WhichOneof("value")
    assert kind in ("string_value", "int_value"), kind
    return getattr(any_value, kind)


def main():
    with open(sys.argv[1], "rb") as file:
        content = file.read()
    request = service.ExportProfilesServiceRequest.FromString(content)
    request.DiscardUnknownFields()
    assert len(request.SerializeToString()) == len(content), "all fields are defined"
    # The message of files has the same fields.
    assert len(definitions.ProfilesData.FromString(content).SerializeToString()) == len(content)
    dictionary = request.dictionary
    tables = {name: getattr(dictionary, f"{name}_table") for name in TABLES}
    for name, table in tables.items():
        if name == "string":
            assert table[0] == ""
            assert len(set(table)) == len(table)
        else:
            assert table[0].ByteSize() == 0, f"the first entry of {name} is empty"
            entries = [entry.SerializeToString(deterministic=True) for entry in table]
            assert len(set(entries)) == len(entries), f"{name} has an entry twice"
    used = {name: {0} for name in TABLES}

    def entry(name, place):
        used[name].add(place)
        return tables[name][place]

    def attributes(places):
        found = {}
        for place in places:
            attribute = entry("attribute", place)
            key = entry("string", attribute.key_strindex)
            entry("string", attribute.unit_strindex)
            assert key and key not in found, f"{key} twice"
            found[key] = value_of(attribute.value)
        return found

    def value_type(value):
        return [entry("string", value.type_strindex), entry("string", value.unit_strindex)]

    def frames(stack):
        for place in entry("stack", stack).location_indices:
            assert place, "a location of a stack is set"
            location = entry("location", place)
            mapping = entry("mapping", location.mapping_index)
            path = entry("string", mapping.filename_strindex)
            build_id = attributes(mapping.attribute_indices).get("process.executable.build_id.gnu")
            kind = attributes(location.attribute_indices).get("profile.frame.type")
            assert mapping.memory_start <= location.address <= mapping.memory_limit
            for line in location.lines:
                function = entry("function", line.function_index)
                yield {
                    "name": entry("string", function.name_strindex),
                    "file": entry("string", function.filename_strindex),
                    "line": line.line,
                    "module": path,
                    "build_id": build_id,
                    "kind": kind,
                }

    [resource] = request.resource_profiles
    [scope] = resource.scope_profiles
    assert scope.scope.name == "dioptra" and scope.scope.version
    profiles = []
    for profile in scope.profiles:
        samples = []
        seen = set()
        end = profile.time_unix_nano + profile.duration_nano
        for sample in profile.samples:
            identity = (sample.stack_index, tuple(sorted(sample.attribute_indices)), sample.link_index)
            assert identity not in seen, "samples of one identity are one"
            seen.add(identity)
            times = list(sample.timestamps_unix_nano)
            assert sample.values and (not times or len(times) == len(sample.values))
            assert all(profile.time_unix_nano <= time < end for time in times)
            samples.append(
                {
                    "values": list(sample.values),
                    "times": times,
                    "attributes": attributes(sample.attribute_indices),
                    # The innermost function is first.
                    "frames": list(frames(sample.stack_index)),
                }
            )
        assert len(profile.profile_id) == 16
        profiles.append(
            {
                "id": profile.profile_id.hex(),
                "type": value_type(profile.sample_type),
                "period_type": value_type(profile.period_type),
                "period": profile.period,
                "start": profile.time_unix_nano,
                "samples": samples,
            }
        )
    for name, places in used.items():
        assert len(places) == len(tables[name]), f"an entry of {name} has no use"
    resource = {attribute.key: value_of(attribute.value) for attribute in resource.resource.attributes}
    json.dump({"resource": resource, "profiles": profiles}, sys.stdout)


main()
