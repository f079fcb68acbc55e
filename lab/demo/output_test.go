package demo

import (
	"bytes"
	"encoding/json"
	"encoding/xml"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	headroomv1 "headroom/api/headroom/v1"
	"headroom/internal/testkit"
	"headroom/units"
)

func watts(v float64) *units.Power {
	p := units.FromWatts(v)
	return &p
}

// power.csv has exactly these columns; what is not known is empty, never 0.
func TestCSVForm(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "power.csv")
	c := testkit.Need(createCSV(path, []string{"n01", "n02"}))(t)
	for _, s := range []sample{
		{at: 250 * time.Millisecond, budget: 482 * w, reserved: watts(481.875), held: watts(480), measured: watts(300.5), nodes: []*units.Power{watts(150.25), watts(150.25)}},
		{at: 501 * time.Millisecond, budget: 482 * w, nodes: []*units.Power{nil, watts(1)}},
	} {
		testkit.Check(t, c.row(s))
	}
	testkit.Check(t, c.close())
	got := testkit.Need(os.ReadFile(path))(t)
	want := "time_s,budget_w,reserved_w,held_w,measured_w,n01,n02\n" +
		"0.250,482.000,481.875,480.000,300.500,150.250,150.250\n0.501,482.000,,,,,1.000\n"
	if string(got) != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

func doneJob(name, class string) *headroomv1.Job {
	runtime := 2.0004
	return &headroomv1.Job{
		Id: name + "-1", Name: name, Class: class, State: headroomv1.JobState_JOB_STATE_DONE,
		Progress: &headroomv1.JobProgress{Tasks: 4, Done: 4, RuntimeS: &runtime},
	}
}

// complete is the tracker and the story of a run that kept every promise.
func complete() (*tracker, *story) {
	b := newBoard(482 * w)
	for i, what := range eventNames() {
		b.note(time.Duration(i)*time.Second, what, "")
	}
	b.jobs = []*headroomv1.Job{doneJob("words", classLow), doneJob("top", classHigh)}
	b.energy["words-1"] = 12.34567
	failover, readopt := 1.23456, 0.0104
	return b, &story{settle: []float64{0.1, 0.2}, failover: &failover, readopt: &readopt}
}

// summary.json has exactly this form; a figure that is not known is null.
func TestSummaryForm(t *testing.T) {
	t.Parallel()
	b, s := complete()
	got := testkit.Need(json.Marshal(summarise(b, s, 2)))(t)
	want := `{"over_budget_s":{"reserved":0,"held":0,"measured":0},"settle_s":{"p50":0.1,"p99":0.2},"failover_s":1.235,"readopt_s":0.01,"breaker":null,"nodes":2,` +
		`"jobs":[{"name":"words","class":"low","state":"done","tasks":4,"done":4,"runtime_s":2,"energy_j":12.346},` +
		`{"name":"top","class":"high","state":"done","tasks":4,"done":4,"runtime_s":2,"energy_j":0}],` +
		`"events":[{"t_s":0,"what":"budget cut"},{"t_s":1,"what":"leader killed"},{"t_s":2,"what":"new leader"},` +
		`{"t_s":3,"what":"powerd killed"},{"t_s":4,"what":"powerd back"},{"t_s":5,"what":"budget raised"}]}`
	if string(got) != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	got = testkit.Need(json.Marshal(summarise(newBoard(w), &story{}, 1)))(t)
	want = `{"over_budget_s":{"reserved":0,"held":0,"measured":0},"settle_s":{"p50":null,"p99":null},"failover_s":null,"readopt_s":null,"breaker":null,"nodes":1,"jobs":[],"events":[]}`
	if string(got) != want {
		t.Errorf("empty: got %s", got)
	}
}

