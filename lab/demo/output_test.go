package demo

import (
	"bytes"
	"encoding/json"
	"encoding/xml"
	"errors"
	"io"
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
	got := strings.Join(columns([]string{"n1", "n2"}), ",") + "\n"
	for _, s := range []sample{
		{at: 250 * time.Millisecond, budget: 482 * w, reserved: watts(481.875), held: watts(480), measured: watts(300.5), nodes: []*units.Power{watts(150.25), watts(150.25)}},
		{at: 501 * time.Millisecond, budget: 482 * w, nodes: []*units.Power{nil, watts(1)}},
	} {
		got += strings.Join(s.row(), ",") + "\n"
	}
	want := "time_s,budget_w,reserved_w,held_w,measured_w,n1,n2\n" +
		"0.250,482.000,481.875,480.000,300.500,150.250,150.250\n0.501,482.000,,,,,1.000\n"
	if got != want {
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

// complete is a run that kept every promise.
func complete() *show {
	b := newTracker(482 * w)
	for i, what := range eventNames() {
		b.note(time.Duration(i)*time.Second, what, "")
	}
	b.jobs = []*headroomv1.Job{doneJob("words", classLow), doneJob("top", classHigh)}
	b.energy["words-1"] = 12.34567
	return &show{opts: options{engine: engineLocal, nodes: 2}, tracker: b, settle: []float64{0.1, 0.2}, failover: new(1.23456), readopt: new(0.0104)}
}

// summary.json has exactly this form; a figure that is not known is null.
func TestSummaryForm(t *testing.T) {
	t.Parallel()
	got := testkit.Need(json.Marshal(complete().summary(t.Context())))(t)
	want := `{"over_budget_s":{"reserved":0,"held":0,"measured":0},"settle_s":{"p50":0.1,"p99":0.2},"failover_s":1.235,"readopt_s":0.01,"breaker":null,"nodes":2,` +
		`"jobs":[{"name":"words","class":"low","state":"done","tasks":4,"done":4,"runtime_s":2,"energy_j":12.346},` +
		`{"name":"top","class":"high","state":"done","tasks":4,"done":4,"runtime_s":2,"energy_j":0}],` +
		`"events":[{"t_s":0,"what":"budget cut"},{"t_s":1,"what":"leader killed"},{"t_s":2,"what":"new leader"},` +
		`{"t_s":3,"what":"powerd killed"},{"t_s":4,"what":"powerd back"},{"t_s":5,"what":"budget raised"}]}`
	if string(got) != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	got = testkit.Need(json.Marshal((&show{opts: options{engine: engineLocal, nodes: 1}, tracker: newTracker(w)}).summary(t.Context())))(t)
	want = `{"over_budget_s":{"reserved":0,"held":0,"measured":0},"settle_s":{"p50":null,"p99":null},"failover_s":null,"readopt_s":null,"breaker":null,"nodes":1,"jobs":[],"events":[]}`
	if string(got) != want {
		t.Errorf("empty: got %s", got)
	}
}

// A run is kept only when nothing was above, every event happened and every job
// ended well or was cancelled.
func TestSummaryNamesWhatBroke(t *testing.T) {
	t.Parallel()
	if words := complete().summary(t.Context()).broken(); len(words) > 0 {
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
		d := complete()
		spoil(d.tracker)
		if words := strings.Join(d.summary(t.Context()).broken(), "; "); !strings.Contains(words, name) {
			t.Errorf("want %q, got %q", name, words)
		}
	}
	d := complete()
	d.tracker.jobs[0].State = headroomv1.JobState_JOB_STATE_CANCELLED
	if words := d.summary(t.Context()).broken(); len(words) > 0 {
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
	drawn := testkit.Need(drawPower(samples, events, []string{"n01", "n<2>&"}))(t)
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
