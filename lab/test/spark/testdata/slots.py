# Runs LOW tasks of low priority of SECONDS each, and beside them twice HIGH tasks of high priority: once when some of the others have
# ended, and once when the file GO is there, which it asks for by making the file READY. Prints what it has summed up, and how many
# tasks of low priority were left when those of high priority had ended.
import json
import os
import sys
import time

from pyspark import InheritableThread, SparkConf, SparkContext

ready, go, low, high, seconds = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4]), float(sys.argv[5])
sc = SparkContext(conf=SparkConf())


def part(numbers):
    time.sleep(seconds)
    return [sum(numbers)]


def run(priority, tasks):
    sc.setJobGroup(priority, priority)
    sc.setLocalProperty("spark.headroom.priority", priority)
    return sum(sc.parallelize(range(100 * tasks), tasks).mapPartitions(part).collect())


def left():
    done = 0
    for job in sc.statusTracker().getJobIdsForGroup("low"):
        for stage in sc.statusTracker().getJobInfo(job).stageIds:
            info = sc.statusTracker().getStageInfo(stage)
            done += info.numCompletedTasks if info else 0
    return low - done


found = {"low": 0, "high": [], "left": []}


def lows():
    found["low"] = run("low", low)


thread = InheritableThread(target=lows)
thread.start()
while left() > low - 3:
    time.sleep(0.05)
for again in (False, True):
    if again:
        open(ready, "w").close()
        while not os.path.exists(go):
            time.sleep(0.05)
    found["high"].append(run("high", high))
    found["left"].append(left())
thread.join()
print("RESULT " + json.dumps(found), flush=True)
sc.stop()