// A run is kept only when nothing was above, every event happened and every job
// ended well or was cancelled.
func TestSummaryNamesWhatBroke(t *testing.T) {
	t.Parallel()
	b, s := complete()
	if words := summarise(b, s, 2).broken(); len(words) > 0 {
		t.Errorf("a good run is said to be broken: %v", words)
	}
	for name, spoil := range map[string]func(*tracker){
		`event "powerd back" did not happen`:                func(b *tracker) { b.events = slices.Delete(b.events, 4, 5) },
		"job top is failed with 4 of 4 tasks done":          func(b *tracker) { b.jobs[1].State = headroomv1.JobState_JOB_STATE_FAILED },
		"held was above the budget for 0.250 s":             func(b *tracker) { b.samples = rows([2]float64{100, 90}, [2]float64{0, 101}, [2]float64{0, 90}) },
		"measured was above the budget for 0.250 s by":      func(b *tracker) { b.samples = rows([2]float64{100, 90}, [2]float64{0, 110}, [2]float64{0, 90}) },
		"a breaker rated for the budget would have tripped": func(b *tracker) { b.samples = rows([2]float64{100, 90}, [2]float64{0, 501}, [2]float64{0, 90}) },
		"no jobs ran": func(b *tracker) { b.jobs = nil },
	} {
		b, s := complete()
		spoil(b)
		if words := strings.Join(summarise(b, s, 2).broken(), "; "); !strings.Contains(words, name) {
			t.Errorf("want %q, got %q", name, words)
		}
	}
	b, s = complete()
	b.jobs[0].State = headroomv1.JobState_JOB_STATE_CANCELLED
	if words := summarise(b, s, 2).broken(); len(words) > 0 {
		t.Errorf("a cancelled job broke the run: %v", words)
	}
}

// The chart is well-formed, names every event and shows gaps as gaps.
func TestChartIsWellFormed(t *testing.T) {
	t.Parallel()
	samples := rows(append(append([][2]float64{{964, 900}, {0, 900}}, repeat(4, -1)...), [2]float64{578, 500}, [2]float64{0, 510})...)
	for i := range samples {
		if samples[i].measured != nil {
			half := *samples[i].measured / 2
			samples[i].nodes = []*units.Power{&half, &half}
		} else {
			samples[i].nodes = []*units.Power{nil, nil}
		}
	}
	var events []event
	for i, what := range eventNames() {
		events = append(events, event{at: time.Duration(i) * 100 * time.Millisecond, what: what})
	}
	drawn := testkit.Need(picture{samples: samples, events: events, nodes: []string{"n01", "n<2>&"}}.draw())(t)
	for d := xml.NewDecoder(bytes.NewReader(drawn)); ; {
		_, err := d.Token()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatalf("%v in\n%s", err, drawn)
		}
	}
	for _, want := range append(eventNames(), "time (s)", "power at the wall (W)", "n&lt;2&gt;&amp;") {
		if !bytes.Contains(drawn, []byte(want)) {
			t.Errorf("no %q", want)
		}
	}
	for _, bad := range []string{"NaN", "Inf", "%!"} {
		if bytes.Contains(drawn, []byte(bad)) {
			t.Errorf("%s in the picture", bad)
		}
	}
}

// The table fits a screen of 24 lines and 80 columns, and shows what is unknown
// as "-".
func TestTableFitsTheScreen(t *testing.T) {
	t.Parallel()
	b, _ := complete()
	b.begin(time.Minute)
	var nodes []string
	s := sample{budget: 964 * w}
	for _, n := range []string{"n01", "n02", "n03", "n04"} {
		nodes = append(nodes, n)
		s.nodes = append(s.nodes, watts(120))
	}
	s.nodes[3] = nil
	b.samples = []sample{s}
	screen := &screen{tracker: b, nodes: nodes, rated: 241 * w, run: time.Minute}
	lines := screen.table()
	if len(lines) > 23 {
		t.Errorf("%d lines", len(lines))
	}
	for _, l := range lines {
		if len(l) > 80 && !strings.Contains(l, "kill -9") {
			t.Errorf("%d columns: %s", len(l), l)
		}
	}
	text := strings.Join(lines, "\n")
	if strings.Count(text, "##########") != 3 || !strings.Contains(text, "reserved - ") {
		t.Errorf("table:\n%s", text)
	}
}
