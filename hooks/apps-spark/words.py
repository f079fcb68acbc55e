"""The most frequent words of StackExchange's posts, as WordPopularity counts them, from Python.

usage: spark-submit ... words.py IN PARTITIONS [TOP]

Prints one line of JSON, begun by RESULT. With dropped partitions the counts are scaled up by the hook's own Scaling,
which is reached through the driver's JVM; without the hook's jar they are exact.
"""

import json
import re
import sys

from pyspark import SparkContext

CONFIDENCE = 0.95
BODY = re.compile(r'<row .* Body="([^"]*)"?')
TAG = re.compile(r"<[^>]*>|&#?[A-Za-z0-9]+;")
WORD = re.compile(r"[^\W_]+")


def words(line):
    """The words of a row's text; none where the line is no row with a text."""
    row = BODY.search(line)
    if not row:
        return []
    html = row[1]
    for entity, text in (("&lt;", "<"), ("&gt;", ">"), ("&quot;", '"'), ("&#xA;", "\n"), ("&amp;", "&")):
        html = html.replace(entity, text)
    return WORD.findall(TAG.sub(" ", html).lower())


def count(rows):
    """Of one partition: each word's count, and the square of it."""
    counts = {}
    for row in rows:
        for word in words(row):
            counts[word] = counts.get(word, 0) + 1
    return ((word, (n, n * n)) for word, n in counts.items())


def sample(sc, partitions):
    """Kept and total partitions of the input. The application reads it in one stage."""
    hook = sc._jvm.headroom.spark.Headroom
    for k in hook.kept(sc._jsc):
        if k.input() and k.kept() < k.total():
            return k.kept(), k.total()
    return partitions, partitions


def main(path, partitions, top=100):
    sc = SparkContext(appName="word popularity in Python")
    posts = sc.textFile(path, int(partitions))
    counted = posts.mapPartitions(count).reduceByKey(lambda a, b: (a[0] + b[0], a[1] + b[1]), 10)
    first = counted.takeOrdered(int(top), key=lambda w: (-w[1][0], w[0]))
    kept, total = sample(sc, posts.getNumPartitions())
    scaling = sc._jvm.headroom.spark.Scaling
    result = []
    for word, (n, squares) in first:
        e = scaling.count(float(n), float(squares), kept, total, CONFIDENCE)
        bounds = {"count_low": e.low(), "count_high": e.high()}
        result.append({"word": word, "count": e.value(), **{k: v for k, v in bounds.items() if v == v}})
    print("RESULT " + json.dumps({"app": "words.py", "kept": kept, "total": total, "words": result}))
    sc.stop()


if __name__ == "__main__":
    if not 3 <= len(sys.argv) <= 4:
        sys.exit(__doc__)
    main(*sys.argv[1:])
