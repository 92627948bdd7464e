"""Answers SQL over a store with a Spark cluster: python3 spark_cluster.py [--master URL] STORE SQL... < VIEWS.

Without --master it starts a standalone cluster on loopback, a master and two workers, and ends it afterwards.
Prints {"answers": [ROWS, ...], "executors": {ID: NUMBER OF TASKS}} as JSON.
"""

import argparse
import contextlib
import ctypes
import json
import os
import pathlib
import re
import signal
import subprocess
import sys
import tempfile
import time
import urllib.request

# Before Spark reads it: where servers listen.
os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"

import pyspark
from pyspark.sql import SparkSession

import spark_store

WORKERS = 2
# Seconds that a server may take to start, on a machine that others use, too.
PATIENCE = 120


PR_SET_PDEATHSIG = 1
C_LIBRARY = ctypes.CDLL(None)


def end_with_parent():
    """Asks Linux to end this process once its parent is killed, which then cannot end it."""
    C_LIBRARY.prctl(PR_SET_PDEATHSIG, signal.SIGTERM)


class Server:
    """A server of the cluster, in a group of processes of its own."""

    def __init__(self, folder, name, arguments):
        home = pathlib.Path(pyspark.__file__).parent
        self.log = pathlib.Path(folder, f"{name}.log")
        environment = {
            **os.environ,
            "SPARK_HOME": str(home),
            "SPARK_DAEMON_MEMORY": "256m",
            "SPARK_MASTER_OPTS": "-Dspark.master.rest.enabled=false",
        }
        with open(self.log, "wb") as log:
            self.process = subprocess.Popen(
                [home / "bin/spark-class", *arguments],
                cwd=folder,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
                preexec_fn=end_with_parent,
            )

    def wait_for(self, pattern):
        """Returns the text that a pattern finds in the log."""
        end = time.monotonic() + PATIENCE
        while time.monotonic() < end:
            text = self.log.read_text(errors="replace")
            if found := re.search(pattern, text):
                return found.group(1)
            if self.process.poll() is not None:
                raise SystemExit(f"Spark's server ended with {self.process.returncode}:\n{text}")
            time.sleep(0.2)
        raise SystemExit(f"Spark's server does not start within {PATIENCE} s:\n{text}")

    def end(self):
        """Ends the server and the executors that it started, which are in its group."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGTERM)
        try:
            self.process.wait(20)
        except subprocess.TimeoutExpired:
            pass
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()


@contextlib.contextmanager
def cluster():
    """Starts a master and the workers on free ports, gives the master's address, and ends them."""
    # A signal ends the servers as an error does.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    with tempfile.TemporaryDirectory(prefix="spark-") as folder, contextlib.ExitStack() as servers:

        def start(name, *arguments):
            server = Server(folder, name, arguments)
            servers.callback(server.end)
            return server

        ports = ["--host", "127.0.0.1", "--port", "0", "--webui-port", "0"]
        package = "org.apache.spark.deploy"
        master = start("master", f"{package}.master.Master", *ports)
        address = master.wait_for(r"Starting Spark master at (spark://\S+)")
        bounds = ["--cores", "1", "--memory", "512m"]
        workers = []
        for number in range(WORKERS):
            place = ["--work-dir", str(pathlib.Path(folder, f"worker-{number}"))]
            workers.append(start(f"worker-{number}", f"{package}.worker.Worker", *ports, *bounds, *place, address))
        for worker in workers:
            worker.wait_for(r"(Successfully registered with master)")
        yield address


def tasks_of_executors(spark):
    """Returns the number of tasks that each executor has completed, by Spark's REST interface."""
    context = spark.sparkContext
    address = f"{context.uiWebUrl}/api/v1/applications/{context.applicationId}/allexecutors"
    with urllib.request.urlopen(address, timeout=PATIENCE) as response:
        executors = json.load(response)
    return {executor["id"]: executor["completedTasks"] for executor in executors if executor["id"] != "driver"}


def answers(master, store, queries, views):
    """Answers queries, and counts the tasks of the executors."""
    builder = (
        SparkSession.builder.master(master)
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.ui.port", "0")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.executor.cores", "1")
        .config("spark.executor.memory", "512m")
        .config("spark.cores.max", str(WORKERS))
        # No task starts before all executors are there.
        .config("spark.scheduler.minRegisteredResourcesRatio", "1.0")
        .config("spark.scheduler.maxRegisteredResourcesWaitingTime", f"{PATIENCE}s")
    )
    spark = spark_store.configure(builder).getOrCreate()
    try:
        spark_store.register(spark, store, views)
        rows = [spark_store.rows(spark, sql) for sql in queries]
        return {"answers": rows, "executors": tasks_of_executors(spark)}
    finally:
        spark.stop()


def main():
    """Reads the command line."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--master", help="a cluster that runs, such as spark://127.0.0.1:7077")
    parser.add_argument("store")
    parser.add_argument("sql", nargs="+")
    arguments = parser.parse_args()
    views = sys.stdin.read()
    with cluster() if arguments.master is None else contextlib.nullcontext(arguments.master) as master:
        print(json.dumps(answers(master, arguments.store, arguments.sql, views)))


main()
