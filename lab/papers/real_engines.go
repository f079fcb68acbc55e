package papers

import (
	"context"
	"errors"

	"headroom/internal/cli"
	"headroom/lab/hadoop"
	"headroom/lab/spark"
)

// Hadoop returns Hadoop's jars, fetched where they are missing.
func (r *Real) Hadoop(ctx context.Context) (hadoop.Jars, error) {
	r.Note("looking for Hadoop's jars")
	jars, err := hadoop.Fetch(ctx, "")
	if errors.Is(err, hadoop.ErrUnavailable) {
		return jars, unavailable("yarn", err)
	}
	return jars, err
}

// Spark returns a release of Spark, fetched where it is missing.
func (r *Real) Spark(ctx context.Context) (spark.Release, error) {
	release, err := spark.Fetch(ctx, spark.Version, "", func(text string) { r.Note("%s", text) })
	if errors.Is(err, spark.ErrUnavailable) {
		return release, unavailable("spark", err)
	}
	return release, err
}

func unavailable(engine string, err error) error {
	return cli.Failed("install what is missing, or leave --engine away: the simulation needs none of it", "--engine %s: %w", engine, err)
}
