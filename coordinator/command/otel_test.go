// Claims: a server whose configuration names a collector sends it its ticks and the
// changes that it carries out, and sends what is left when it stops.
package command_test

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"sync"
	"testing"

	collector "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	"google.golang.org/protobuf/proto"
)

func TestServerSendsTraces(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	got := map[string]int{}
	otlp := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		var m collector.ExportTraceServiceRequest
		if err == nil {
			err = proto.Unmarshal(body, &m)
		}
		mu.Lock()
		defer mu.Unlock()
		if err != nil {
			t.Errorf("not OTLP: %v", err)
		}
		for _, from := range m.GetResourceSpans() {
			for _, scope := range from.GetScopeSpans() {
				for _, s := range scope.GetSpans() {
					got[s.GetName()]++
				}
			}
		}
	}))
	defer otlp.Close()
	dir, addr := t.TempDir(), freeAddr(t)
	yaml := fmt.Sprintf("id: c1\nstate_dir: %s\ntls: {mode: off}\nservers:\n  - {id: c1, rpc: %q, raft: %q}\notel: {endpoint: %q}\nsite:\n  - {name: site/lab, budget: 1000W}\n",
		filepath.Join(dir, "state"), addr, freeAddr(t), otlp.URL+"/v1/traces")
	file := filepath.Join(dir, "coordinator.yaml")
	if err := os.WriteFile(file, []byte(yaml), 0o600); err != nil {
		t.Fatal(err)
	}
	during(t, []string{"run", "--config", file}, func() {
		good(t, "budget", "show", "--addr", addr, "--patience", "20s") // it leads now, and refuses no change
		good(t, "budget", "set", "900W", "--addr", addr, "--patience", "20s")
	})
	mu.Lock()
	defer mu.Unlock()
	if got["tick"] == 0 || got["change"] == 0 || got["commit"] < 2 {
		t.Errorf("the collector has %v", got)
	}
}
