// Claims: a scrape is answered in the format that is asked for; two within a second
// get the same answer and ask for the status once; a scrape resets nothing; too many
// at a time are turned away; a status that hangs never makes anybody wait for long.
package metrics

import (
	"bytes"
	"context"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"regexp"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	"google.golang.org/protobuf/proto"

	headroomv1 "headroom/api/headroom/v1"
	"headroom/internal/rpc"
	"headroom/internal/scrape"
)

const (
	plainText   = "text/plain; version=0.0.4"
	openMetrics = "application/openmetrics-text; version=1.0.0"
	protobuf    = "application/vnd.google.protobuf; proto=io.prometheus.client.MetricFamily; encoding=delimited"
)

func handlerOf(c *Collector) http.Handler { return newHandler(c, slog.New(slog.DiscardHandler)) }

func scraped(t *testing.T, h http.Handler, accept string) *httptest.ResponseRecorder {
	t.Helper()
	r := httptest.NewRequest(http.MethodGet, scrape.Path, nil)
	r.Header.Set("Accept", accept)
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

// ofProcess are the lines that differ from one process, and kernel, to the next.
var ofProcess = regexp.MustCompile(`(?m)^(# (HELP|TYPE|UNIT) )?process_.*\n`)

var exemplar = regexp.MustCompile(`\{[^{}]*seq="90211"[^{}]*\}`)

// What Prometheus reads, whole, in both texts. The bubble's clock stands still, so
// exemplars have one time.
func TestScrapeGolden(t *testing.T) {
	t.Parallel()
	for file, accept := range map[string]string{"scrape.txt": plainText, "openmetrics.txt": openMetrics} {
		t.Run(file, func(t *testing.T) {
			t.Parallel()
			var text string
			synctest.Test(t, func(t *testing.T) {
				w := scraped(t, handlerOf(New("0.1.0", said(fullStatus()), busyLoop())), accept)
				if w.Code != http.StatusOK || !strings.HasPrefix(w.Header().Get("Content-Type"), accept) {
					t.Errorf("%d %s", w.Code, w.Header().Get("Content-Type"))
				}
				text = w.Body.String()
			})
			for _, must := range []string{"process_cpu_seconds_total ", "process_resident_memory_bytes "} {
				if !strings.Contains(text, "\n"+must) {
					t.Errorf("no %s", must)
				}
			}
			if accept == openMetrics && !strings.Contains(text, `seq="90211"`) {
				t.Error("no lease beside the settled cap")
			}
			text = exemplar.ReplaceAllString(text, "{EXEMPLAR}") // its labels come in any order
			golden(t, "testdata/"+file, strings.ReplaceAll(ofProcess.ReplaceAllString(text, ""), runtime.Version(), "GO"))
		})
	}
}

// A server that takes native histograms gets the turns of the loop as one.
func TestScrapeInProtobuf(t *testing.T) {
	t.Parallel()
	w := scraped(t, handlerOf(New("0.1.0", said(fullStatus()), busyLoop())), protobuf)
	decoder := expfmt.NewDecoder(w.Body, expfmt.ResponseFormat(w.Header()))
	for {
		var f dto.MetricFamily
		if err := decoder.Decode(&f); err != nil {
			t.Fatalf("%s: %v", controlStep, err)
		}
		if f.GetName() != controlStep {
			continue
		}
		if h := f.GetMetric()[0].GetHistogram(); h.Schema == nil || len(h.GetPositiveSpan()) == 0 || len(h.GetBucket()) == 0 {
			t.Errorf("%v: want native and classic buckets", h)
		}
		return
	}
}

// Lesson 13: RAPL at a high rate tells what a processor computes, so powerd does not
// hand it on: two scrapes within a second get the same answer, and values are coarse.
func TestScrapesAreNoProbe(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		status, asked := fullStatus(), 0
		h := handlerOf(New("0.1.0", func() *headroomv1.GetAgentStatusResponse {
			asked++
			time.Sleep(400 * time.Millisecond) // a loop that is busy
			return proto.CloneOf(status)
		}, NewLoop()))
		first := scraped(t, h, plainText).Body.String()
		status.Zones[0].PowerUw, status.Zones[0].EnergyUj = new(int64(80_000_000)), new(int64(7_000_000_000))
		time.Sleep(scrape.AnswerAge - 1)
		if again := scraped(t, h, plainText).Body.String(); again != first || asked != 1 {
			t.Errorf("a scrape within a second saw something new (asked %d times)", asked)
		}
		time.Sleep(time.Nanosecond)
		second := scraped(t, h, plainText).Body.String()
		if asked != 2 {
			t.Errorf("the status was asked for %d times by two answers", asked)
		}
		for text, want := range map[*string][]string{
			&first:  {zonePower + `{socket="0",zone="package-0"} 61.4` + "\n", zoneEnergy + `{socket="0",zone="package-0"} 6310` + "\n"},
			&second: {zonePower + `{socket="0",zone="package-0"} 80` + "\n", zoneEnergy + `{socket="0",zone="package-0"} 7000` + "\n"},
		} {
			for _, line := range want {
				if !strings.Contains(*text, line) {
					t.Errorf("no %q", line)
				}
			}
		}
	})
}

