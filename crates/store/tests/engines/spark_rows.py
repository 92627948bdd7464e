"""Answers SQL over a store with Spark: python3 spark_rows.py STORE SQL < VIEWS. Prints rows as JSON."""

import json
import sys

from pyspark.sql import SparkSession

import spark_store

store, sql = sys.argv[1:]
builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
spark = spark_store.configure(builder).getOrCreate()
spark_store.register(spark, store, sys.stdin.read())
print(json.dumps(spark_store.rows(spark, sql)))
