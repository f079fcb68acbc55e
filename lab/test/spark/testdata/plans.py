# Runs plans with the hook at theta 0.25 over 80 numbers in 4 partitions, and prints one line PLANS with what each gave: plans.py DIR.
# Of a sample 60 numbers are left. What is exact says why: the last action's reason is printed with it.
import json
import sys
import time

from pyspark.sql import SparkSession, Window
from pyspark.sql import functions as F
from pyspark.streaming import StreamingContext

N, PARTS = 80, 4
folder = sys.argv[1]
spark = SparkSession.builder.getOrCreate()
sc = spark.sparkContext
sc.setCheckpointDir(folder + "/checkpoints")
hook = sc._jvm.headroom.spark.Headroom
found = {}


def last():
    return hook.actions(sc._jsc)[-1]


def run(name, action):
    got = action()
    found[name] = {"got": got, "thinned": last().thinned(), "why": last().exact()}


def rdd(parts=PARTS):
    return sc.parallelize(range(N), parts)


def keyed(parts=PARTS):
    return rdd(parts).map(lambda x: (x, 1))


def frame(parts=PARTS):
    return spark.range(0, N, 1, parts).selectExpr("id * 3 as id")  # a range has a partitioning that needs no shuffle


def add(a, b):
    return a + b


run("rdd: keys", lambda: keyed().reduceByKey(add, 2).count())
run("rdd: subtract", lambda: rdd().subtract(rdd(3)).count())
run("rdd: missing in a left outer join", lambda: keyed().leftOuterJoin(keyed(3), 2).filter(lambda t: t[1][1] is None).count())
run("rdd: zip", lambda: keyed().reduceByKey(add, 2).zip(keyed().reduceByKey(add, 2)).count())
run("rdd: cached input", lambda: keyed().cache().reduceByKey(add, 2).count())
named = rdd()
hook.thin(named._jrdd)
other = keyed(3).reduceByKey(add, 2)
run("rdd: inner join of a named input", lambda: named.map(lambda x: (x, 2)).partitionBy(2).join(other, 2).count())


def rounds():
    r, counts = keyed(), []
    for i in range(3):
        r = r.reduceByKey(add, 2 + i).map(lambda t: t)
        r.checkpoint()
        counts.append(r.count())
    z = r.map(lambda t: (t[0] % 3, 1)).reduceByKey(add, 2)
    counts.append(round(z.values().sum() * hook.factor(hook.kept(z._jrdd.rdd()))))
    return counts


run("rdd: three checkpoints, and the estimate", rounds)

for adaptive in ("true", "false"):
    spark.conf.set("spark.sql.adaptive.enabled", adaptive)
    spark.conf.set("spark.sql.autoBroadcastJoinThreshold", "-1")

    def sql(name, action, adaptive=adaptive):
        run("sql, adaptive " + adaptive + ": " + name, action)

    sql("count", lambda: frame().count())
    sql("groups", lambda: len(frame().groupBy("id").count().collect()))
    sql("inner join with itself", lambda: len(frame().join(frame().withColumn("y", F.lit(1)), "id").collect()))
    sql("anti join", lambda: len(frame().join(frame(3), "id", "left_anti").collect()))
    sql("outer join", lambda: frame().join(frame(3).withColumn("y", F.lit(1)), "id", "left_outer").filter("y is null").count())
    sql("except all", lambda: len(frame().exceptAll(frame(3)).collect()))
    frame().createOrReplaceTempView("a")
    frame(3).createOrReplaceTempView("b")
    sql("not in", lambda: spark.sql("select * from a where id not in (select id from b)").count())
    sql("subquery", lambda: spark.sql("select count(*) from a where id < (select count(*) from b)").collect()[0][0])
    sql("having", lambda: len(frame().groupBy((F.col("id") % 5).alias("g")).count().filter("count < 16").collect()))
    sql("window", lambda: frame().withColumn("n", F.row_number().over(Window.partitionBy(F.col("id") % 5).orderBy("id"))).filter("n = 1").count())
    sql("written", lambda: (frame().repartition(4).write.mode("overwrite").parquet(folder + "/t"), len(spark.read.parquet(folder + "/t").collect()))[1])
    sql("rdd of an anti join", lambda: frame().join(frame(3), "id", "left_anti").rdd.count())
    sc.setLocalProperty("spark.headroom.theta", "0")
    sql("local property 0", lambda: frame().count())
    sc.setLocalProperty("spark.headroom.theta", "0.5")
    sql("local property 0.5", lambda: frame().count())
    sc.setLocalProperty("spark.headroom.theta", None)
    sql("no local property", lambda: frame().count())

frame().selectExpr("cast(id as string) as value").write.text(folder + "/text")
query = (spark.readStream.text(folder + "/text").groupBy("value").count()
         .writeStream.outputMode("complete").format("memory").queryName("q").trigger(availableNow=True).start())
query.awaitTermination()
found["structured streaming: rows"] = {"got": sum(r["count"] for r in spark.table("q").collect()), "thinned": False, "why": ""}

batches = StreamingContext(sc, 1)
seen = []


def batch(r):  # batches without input follow, whose actions have no shuffle
    got = r.count()
    seen.append((got, last().thinned(), last().exact()))


batches.queueStream([rdd(), rdd()]).map(lambda x: (x, 1)).reduceByKey(add, 2).foreachRDD(batch)
batches.start()
while len(seen) < 2:
    time.sleep(0.2)
batches.stop(False, True)
found["streaming: batches"] = {"got": [s[0] for s in seen[:2]], "thinned": seen[0][1] or seen[1][1], "why": seen[1][2]}
print("PLANS " + json.dumps(found))
spark.stop()
