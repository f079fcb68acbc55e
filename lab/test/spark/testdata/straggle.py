# Counts PARTS partitions of ten numbers each, a map task of SECONDS each, of which those that STRAGGLERS names (1,19) sleep
# for SLOW seconds in their first attempt. Prints a line PARTIAL: how many partitions the count is made from, of how many, how
# long it took, and what the hook says was kept.
import json
import sys
import time
from operator import add

from pyspark import SparkConf, SparkContext, TaskContext

parts, seconds, slow = int(sys.argv[1]), float(sys.argv[2]), float(sys.argv[3])
stragglers = [int(i) for i in sys.argv[4].split(",")]


def part(index, numbers):
    straggles = index in stragglers and TaskContext.get().attemptNumber() == 0
    time.sleep(slow if straggles else seconds)
    return [(n % 3, 1) for n in numbers]


sc = SparkContext(conf=SparkConf())
began = time.time()
counts = sc.parallelize(range(10 * parts), parts).mapPartitionsWithIndex(part).reduceByKey(add, 2)
found = sum(n for _, n in counts.collect())
took = time.time() - began
try:
    kept = sc._jvm.headroom.spark.Headroom.kept(sc._jsc).get(0).kept()
except TypeError:
    kept = parts
print("PARTIAL " + json.dumps({"done": found / 10, "kept": kept, "total": parts, "seconds": took}))
sc.stop()
