// Claims, on Spark's own optimizer: aggregations of one input and inner joins may be of a sample; for what could invent rows, or
// lose some for good, the reason is named; a plan of 10,000 operators is judged.
package headroom.spark;

import static org.junit.jupiter.api.Assertions.assertEquals;

import java.util.Arrays;
import java.util.List;
import org.apache.spark.sql.Dataset;
import org.apache.spark.sql.Row;
import org.apache.spark.sql.SparkSession;
import org.apache.spark.sql.catalyst.plans.logical.Distinct;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.junit.jupiter.api.Test;

class QueryTest {
  private static final List<String> CASES = Arrays.asList(
      "select count(*) from a|null",
      "select k, sum(v) from a group by k order by 2 desc limit 3|null",
      "select count(distinct k) from a|null",
      "select a.k, count(*) from a join a b on a.k = b.k group by a.k|null",
      "select a.v, b.v from a join b on a.k = b.k|null",
      "select k, count(*) from a where v > 3 group by k having k > 2|null",
      "select k, count(*) c from a group by k having c < 2|a condition on an aggregate",
      "select count(*) from (select * from a limit 5)|a limit below an aggregation",
      "select * from a left join b on a.k = b.k|a join of type LeftOuter",
      "select * from a full join b on a.k = b.k|a join of type FullOuter",
      "select * from a left anti join b on a.k = b.k|a join of type LeftAnti",
      "select * from a left semi join b on a.k = b.k|a join of type LeftSemi",
      "select k from a except select k from b|a join of type LeftAnti",
      "select k from a except all select k from b|a condition on an aggregate",
      "select k from a union all select k from b|the operator Union",
      "select * from a where k not in (select k from b)|a join of type LeftAnti",
      "select * from a where not exists (select 1 from b where b.k = a.k)|a join of type LeftAnti",
      "select count(*) from a where v > (select avg(v) from b)|a subquery",
      "select * from (select k, row_number() over (partition by k order by v) n from a) where n = 1|the operator Window",
      "select /*+ repartition(4) */ * from a|it moves rows and aggregates none",
      "select * from a order by v|it moves rows and aggregates none",
      "select count(*) from c|it reads a cached table");

  @Test
  void queries() throws Exception {
    SparkSession spark = SparkSession.builder().master("local[1]").config("spark.ui.enabled", "false").config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1").getOrCreate();
    try {
      // The sum keeps the optimizer from knowing that k is in order and never null.
      Dataset<Row> a = spark.range(20).selectExpr("if(id = 30, null, id % 7) as k", "id * 3 % 11 as v");
      a.createOrReplaceTempView("a");
      a.filter("v < 5").createOrReplaceTempView("b");
      a.filter("v < 4").cache().createOrReplaceTempView("c");
      for (String c : CASES) {
        String[] parts = c.split("\\|");
        assertEquals(parts[1], String.valueOf(Query.unsafe(spark.sql(parts[0]).queryExecution().optimizedPlan())), parts[0]);
      }
      LogicalPlan deep = a.queryExecution().analyzed();
      for (int i = 0; i < 10_000; i++) {
        deep = new Distinct(deep);
      }
      assertEquals("null", String.valueOf(Query.unsafe(deep)));
    } finally {
      SparkSession.clearActiveSession();
      SparkSession.clearDefaultSession();
      spark.stop();
    }
  }
}
