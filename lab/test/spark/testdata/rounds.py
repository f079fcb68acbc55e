# Counts in rounds, each an action of its own with a shuffle of PARTS map tasks that take
# SECONDS each, until the file STOP is there. Prints nothing: what is looked at is how it runs.
import os
import sys
import time
from operator import add

from pyspark import SparkConf, SparkContext

stop, parts, seconds = sys.argv[1], int(sys.argv[2]), float(sys.argv[3])


def part(numbers):
    time.sleep(seconds)
    return [(n % 3, 1) for n in numbers]


sc = SparkContext(conf=SparkConf())
numbers = sc.parallelize(range(10 * parts), parts)
while not os.path.exists(stop):
    numbers.mapPartitions(part).reduceByKey(add, 2).collect()
    time.sleep(0.5)
sc.stop()
