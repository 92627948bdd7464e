"""Answers questions with Spark: python3 spark_answers.py STORE VIEWS QUESTIONS RUNS [MASTER].

VIEWS and QUESTIONS are files: the SQL of the views, and a JSON array of objects with `statements` and `value`, the column to
sum. Without MASTER, a standalone master and two workers of one core each run on loopback until the end. Prints JSON: for each
question its runs, with the CPU time of all of Spark's processes, and the rows and the sum of the last answer.
"""

import json
import os
import socket
import subprocess
import sys
import tempfile
import time

import pyspark
from pyspark.sql import SparkSession

store, views, questions, runs, *given = sys.argv[1:]
own = []
work = tempfile.TemporaryDirectory()


def start(*words):
    spark_class = os.path.join(os.path.dirname(pyspark.__file__), "bin", "spark-class")
    own.append(subprocess.Popen([spark_class, *words], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL))


def free_port():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return free.getsockname()[1]


def wait_for(port):
    for _ in range(600):
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.1)
    sys.exit("Spark's master does not start")


def family():
    """Returns the ids of this process and of all below it."""
    parents = {}
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                with open(f"/proc/{name}/stat") as file:
                    parents[int(name)] = int(file.read().rsplit(")", 1)[1].split()[1])
            except OSError:
                pass
    found = {os.getpid()}
    while True:
        more = {pid for pid, parent in parents.items() if parent in found} - found
        if not more:
            return found
        found |= more


def cpu():
    """Returns the user and system seconds of all of Spark's processes that are alive."""
    ticks = 0
    for pid in family():
        try:
            with open(f"/proc/{pid}/stat") as file:
                fields = file.read().rsplit(")", 1)[1].split()
                ticks += int(fields[11]) + int(fields[12])
        except OSError:
            pass
    return ticks / os.sysconf("SC_CLK_TCK")


def peak():
    """Returns the sum of the processes' largest resident sets, in bytes."""
    kilobytes = 0
    for pid in family():
        try:
            with open(f"/proc/{pid}/status") as file:
                kilobytes += sum(int(line.split()[1]) for line in file if line.startswith("VmHWM:"))
        except OSError:
            pass
    return kilobytes * 1024


os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
os.environ["SPARK_DAEMON_MEMORY"] = "256m"
os.environ["SPARK_MASTER_OPTS"] = "-Dspark.master.rest.enabled=false"
master = given[0] if given else f"spark://127.0.0.1:{free_port()}"
try:
    if not given:
        port = master.rsplit(":", 1)[1]
        start("org.apache.spark.deploy.master.Master", "--host", "127.0.0.1", "--port", port, "--webui-port", "0")
        wait_for(int(port))
        for _ in range(2):
            start(
                "org.apache.spark.deploy.worker.Worker", "--host", "127.0.0.1", "--webui-port", "0", "--cores", "1",
                "--memory", "3g", "--work-dir", work.name, master,
            )
    spark = (
        SparkSession.builder.master(master)
        .config("spark.sql.sources.partitionColumnTypeInference.enabled", "false")
        .config("spark.sql.shuffle.partitions", "8")
        .config("spark.ui.enabled", "false")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.memory", "2g")
        .config("spark.executor.memory", "3g")
        .config("spark.executor.cores", "1")
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("ERROR")
    for table in ["profiles", "samples", "stacks"]:
        spark.read.parquet(f"{store}/{table}").createOrReplaceTempView(f"store_{table}")
    with open(views) as file:
        for view in file.read().split(";\n"):
            if view.startswith(("CREATE VIEW profiles ", "CREATE VIEW samples ", "CREATE VIEW stacks ")):
                spark.sql(view.replace("CREATE VIEW", "CREATE TEMPORARY VIEW", 1))
    answers = []
    with open(questions) as file:
        asked = json.load(file)
    for question in asked:
        answer = {"runs": []}
        try:
            for _ in range(int(runs)):
                begin, before = time.monotonic(), cpu()
                for statement in question["statements"]:
                    # All rows of the answer are made and thrown away.
                    spark.sql(statement).write.format("noop").mode("overwrite").save()
                answer["runs"].append({"wall_s": time.monotonic() - begin, "cpu_s": cpu() - before})
            last = question["statements"][-1]
            row = spark.sql(f"SELECT count(*), CAST(sum({question['value']}) AS DOUBLE) FROM ({last}) t").collect()[0]
            answer["rows"], answer["sum"] = row[0], row[1] or 0.0
        except Exception as error:  # The other questions go on.
            answer["did_not_finish"] = str(error)[:300]
        answer["peak_bytes"] = peak()
        answers.append(answer)
    print(json.dumps({"version": spark.version, "answers": answers}))
    spark.stop()
finally:
    for process in reversed(own):
        process.terminate()
    for process in own:
        process.wait()
    work.cleanup()
