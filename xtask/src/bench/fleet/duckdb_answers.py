"""Answers a question with DuckDB: python3 duckdb_answers.py STORE VIEWS QUESTION.

VIEWS and QUESTION are files: the SQL of the views, and JSON with `statements` and `value`, the column to sum.
Prints the number of rows of the last answer and the sum of that column.
"""

import json
import sys

import duckdb

store, views, question = sys.argv[1:]
connection = duckdb.connect()
connection.sql(f"CREATE VIEW store_profiles AS SELECT * FROM read_parquet('{store}/profiles/*.parquet')")
for table in ["samples", "stacks"]:
    connection.sql(
        f"CREATE VIEW store_{table} AS SELECT * FROM read_parquet('{store}/{table}/**/*.parquet', "
        "hive_partitioning = true, hive_types_autocast = false)"
    )
with open(views) as file:
    for view in file.read().split(";\n"):
        if view.startswith(("CREATE VIEW profiles ", "CREATE VIEW samples ", "CREATE VIEW stacks ")):
            connection.sql(view)
with open(question) as file:
    asked = json.load(file)
for statement in asked["statements"]:
    # All rows of the answer are made, but not turned into objects of Python.
    connection.execute(f"CREATE OR REPLACE TEMP TABLE answer AS {statement}")
rows = connection.execute(f"SELECT count(*), sum({asked['value']}) FROM answer").fetchone()
print(json.dumps([rows[0], float(rows[1] or 0)]))
