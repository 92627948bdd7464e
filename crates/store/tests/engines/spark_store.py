"""The tables and views of a store, in Spark."""

from decimal import Decimal

TABLES = [
    "profiles",
    "samples",
    "stacks",
    "functions",
    "modules",
    "mappings",
    "windows",
    "window_totals",
    "calls",
    "call_estimates",
]


def configure(builder):
    """Sets what every session over a store needs: the partitions are texts. Small stores need few tasks."""
    return builder.config("spark.sql.sources.partitionColumnTypeInference.enabled", "false").config(
        "spark.sql.shuffle.partitions", "2"
    )


def register(spark, store, views):
    """Makes the tables of a store, and the views of `dioptra query --show-views`."""
    for table in TABLES:
        spark.read.parquet(f"{store}/{table}").createOrReplaceTempView(f"store_{table}")
    for view in views.split(";\n"):
        if view.strip():
            spark.sql(view.replace("CREATE VIEW", "CREATE TEMPORARY VIEW", 1))


def rows(spark, sql):
    """Returns the rows that answer SQL, as dictionaries. Spark's decimal numbers become floating-point ones."""
    return [
        {name: float(value) if isinstance(value, Decimal) else value for name, value in row.asDict().items()}
        for row in spark.sql(sql).collect()
    ]
