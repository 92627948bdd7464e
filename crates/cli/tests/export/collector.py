"""An OpenTelemetry collector for tests, made of gRPC's and OpenTelemetry's own packages.

    collector.py grpc|http FOLDER BEHAVIOUR...

Each request gets the next behaviour; requests behind the last one are taken. Taken requests become files of FOLDER,
`0.pb` and so on. Each request is a line of `requests.jsonl`. The port is printed on standard output. The environment
variables CERTIFICATE and KEY name files for encryption.

    ok                 take the request
    slow:SECONDS       take it, and answer later
    lost               take it, and fail as if the answer had been lost
    reject:N:TEXT      take it but for N profiles
    warn:TEXT          take it with a remark
    fail:CODE[:DELAY]  fail with this code of gRPC or HTTP, and ask to wait
"""

import json
import os
import sys
import threading
import time
from concurrent import futures
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import grpc
from google.protobuf import any_pb2, duration_pb2
from google.rpc import error_details_pb2, status_pb2
from grpc_status import rpc_status
from opentelemetry.proto.collector.profiles.v1development import profiles_service_pb2 as messages
from opentelemetry.proto.collector.profiles.v1development import profiles_service_pb2_grpc as services

PATH = "/v1development/profiles"


class Collector:
    def __init__(self, folder, behaviours):
        self.folder = folder
        self.behaviours = list(behaviours)
        self.taken = 0
        self.active = 0
        self.most_active = 0
        self.lock = threading.Lock()

    def begin(self, size, headers):
        """Notes a request, and returns its behaviour."""
        with self.lock:
            self.active += 1
            self.most_active = max(self.most_active, self.active)
            behaviour = self.behaviours.pop(0) if self.behaviours else "ok"
            line = {
                "time": time.monotonic(),
                "size": size,
                "behaviour": behaviour,
                "headers": headers,
                "active": self.most_active,
            }
            with open(os.path.join(self.folder, "requests.jsonl"), "a") as log:
                log.write(json.dumps(line) + "\n")
        return behaviour

    def take(self, content):
        with self.lock:
            path = os.path.join(self.folder, f"{self.taken}.pb")
            self.taken += 1
        with open(path, "wb") as file:
            file.write(content)

    def end(self):
        with self.lock:
            self.active -= 1


def answer_of(behaviour):
    """The answer to a request that is taken."""
    kind, _, rest = behaviour.partition(":")
    answer = messages.ExportProfilesServiceResponse()
    if kind == "reject":
        number, _, text = rest.partition(":")
        answer.partial_success.rejected_profiles = int(number)
        answer.partial_success.error_message = text
    elif kind == "warn":
        answer.partial_success.error_message = rest
    elif kind == "slow":
        time.sleep(float(rest))
    return answer


class Service(services.ProfilesServiceServicer):
    def __init__(self, collector):
        self.collector = collector

    def Export(self, request, context):
        headers = dict(context.invocation_metadata())
        headers["left"] = context.time_remaining()
        behaviour = self.collector.begin(request.ByteSize(), headers)
        try:
            kind, _, rest = behaviour.partition(":")
            if kind == "fail":
                self.fail(context, *rest.split(":"))
            answer = answer_of(behaviour)
            self.collector.take(request.SerializeToString())
            if kind == "lost":
                context.abort(grpc.StatusCode.UNAVAILABLE, "the answer was lost")
            return answer
        finally:
            self.collector.end()

    @staticmethod
    def fail(context, code, delay=None):
        code = getattr(grpc.StatusCode, code)
        # A text that a header has to encode.
        text = "no room, 100 % full: naïve\nline"
        status = status_pb2.Status(code=code.value[0], message=text)
        if delay is not None:
            duration = duration_pb2.Duration()
            duration.FromNanoseconds(int(float(delay) * 1e9))
            detail = any_pb2.Any()
            detail.Pack(error_details_pb2.RetryInfo(retry_delay=duration))
            status.details.append(detail)
        context.abort_with_status(rpc_status.to_status(status))


def handler_of(collector):
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self):
            content = self.rfile.read(int(self.headers["content-length"]))
            headers = {name.lower(): value for name, value in self.headers.items()}
            headers["path"] = self.path
            behaviour = collector.begin(len(content), headers)
            try:
                self.respond(content, behaviour)
            finally:
                collector.end()

        def respond(self, content, behaviour):
            kind, _, rest = behaviour.partition(":")
            if self.path != PATH:
                return self.send(404, status_pb2.Status(message="no such path"))
            if self.headers["content-type"] != "application/x-protobuf":
                return self.send(415, status_pb2.Status(message="no protocol buffer"))
            if kind == "fail":
                code, _, delay = rest.partition(":")
                return self.send(int(code), status_pb2.Status(message="no room"), delay)
            messages.ExportProfilesServiceRequest.FromString(content)
            answer = answer_of(behaviour)
            collector.take(content)
            if kind == "lost":
                self.close_connection = True
                self.connection.close()
                return
            self.send(200, answer)

        def send(self, code, message, delay=""):
            content = message.SerializeToString()
            self.send_response(code)
            self.send_header("content-type", "application/x-protobuf")
            self.send_header("content-length", str(len(content)))
            if delay:
                self.send_header("retry-after", delay)
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, *_):
            pass

    return Handler


def main():
    _, protocol, folder, *behaviours = sys.argv
    collector = Collector(folder, behaviours)
    if protocol == "grpc":
        # All limits are gRPC's own, such as that of 4 MiB for a message.
        server = grpc.server(futures.ThreadPoolExecutor(max_workers=8))
        services.add_ProfilesServiceServicer_to_server(Service(collector), server)
        if "KEY" in os.environ:
            with open(os.environ["KEY"], "rb") as key, open(os.environ["CERTIFICATE"], "rb") as certificate:
                credentials = grpc.ssl_server_credentials([(key.read(), certificate.read())])
            port = server.add_secure_port("127.0.0.1:0", credentials)
        else:
            port = server.add_insecure_port("127.0.0.1:0")
        server.start()
    else:
        server = ThreadingHTTPServer(("127.0.0.1", 0), handler_of(collector))
        port = server.server_address[1]
        threading.Thread(target=server.serve_forever, daemon=True).start()
    print(port, flush=True)
    # The test that started this closes the pipe.
    sys.stdin.read()
    os._exit(0)


main()
