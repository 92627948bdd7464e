"""Answers SQL over a store with Spark: python3 spark_rows.py STORE SQL < VIEWS. Prints rows as JSON."""

import json
import sys

from pyspark.sql import SparkSession

store, sql = sys.argv[1:]
spark = (
    SparkSession.builder.master("local[2]")
    .config("spark.sql.sources.partitionColumnTypeInference.enabled", "false")
    .config("spark.sql.shuffle.partitions", "2")
    .config("spark.ui.enabled", "false")
    .getOrCreate()
)
TABLES = ["samples", "stacks", "functions", "modules", "mappings", "windows", "window_totals", "calls", "call_estimates"]
for table in ["profiles", *TABLES]:
    spark.read.parquet(f"{store}/{table}").createOrReplaceTempView(f"store_{table}")
for view in sys.stdin.read().split(";\n"):
    if view.strip():
        spark.sql(view.replace("CREATE VIEW", "CREATE TEMPORARY VIEW", 1))
print(json.dumps([row.asDict() for row in spark.sql(sql).collect()]))
