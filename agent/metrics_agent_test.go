// Claims: a running powerd serves its own figures where metrics.listen says, every
// family that it fills is one of the documented ones, and none is there twice.
package agent

import (
	"bytes"
	"context"
	"io"
	"log/slog"
	"net/http"
	"regexp"
	"strings"
	"testing"

	"headroom/internal/rpc"
)

// lines hands a log's lines to a test.
type lines chan string

// Write is one line of the log; what nobody waits for is dropped.
func (l lines) Write(p []byte) (int, error) {
	select {
	case l <- string(p):
	default:
	}
	return len(p), nil
}

func TestAgentServesMetrics(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	cfg := l.config()
	cfg.Metrics.Listen = "127.0.0.1:0"
	said := make(lines, 100)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- Run(ctx, cfg, slog.New(slog.NewTextHandler(said, nil))) }()
	defer func() {
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("powerd ended with %v", err)
		}
	}()
	address := regexp.MustCompile(`metrics are served.* address=(\S+)`)
	var addr string
	waitFor(t, "the address of the metrics", func() bool {
		select {
		case line := <-said:
			if m := address.FindStringSubmatch(line); m != nil {
				addr = m[1]
			}
		default:
		}
		return addr != ""
	})
	client := &http.Client{Transport: &http.Transport{}}
	defer client.CloseIdleConnections()
	var text []byte
	waitFor(t, "package power and a turn of the loop in the metrics", func() bool {
		text = scrape(t, client, addr)
		return bytes.Contains(text, []byte("\n"+mZonePower+`{zone="package-0",socket="0"} `)) &&
			!bytes.Contains(text, []byte("\n"+mStep+"_count 0\n"))
	})
	checkText(t, text)
	for _, want := range []string{mNodeCap + " 95\n", mNodeState + `{state="fail-safe"} 1` + "\n", mNodeRung + `{rung="rapl"} 1` + "\n", mExpiries + " 0\n"} {
		if !strings.Contains(string(text), want) {
			t.Errorf("no %q in\n%s", want, text)
		}
	}
}

func scrape(t *testing.T, client *http.Client, addr string) []byte {
	t.Helper()
	res, err := client.Get(rpc.BaseURL(addr) + metricsPath)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close() //nolint:errcheck // read to its end
	text, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	return text
}
