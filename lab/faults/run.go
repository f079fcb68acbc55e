package faults

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"strconv"
	"sync"
	"time"
)

// ErrNotPermitted reports that this machine does not permit the namespaces or the
// filters that a run needs.
var ErrNotPermitted = errors.New("faults: not permitted on this machine")

// Options configure a run.
type Options struct {
	For  time.Duration // how long faults come
	Seed uint64
	Bin  string // folder of the programs
	Dir  string // folder of all files, which must be empty
	// Progress gets a line when a phase begins.
	Progress io.Writer
}

// Report is the result of a run.
type Report struct {
	Seed       uint64         `json:"seed"`
	ForS       float64        `json:"for_s"`
	Faults     map[string]int `json:"faults"`
	Checks     map[string]int `json:"checks"`
	Violations []string       `json:"violations"`
	NotRun     []string       `json:"not_run"`
}

// NewReport is the report of a run that has not begun.
func NewReport(o Options, notRun ...string) *Report {
	return &Report{
		Seed: o.Seed, ForS: o.For.Seconds(), Faults: map[string]int{}, Checks: map[string]int{}, Violations: []string{},
		NotRun: append([]string{}, notRun...),
	}
}

const (
	// healMost is how long the cluster may take to answer once nothing is broken.
	healMost = time.Minute
	// thinksMost is the longest pause of an operator between two changes. Longer pauses
	// judge watts more sharply, because fewer budgets may be in force at once.
	thinksMost = 12 * time.Second
	// lowestW and highestW bound the budgets that are set; halves of a watt, so that
	// no value comes twice.
	lowestW, highestW = 300, 640
)

// Run runs a cluster under faults and judges it. It must be the first process of its
// process id namespace. It returns ErrNotPermitted, with the reason, where the
// machine does not permit what it needs.
func Run(ctx context.Context, o Options) (*Report, error) {
	if os.Getpid() != 1 {
		return nil, fmt.Errorf("%w: not the first process of a namespace", ErrNotPermitted)
	}
	for _, tool := range []string{"ip", "nft", "nsenter", "mount"} {
		if _, err := exec.LookPath(tool); err != nil {
			return nil, fmt.Errorf("%w: %s is missing", ErrNotPermitted, tool)
		}
	}
	_, _ = fmt.Fprintln(o.Progress, "starting three servers and three nodes")
	c, err := newCluster(ctx, o.Dir, o.Bin)
	if err != nil {
		return nil, err
	}
	defer c.stop()
	h := &history{first: budgetW}
	j := newJudge(h, c.nodes, c.view)
	if err := c.busy(); err != nil {
		return nil, err
	}
	t := &injector{c: c, j: j, h: h, random: rand.New(rand.NewPCG(o.Seed, 0)), taken: map[string]bool{}, hit: map[string]int{}}
	_, _ = fmt.Fprintf(o.Progress, "injecting faults for %v, seed %d\n", o.For, o.Seed)
	if err := t.through(ctx, o); err != nil {
		return nil, err
	}
	t.verdict(ctx)
	r := NewReport(o, "clock steps: the wall clock has no namespace", "disks rolled back to their last sync: the kernel keeps what killed programs wrote")
	r.Faults = t.hit
	var mostW float64
	r.Checks, r.Violations, mostW = j.report()
	_, _ = fmt.Fprintf(o.Progress, "highest total power of the nodes: %.1f W\n", mostW)
	for _, kind := range []string{"watts", "linearizable", "audited"} {
		if r.Checks[kind] == 0 {
			r.NotRun = append(r.NotRun, kind+": nothing to check came about")
		}
	}
	return r, nil
}

// through is the time of faults: judge, operators and faults side by side.
func (t *injector) through(ctx context.Context, o Options) error {
	span, done := context.WithTimeout(ctx, o.For)
	defer done()
	heal, healed := context.WithTimeout(ctx, o.For+healMost)
	defer healed()
	watch, stop := context.WithCancel(ctx)
	var watching, asking sync.WaitGroup
	watching.Go(func() {
		for pause(watch, sampleEvery) {
			t.j.sample()
		}
	})
	values := rand.New(rand.NewPCG(o.Seed, 1)).Perm(2 * (highestW - lowestW))
	for i := range 2 {
		mine := values[i*len(values)/2 : (i+1)*len(values)/2]
		random := rand.New(rand.NewPCG(o.Seed, uint64(2+i)))
		asking.Go(func() { t.changes(span, heal, i, mine, random) })
	}
	asking.Go(func() {
		for pause(span, 400*time.Millisecond) {
			t.read(span)
		}
	})
	err := t.deal(span)
	asking.Wait()
	stop()
	watching.Wait()
	return errors.Join(err, ctx.Err())
}

// changes is an operator who sets budgets until span ends, each sent again under its
// key until it is answered, at the latest when heal ends.
func (t *injector) changes(span, heal context.Context, who int, values []int, random *rand.Rand) {
	for n := 0; pause(span, time.Duration(random.Int64N(int64(thinksMost)))); n++ {
		watts := lowestW + float64(values[n%len(values)])/2
		id := fmt.Sprintf("faults-%d-%d", who, n)
		t.quiet.RLock()
		t.change(heal, id, watts)
		t.quiet.RUnlock()
	}
}

// change sets the budget, and sends that again until it is answered or ctx ends.
func (t *injector) change(ctx context.Context, id string, watts float64) {
	x := t.h.begin(id, watts)
	for {
		to := strconv.FormatFloat(watts, 'f', -1, 64) + "W"
		revision, code, said := t.c.ask(ctx, nil, "budget", "set", to, "--confirm", to,
			"--reason", id, "--request-id", id, "--wait", "0s", "--yes")
		if code == 0 || code == 8 {
			t.h.answered(x, revision)
			return
		}
		if !pause(ctx, 300*time.Millisecond) {
			t.j.violated("recovery", "change %s has no answer: exit %d: %s", id, code, said)
			return
		}
	}
}

// read reads the budget and reports whether there was an answer.
func (t *injector) read(ctx context.Context) bool {
	call := time.Now()
	var rows []struct {
		Domain  string  `json:"domain"`
		BudgetW float64 `json:"budget_w"`
	}
	_, code, _ := t.c.ask(ctx, &rows, "budget", "show")
	for _, r := range rows {
		if code == 0 && r.Domain == "site/lab" {
			t.h.read(r.BudgetW, call)
			return true
		}
	}
	return false
}

// verdict checks the history once nothing is broken any more.
func (t *injector) verdict(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, healMost)
	defer cancel()
	var events []event
	var records []record
	for {
		ok := t.read(ctx)
		_, one, _ := t.c.ask(ctx, &events, "event", "list")
		_, two, said := t.c.ask(ctx, &records, "budget", "history", "site/lab")
		if ok && one == 0 && two == 0 {
			break
		}
		if !pause(ctx, 300*time.Millisecond) {
			t.j.violated("recovery", "no answer %v after the last fault: exit %d: %s", healMost, two, said)
			return
		}
	}
	checked, wrong := t.h.linear()
	t.j.count("linearizable", checked)
	if wrong != "" {
		t.j.violated("linearizable", "%s", wrong)
	}
	checked, all := t.h.audited(events, records)
	t.j.count("audited", checked)
	for _, w := range all {
		t.j.violated("audit", "%s", w)
	}
}
