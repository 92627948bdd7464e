"""Answers SQL over a store with DuckDB: python3 duckdb_rows.py STORE SQL < VIEWS. Prints rows as JSON."""

import json
import sys

import duckdb

store, sql = sys.argv[1:]
connection = duckdb.connect()
connection.sql(f"CREATE VIEW store_profiles AS SELECT * FROM read_parquet('{store}/profiles/*.parquet')")
TABLES = ["samples", "stacks", "functions", "modules", "mappings", "windows", "window_totals", "calls", "call_estimates"]
for table in TABLES:
    connection.sql(
        f"CREATE VIEW store_{table} AS SELECT * FROM read_parquet('{store}/{table}/**/*.parquet', "
        "hive_partitioning = true, hive_types_autocast = false)"
    )
for view in sys.stdin.read().split(";\n"):
    if view.strip():
        connection.sql(view)
answer = connection.sql(sql)
print(json.dumps([dict(zip(answer.columns, row)) for row in answer.fetchall()]))