// Lesson 18: a scrape that resets what it reads makes two readers see half each.
func TestScrapeResetsNothing(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		h := handlerOf(New("0.1.0", said(fullStatus()), busyLoop()))
		first := ofProcess.ReplaceAllString(scraped(t, h, openMetrics).Body.String(), "")
		time.Sleep(time.Minute)
		if second := ofProcess.ReplaceAllString(scraped(t, h, openMetrics).Body.String(), ""); second != first {
			t.Errorf("the second scrape differs:\n%s", second)
		}
	})
}

// A status that hangs holds a bounded number of scrapes for a bounded time, and
// nobody else.
func TestAStatusThatHangs(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		free := make(chan struct{})
		h := handlerOf(New("0.1.0", func() *headroomv1.GetAgentStatusResponse { <-free; return nil }, NewLoop()))
		began := time.Now()
		var asking sync.WaitGroup
		for range scrape.Most {
			asking.Go(func() {
				if w := scraped(t, h, plainText); w.Code != http.StatusServiceUnavailable {
					t.Errorf("%d from a status that hangs", w.Code)
				}
			})
		}
		synctest.Wait()
		if w := scraped(t, h, plainText); w.Code != http.StatusServiceUnavailable || time.Since(began) != 0 {
			t.Errorf("%d after %v: one too many is turned away at once", w.Code, time.Since(began))
		}
		asking.Wait()
		if took := time.Since(began); took != scrape.Wait {
			t.Errorf("they waited %v", took)
		}
		close(free)
		synctest.Wait()
		if w := scraped(t, h, plainText); w.Code != http.StatusOK {
			t.Errorf("%d once it answers again", w.Code)
		}
	})
}

// One point that cannot be told does not cost the others.
func TestWhatCannotBeToldIsLeftOut(t *testing.T) {
	t.Parallel()
	c := New("0.1.0", said(fullStatus()), NewLoop())
	c.descs[nodePower] = c.descs[zoneLimit] // another number of labels
	var log bytes.Buffer
	w := scraped(t, newHandler(c, slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug}))), plainText)
	if w.Code != http.StatusOK || !strings.Contains(w.Body.String(), "\n"+nodeCap+" 190\n") || strings.Contains(w.Body.String(), "\n"+nodePower+"{") {
		t.Errorf("%d\n%s", w.Code, w.Body)
	}
	if !strings.Contains(log.String(), "metrics not told") {
		t.Errorf("log %q", log.String())
	}
}

// Readers of every format share one answer.
func TestServe(t *testing.T) {
	t.Parallel()
	l, err := Listen("127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	served := make(chan error, 1)
	go func() {
		served <- Serve(ctx, l, New("0.1.0", said(fullStatus()), busyLoop()), slog.New(slog.DiscardHandler))
	}()
	var reading sync.WaitGroup
	for i := range scrape.Most {
		reading.Go(func() { readOver(t, l.Addr().String(), []string{plainText, openMetrics, protobuf}[i%3]) })
	}
	reading.Wait()
	cancel()
	if err := <-served; err != nil {
		t.Error(err)
	}
}

func readOver(t *testing.T, addr, accept string) {
	t.Helper()
	client := &http.Client{Transport: &http.Transport{}}
	defer client.CloseIdleConnections()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, rpc.BaseURL(addr)+scrape.Path, nil)
	if err != nil {
		t.Error(err)
		return
	}
	r.Header.Set("Accept", accept)
	res, err := client.Do(r)
	if err != nil {
		t.Error(err)
		return
	}
	defer res.Body.Close() //nolint:errcheck // read to its end
	body, err := io.ReadAll(res.Body)
	if err != nil || res.StatusCode != http.StatusOK {
		t.Errorf("%s, %v", res.Status, err)
	}
	switch accept {
	case plainText:
		families, err := new(expfmt.NewTextParser(model.UTF8Validation)).TextToMetricFamilies(bytes.NewReader(body))
		if err != nil || families[nodeCap] == nil {
			t.Errorf("%v:\n%s", err, body)
		}
	case openMetrics:
		if !bytes.HasSuffix(body, []byte("# EOF\n")) {
			t.Errorf("no whole answer:\n%s", body)
		}
	}
}
