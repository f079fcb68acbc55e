package spark

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"headroom/lab/cluster"
)

var (
	// ErrUnavailable reports that this machine lacks what Spark needs: java, or, as long as
	// the release is not there, python3 with venv or the network.
	ErrUnavailable = errors.New("spark: not available on this machine")
	// errConfig reports a folder or a job that cannot be.
	errConfig = errors.New("spark: bad configuration")
	// errJob reports an application that did not come to its good end.
	errJob = errors.New("spark: the application failed")
)

// The releases that are run: spark.version, spark4.version and spark.newest.version of hooks/versions.properties.
const (
	Version  = "3.5.9"
	Version4 = "4.1.4"
	Newest   = "4.2.0"
)

// fetchMost bounds what pip may take.
const fetchMost = 8 * time.Minute

// Release is an unmodified Spark, in the folder that its Python package brings.
type Release struct {
	// Version is its number.
	Version string
	// Home is its folder, with bin/spark-submit.
	Home string
	// Python is the program that PySpark applications run with.
	Python string
}

// Fetch returns the release in dir (a folder of the user's cache when it is empty). When it is not there
// yet, pip gets it into a virtual environment, some 400 MB on disk, which appears whole or
// not at all; say receives a notice and may be nil. Of several processes one fetches and the
// others wait. The error wraps ErrUnavailable when that is not possible here.
func Fetch(ctx context.Context, version, dir string, say func(string)) (Release, error) {
	dir, err := cluster.FetchDir(dir, "spark-"+version)
	if err == nil {
		ctx, cancel := context.WithTimeout(ctx, fetchMost)
		defer cancel()
		err = cluster.Fetch(ctx, dir, func(part string) error {
			if say != nil {
				say(fmt.Sprintf("fetching Spark %s with pip into %s (some 400 MB, a minute or so)", version, dir))
			}
			if err := cluster.Step(ctx, "python3", "-m", "venv", part); err != nil {
				return err
			}
			return cluster.Step(ctx, filepath.Join(part, "bin", "python3"), "-m", "pip", "install", "--no-input", "--disable-pip-version-check", "-q", "pyspark=="+version)
		})
	}
	if err != nil {
		return Release{}, fmt.Errorf("%w: Spark %s is fetched with pip (Debian package python3-venv, and the network, are needed once): %w", ErrUnavailable, version, err)
	}
	homes, _ := filepath.Glob(filepath.Join(dir, "lib", "python3*", "site-packages", "pyspark")) // the pattern is valid
	if len(homes) == 1 {
		_, err = os.Stat(filepath.Join(homes[0], "bin", "spark-submit"))
	}
	if err != nil || len(homes) != 1 {
		return Release{}, fmt.Errorf("%w: %s holds no Spark: remove it or name another folder", errConfig, dir)
	}
	return Release{Version: version, Home: homes[0], Python: filepath.Join(dir, "bin", "python3")}, nil
}
