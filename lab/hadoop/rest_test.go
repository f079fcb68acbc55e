// Claims: what a node offers is what is used and what is free of it, as the
// ResourceManager's answer has both.
package hadoop

import (
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"testing"

	"headroom/internal/testkit"
)

func TestNodeOffers(t *testing.T) {
	t.Parallel()
	var n NodeState
	testkit.Check(t, json.Unmarshal([]byte(`{"id":"n1:9005","nodeHostName":"n1","state":"RUNNING","numContainers":1,
		"usedMemoryMB":256,"availMemoryMB":512,"usedVirtualCores":1,"availableVirtualCores":2}`), &n))
	if n.ID != "n1:9005" || !n.offers(3, 768) || n.offers(1, 256) || n.offers(3, 256) || n.offers(1, 768) {
		t.Errorf("%+v", n)
	}
	full := NodeState{UsedMB: 256, UsedVCores: 1}
	if !full.offers(1, 256) {
		t.Errorf("%+v", full)
	}
}

// What stands below a path of fields is read; a field that is missing or null is not found.
func TestGetFrom(t *testing.T) {
	t.Parallel()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = w.Write([]byte(`{"apps":{"app":[{"id":"a1"}]},"none":null}`))
	}))
	t.Cleanup(s.Close)
	apps, err := getFrom[[]application](t.Context(), s.URL, "apps", "app")
	if err != nil || len(apps) != 1 || apps[0].ID != "a1" {
		t.Errorf("%+v, %v", apps, err)
	}
	for _, path := range [][]string{{"apps", "job"}, {"none", "app"}} {
		if _, err := getFrom[[]application](t.Context(), s.URL, path...); !errors.Is(err, errNotFound) {
			t.Errorf("%v: %v", path, err)
		}
	}
}
