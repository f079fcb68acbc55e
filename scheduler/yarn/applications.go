package yarn

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"

	"headroom/scheduler/spark"
)

// ownTag is the prefix of the tags of applications that the engine spark has started. They are jobs of that engine, in
// any queue.
const ownTag = "headroom-run-"

// Applications finds, monitors and kills drivers on YARN for the engine spark. It is safe for concurrent use.
type Applications struct{ client *client }

var _ spark.YARN = (*Applications)(nil)

// NewApplications returns one for the ResourceManagers of the configuration.
func NewApplications(c Config, logger *slog.Logger) *Applications {
	return &Applications{newClient(c, logger)}
}

// Find implements spark.YARN.
func (a *Applications) Find(ctx context.Context, tag string) (spark.Application, bool, error) {
	body, err := a.client.cluster(ctx, "apps?applicationTags="+tag)
	if err != nil {
		return spark.Application{}, false, err
	}
	all, err := readJSONApps(body)
	if err != nil {
		return spark.Application{}, false, err
	}
	for _, j := range slices.Backward(all) {
		if !j.tagged(tag) { // an older ResourceManager ignores the query
			continue
		}
		found, err := j.app()
		if err != nil {
			return spark.Application{}, false, err
		}
		words := found.state
		if found.ended() && found.diagnostics != "" {
			words += ": " + found.diagnostics
		}
		return spark.Application{ID: found.id, Over: found.ended(), OK: found.state == "FINISHED" && found.final == "SUCCEEDED", Words: words}, true, nil
	}
	return spark.Application{}, false, nil
}

// Kill implements spark.YARN.
func (a *Applications) Kill(ctx context.Context, id string) error {
	if !appForm.MatchString(id) {
		return wrong("%q is not the id of an application", clip(id))
	}
	return a.client.change(ctx, "apps/"+id+"/state", document{typeJSON, []byte(`{"state":"KILLED"}`), errAnswer})
}

// Cores implements spark.YARN.
func (a *Applications) Cores(ctx context.Context, tag string) (all, others int, err error) {
	body, err := a.client.cluster(ctx, "nodes?states=RUNNING")
	if err != nil {
		return 0, 0, err
	}
	nodes, err := readNodes(body)
	if err != nil {
		return 0, 0, err
	}
	for _, n := range nodes {
		if n.state == "RUNNING" {
			all = min(all+n.vcores, sharesMax)
		}
	}
	if body, err = a.client.cluster(ctx, "apps?states="+strings.Join(liveStates(), ",")); err != nil {
		return 0, 0, err
	}
	apps, err := readJSONApps(body)
	for _, j := range apps {
		if !j.tagged(tag) {
			others = min(others+max(0, j.AllocatedVCores), sharesMax) // -1: none
		}
	}
	return all, others, err
}

// Driver implements spark.YARN.
func (a *Applications) Driver(ctx context.Context, id, path string) ([]byte, error) {
	return a.client.driver(ctx, id, path)
}

// driver reads the REST interface of a Spark application's driver, through the proxy of the ResourceManager that
// answered last, or the configured one.
func (c *client) driver(ctx context.Context, app, path string) ([]byte, error) {
	body, err := c.get(ctx, c.proxied()+"/proxy/"+app+"/api/v1"+path)
	if errors.Is(err, errStandby) {
		err = fmt.Errorf("no driver, not yet or no longer: %w", errNotThere)
	}
	return body, err
}

// tagged reports whether an application has a tag, or one with this prefix.
func (j jsonApp) tagged(tag string) bool {
	for own := range strings.SplitSeq(j.ApplicationTags, ",") {
		if strings.HasPrefix(strings.TrimSpace(own), tag) {
			return true
		}
	}
	return false
}
