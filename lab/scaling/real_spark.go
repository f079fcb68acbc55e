package scaling

import (
	"context"
	"errors"
	"io"
	"strconv"

	"headroom/lab/spark"
)

const (
	jarSparkApps = "headroom-spark-apps.jar"
	mainScale    = "headroom.apps.spark.Scale"
)

// onSpark is a standalone Spark with one Worker of one core on each node.
type onSpark struct {
	*realSite

	cluster *spark.Cluster
}

func (o *realOptions) startSpark(ctx context.Context, progress io.Writer) (engine, error) {
	s, err := o.site(progress, jarSparkApps)
	if err != nil {
		return nil, err
	}
	release, err := s.Spark(ctx)
	if err != nil {
		return nil, s.fail(err)
	}
	var nodes []spark.Node
	for _, name := range s.names() {
		nodes = append(nodes, spark.Node{Name: name, Cores: 1, Wrap: s.on(name)})
	}
	c, err := spark.Start(ctx, spark.Config{Dir: s.Path("engine"), Release: release, Nodes: nodes})
	if err != nil {
		return nil, s.fail(err)
	}
	return &onSpark{realSite: s, cluster: c}, nil
}

func (s *onSpark) Close() error {
	return errors.Join(s.cluster.Close(), s.end())
}

func (s *onSpark) run(ctx context.Context, p program, on cell) (run, error) {
	size := strconv.Itoa(on.size)
	r, err := s.cluster.Run(ctx, spark.Job{
		Name: p.name, Application: s.Program(jarSparkApps), Main: mainScale, Args: []string{p.name, size, strconv.Itoa(p.rows)},
		Conf: map[string]string{
			"spark.cores.max": strconv.Itoa(on.units), "spark.executor.cores": "1", "spark.default.parallelism": size,
			"spark.scheduler.minRegisteredResourcesRatio": "1", "spark.scheduler.maxRegisteredResourcesWaitingTime": "300s", "spark.locality.wait": "0s",
		},
	})
	if err != nil {
		return run{}, err
	}
	return readSpark(r.Log.Path)
}
