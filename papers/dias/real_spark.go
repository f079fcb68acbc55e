package dias

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"headroom/internal/cli"
	"headroom/internal/rpc"
	"headroom/papers"
	"headroom/rig"
	"headroom/spark"
)

// Figs. 4 and 6 on an unmodified Spark: its master, a worker on each emulated node with powerd,
// and word popularity over made-up posts, whose input stage the hook thins.

// The shape of a run on Spark.
const (
	sparkCores, sparkBytes = 2, 9 << 20
	// sparkTop is how many words are compared, sparkAsked how many are asked for: a frequent
	// word may seem less so.
	sparkTop, sparkAsked = 100, 400
)

// onSpark is the engine spark.
func onSpark(ctx context.Context, o *options, progress io.Writer) (targets []papers.Target, err error) {
	r := &realRun{o: o, progress: progress, via: rpc.NewClient()}
	if err := r.findPrograms("spark", "headroom-spark.jar", "headroom-spark-apps.jar"); err != nil {
		return nil, err
	}
	defer func() { _ = os.RemoveAll(r.dir) }()
	release, err := spark.Fetch(ctx, spark.Version, "", func(text string) { r.note("%s", text) })
	if errors.Is(err, spark.ErrUnavailable) {
		return nil, cli.Failed("install what is missing, or leave --engine away: the simulation needs none of it", "--engine spark: %w", err)
	}
	if err != nil {
		return nil, err
	}
	points, err := r.onCluster(ctx, release)
	if err != nil {
		return nil, err
	}
	if o.out != "" {
		files := papers.Files{"ratios.csv": func(w io.Writer) error { return writeRatios(w, points) }}
		if err := files.Write(o.out); err != nil {
			return nil, badOut(err)
		}
	}
	return ratioTargets(points), nil
}

// onCluster starts nodes and Spark, and asks for all ratios.
func (r *realRun) onCluster(ctx context.Context, release spark.Release) (points []ratioPoint, err error) {
	if r.site, err = rig.NewSite(rig.Config{Dir: r.path("site"), Bin: r.bin, Coordinators: 1, Nodes: realNodes, Weight: realWeight}); err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, r.site.Close(), r.keepLogs("site")) }()
	starting, cancel := context.WithTimeout(ctx, realPatience)
	defer cancel()
	r.note("starting a coordinator, %d nodes and Spark %s", realNodes, spark.Version)
	if err := r.site.Start(); err != nil {
		return nil, err
	}
	if err := r.await(starting, "the nodes hold no lease", r.capped(1)); err != nil {
		return nil, err
	}
	config := spark.Config{Dir: r.path("spark"), Release: release, Plugin: filepath.Join(r.bin, "headroom-spark.jar")}
	for _, name := range r.site.Nodes() {
		config.Nodes = append(config.Nodes, spark.Node{Name: name, Cores: sparkCores, Wrap: spark.OnNode(filepath.Join(r.bin, "powerlab"), r.site.NodeDir(), name)})
	}
	cluster, err := spark.Start(starting, config)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, cluster.Close()) }()
	return r.popularity(ctx, cluster)
}

// popularity runs the application at all ratios.
func (r *realRun) popularity(ctx context.Context, cluster *spark.Cluster) (points []ratioPoint, err error) {
	in := r.path("Posts.xml")
	if _, err := (spark.Posts{Bytes: sparkBytes, Topical: 0.3, Seed: r.o.seed}).Write(in); err != nil {
		return nil, err
	}
	exact, err := spark.CountWords(in)
	if err != nil {
		return nil, err
	}
	for repeat := range uint64(realRepeats) {
		for _, percent := range realRatios() {
			drop := spark.Drop{Theta: float64(percent) / 100, Seed: r.o.seed + repeat}
			one, cancel := context.WithTimeout(ctx, realPatience)
			answer, _, err := cluster.Ask(one, spark.WordPopularity(filepath.Join(r.bin, "headroom-spark-apps.jar"), in, partitions, sparkAsked, drop))
			cancel()
			if err != nil {
				return nil, fmt.Errorf("dias: %d %%: %w", percent, err)
			}
			p := ratioPoint{percent, answer.Kept, answer.Seconds, 100 * spark.MeanError(exact, answer.Counts(), sparkTop)}
			r.note("%d %% dropped: %d of %d partitions, %.1f s, error %.1f %%", percent, p.kept, answer.Total, p.exec, p.error)
			points = append(points, p)
		}
	}
	return points, nil
}
