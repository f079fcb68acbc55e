"""Counts words twice, by RDDs and by a DataFrame: frames.py IN PARTITIONS. Prints what
each counted and what was kept of each job's shuffles."""

import json
import sys

from pyspark.sql import SparkSession
from pyspark.sql.functions import col, explode, split

spark = SparkSession.builder.getOrCreate()
sc = spark.sparkContext


def kept(since):
    """The shuffles that were registered after the first since of them."""
    told = sc._jvm.headroom.spark.Headroom.kept(sc._jsc)
    return [{"kept": k.kept(), "total": k.total(), "input": k.input()} for k in list(told)[since:]]


lines = sc.textFile(sys.argv[1], int(sys.argv[2]))
by_rdd = lines.flatMap(lambda line: line.split()).map(lambda word: (word, 1)).reduceByKey(lambda a, b: a + b, 2)
rdd_total = by_rdd.map(lambda pair: pair[1]).sum()
rdd = kept(0)

frame = spark.read.text(sys.argv[1])
counts = frame.select(explode(split(col("value"), " ")).alias("word")).where(col("word") != "").groupBy("word").count()
frame_total = counts.groupBy().sum("count").collect()[0][0]
print("FRAMES " + json.dumps({"rdd": rdd_total, "rdd_shuffles": rdd, "frame": frame_total, "frame_shuffles": kept(len(rdd))}))
spark.stop()
