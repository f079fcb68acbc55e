package papers

import (
	"context"
	"errors"

	"headroom/internal/cli"
	"headroom/lab/cluster"
	"headroom/lab/hadoop"
	"headroom/lab/spark"
)

// Hadoop returns Hadoop's jars, fetched where they are missing.
func (r *Real) Hadoop(ctx context.Context) (hadoop.Jars, error) {
	r.Note("looking for Hadoop's jars")
	jars, err := hadoop.Fetch(ctx, "")
	if errors.Is(err, hadoop.ErrUnavailable) {
		return jars, r.unavailable(err)
	}
	return jars, err
}

// Spark returns a release of Spark, fetched where it is missing.
func (r *Real) Spark(ctx context.Context) (spark.Release, error) {
	release, err := spark.Fetch(ctx, spark.Version, "", func(text string) { r.Note("%s", text) })
	if errors.Is(err, spark.ErrUnavailable) {
		return release, r.unavailable(err)
	}
	return release, err
}

// HadoopNodes are the site's nodes, each with a NodeManager that offers so many containers of a unit of memory, MiB.
func (r *Real) HadoopNodes(slots, unit int) (nodes []hadoop.Node) {
	for _, name := range r.Site.Nodes() {
		nodes = append(nodes, hadoop.Node{Name: name, VCores: slots, MemoryMB: slots * unit, Wrap: r.on(name)})
	}
	return nodes
}

// SparkNodes are the site's nodes, each with a Worker that offers so many cores and so much memory, MiB; 0: as spark.Node has it.
func (r *Real) SparkNodes(cores, memory int) (nodes []spark.Node) {
	for _, name := range r.Site.Nodes() {
		nodes = append(nodes, spark.Node{Name: name, Cores: cores, MemoryMB: memory, Wrap: r.on(name)})
	}
	return nodes
}

// on lets a process run on a node of the site.
func (r *Real) on(node string) func(argv []string) []string {
	return cluster.OnNode(r.Program("powerlab"), r.Site.NodeDir(), node)
}

func (r *Real) unavailable(err error) error {
	return cli.Failed("install the missing programs (sh lab/test/install.sh), or leave out --engine: the simulation does not need them", "--engine %s: %w", r.engine, err)
}
