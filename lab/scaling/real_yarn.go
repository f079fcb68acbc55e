package scaling

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"

	"headroom/lab/hadoop"
)

const (
	// yarnMap is a map's memory, MiB, which is all that a node offers; the master's own node offers yarnMaster.
	yarnMap, yarnMaster = 256, 512
	// yarnBytes is what a map reads, yarnSamples how many points a map of QMC makes.
	yarnBytes, yarnSamples = 4 << 20, 20_000_000
	// teraRow is the length of a record of TeraSort, teraKey that of its key.
	teraRow, teraKey = 100, 10
)

// onYARN is a Hadoop with one NodeManager for one container on each node, and one for application masters on none.
type onYARN struct {
	*realSite

	cluster *hadoop.Cluster
	runs    int
}

func (o *realOptions) startYARN(ctx context.Context, progress io.Writer) (engine, error) {
	s, err := o.site(progress)
	if err != nil {
		return nil, err
	}
	jars, err := s.Hadoop(ctx)
	if err != nil {
		return nil, s.fail(err)
	}
	for _, n := range o.degrees {
		text := hadoop.Text{Files: n, Bytes: yarnBytes, Topical: 0.5, Seed: uint64(n)}
		if _, err := text.Write(s.Path("text", strconv.Itoa(n))); err != nil {
			return nil, s.fail(err)
		}
		if err := writeTera(s.Path("tera", strconv.Itoa(n)), n); err != nil {
			return nil, s.fail(err)
		}
	}
	nodes := []hadoop.Node{{Name: "master", MemoryMB: yarnMaster, VCores: 1}}
	for _, name := range s.names() {
		nodes = append(nodes, hadoop.Node{Name: name, MemoryMB: yarnMap, VCores: 1, Wrap: s.on(name)})
	}
	c, err := hadoop.Start(ctx, hadoop.Config{Dir: s.Path("engine"), Jars: jars, Nodes: nodes})
	if err != nil {
		return nil, s.fail(err)
	}
	return &onYARN{realSite: s, cluster: c}, nil
}

func (y *onYARN) Close() error {
	return errors.Join(y.cluster.Close(), y.end())
}

func (y *onYARN) run(ctx context.Context, p program, on cell) (run, error) {
	y.runs++
	r, err := y.cluster.Run(ctx, y.job(p.name, on.size, y.Path("out", strconv.Itoa(y.runs))))
	if err != nil {
		return run{}, err
	}
	if !r.Succeeded() || r.History == nil {
		return run{}, fmt.Errorf("%s: %s %s", r.Application, r.FinalStatus, r.Diagnostics)
	}
	return ofHistory(r.History)
}

// job is a program over n files, a map each. Reducers start after the last map, so that they take no map's container.
func (y *onYARN) job(program string, n int, out string) hadoop.Job {
	text, tera := y.Path("text", strconv.Itoa(n)), y.Path("tera", strconv.Itoa(n))
	j := hadoop.Job{
		Program: program, Queue: "q1",
		Properties: map[string]string{"mapreduce.job.reduces": "1", "mapreduce.job.reduce.slowstart.completedmaps": "1.0"},
	}
	switch program {
	case "qmc":
		j.Program, j.Args = "pi", []string{strconv.Itoa(n), strconv.Itoa(yarnSamples)}
	case "sort":
		const io, lib = "org.apache.hadoop.io.Text", "org.apache.hadoop.mapreduce.lib."
		j.Args = []string{"-r", "1", "-inFormat", lib + "input.KeyValueTextInputFormat", "-outFormat", lib + "output.TextOutputFormat", "-outKey", io, "-outValue", io, text, out}
	case "terasort":
		j.Args = []string{tera, out}
	default:
		j.Args = []string{text, out}
	}
	return j
}

// writeTera writes n files of TeraSort's records, a map each.
func writeTera(dir string, n int) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	for file := range n {
		random := rand.NewChaCha8([32]byte{byte(file)})
		var b bytes.Buffer
		row := make([]byte, teraRow)
		for range yarnBytes / teraRow {
			_, _ = random.Read(row[:teraKey]) // it never fails
			b.Write(row)
		}
		if err := os.WriteFile(filepath.Join(dir, fmt.Sprintf("part-%05d", file)), b.Bytes(), 0o644); err != nil {
			return err
		}
	}
	return nil
}
