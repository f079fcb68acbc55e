// Claim: what stands in the log means the same to every later server: the
// encoding of each command is fixed, and unknown parts are refused, never skipped.
package ledger_test

import (
	"bytes"
	"errors"
	"flag"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"headroom/budget"
	"headroom/lease"
	"headroom/ledger"
	"headroom/units"
)

var update = flag.Bool("update", false, "write the golden files anew")

// everyCommand is at least one command of each kind, with every field set.
func everyCommand() map[string]ledger.Command {
	revision := uint64(12)
	s := sighting("n01")
	s.Process = 1<<64 - 1
	by := func(actor, reason string) func(ledger.Command) ledger.Command {
		return func(c ledger.Command) ledger.Command {
			c.Rules, c.Epoch, c.At = 1, lease.Epoch{Incarnation: 2, Term: 7}, 1_700_000_000_000_000
			c.Actor, c.Reason, c.RequestID = actor, reason, "01J0000000000000000A"
			return c
		}
	}
	plain, deflating, denying := by("mia", "summer heat"), by("scheduler", "class low"), by("mia", "stolen")
	running := func(c ledger.Command) ledger.Command {
		c = deflating(c)
		c.Rules = ledger.RulesOfRuns
		return c
	}
	noting := func(c ledger.Command) ledger.Command {
		c = by("submitter/ann via scheduler/s1", "maintenance")(c)
		c.Rules = ledger.RulesOfNotes
		return c
	}
	full := func(c ledger.Command) ledger.Command {
		c.Check = &revision
		return plain(c)
	}
	part, nodes, keep := 0.2, 2, ledger.LostFailSafe
	low, high, spent := 100*watt, 200*watt, units.Energy(1234)
	return map[string]ledger.Command{
		"lead": full(ledger.Command{Lead: &ledger.Lead{Server: "c1"}}),
		"found": full(ledger.Command{Found: &ledger.Found{Domains: ledger.PlainDomains([]budget.Domain{
			{Name: "site/lab", Budget: 800 * watt}, {Name: "rack/r1", Parent: "site/lab", Budget: 400 * watt, Unmanaged: 20 * watt},
		})}}),
		"tick": full(ledger.Command{Tick: &ledger.Tick{
			Elapsed: time.Second, Seen: []ledger.Sighting{s},
			Acks:    []ledger.Ack{{Node: "n01", Process: s.Process, Number: 9, Seq: 3, Effective: 190 * watt, Stored: 90 * watt}},
			Admit:   []string{"n02"},
			Targets: []ledger.Target{{Node: "n01", Cap: 190*watt + watt/8}},
		}}),
		"tick-empty": {Rules: 1, Epoch: first(), Tick: &ledger.Tick{Elapsed: time.Second}},
		"budget": full(ledger.Command{Budget: &ledger.SetBudget{
			Domain: "site/lab", Budget: 500 * watt, Force: true, Targets: []ledger.Target{{Node: "n01", Cap: 100 * watt}},
		}}),
		"budget-keyed": {
			Rules: 2, Epoch: first(), Actor: "s1", RequestID: "night-cut", Requester: ledger.Requester{Caller: "scheduler/s1", User: "submitter/ann"}, Content: "c0ffee",
			Budget: &ledger.SetBudget{Domain: "site/lab", Budget: 500 * watt},
		},
		"release": full(ledger.Command{Release: &ledger.Release{Node: "n01", MachineID: "machine-n01"}}),
		"job": full(ledger.Command{Job: &ledger.Job{
			ID: "wc-7", Name: "wc", Class: "gold", Spec: []byte("name: wc\n"), Submitted: 1_700_000_000_000_001, State: ledger.JobAccepted,
		}}),
		"finish": full(ledger.Command{Finish: &ledger.FinishJob{
			ID: "wc-7", State: ledger.JobDone, Outcome: "all done", Tasks: 8, Done: 7, Runtime: time.Minute,
		}}),
		"tick-2": plain(ledger.Command{Tick: &ledger.Tick{
			Seen:   []ledger.Sighting{{Node: "n01", MachineID: "machine-n01", Granted: true}},
			Acks:   []ledger.Ack{{Node: "n01", Process: process, Number: 9, Seq: 3, Sprinting: true, Ended: []ledger.SprintSpent{{ID: "s1", Spent: &spent}, {ID: "s2"}}}},
			Lapsed: []ledger.Lapse{{Node: "n02", Seq: 4}}, EndSprints: []ledger.EndSprint{{ID: "s1", Why: "time"}},
		}}),
		"budget-2": plain(ledger.Command{Budget: &ledger.SetBudget{
			Domain: "site/lab", Budget: 500 * watt, Until: 1_700_000_360_000_000,
			Clock: &ledger.Clock{Schedule: "evening", Due: 1_700_000_000_000_000, Servers: map[string]int64{"c1": 1_700_000_000_000_001}, Voters: 3},
		}}),
		"hold-scheduler":    {Rules: 3, Epoch: first(), Actor: "s1", HoldScheduler: holds("p2", 4294967297)},
		"release-scheduler": {Rules: 3, Epoch: first(), Actor: "s1", Reason: "the scheduler stops", ReleaseScheduler: &ledger.ReleaseScheduler{Epoch: 4294967298}},
		"finish-fenced": {
			Rules: 3, Epoch: first(), Actor: "s1", SchedulerEpoch: 4294967298, Finish: &ledger.FinishJob{ID: "wc-7", State: ledger.JobDone},
		},
		"finish-course": {
			Rules: ledger.RulesOfCourses, Epoch: first(), Actor: "s1", Finish: &ledger.FinishJob{ID: "wc-7", State: ledger.JobDone, Course: &ledger.JobCourse{
				Began: 1_700_000_000_000_000, Ended: 1_700_000_060_000_000, Wasted: time.Second, Work: time.Minute, Slots: 4, Longest: 20 * time.Second, Input: 4096,
			}},
		},
		"upgrade": plain(ledger.Command{Upgrade: &ledger.Upgrade{Rules: 2}}),
		"domain": plain(ledger.Command{Domain: &ledger.SetDomain{
			Name: "pdu/p1", Parent: "rack/r1", Budget: 300 * watt, Unmanaged: &low, Rating: &high, Margin: &part, BootNodes: &nodes, LostCharge: &keep,
		}}),
		"remove-domain": plain(ledger.Command{RemoveDomain: &ledger.Named{Name: "pdu/p1"}}),
		"node": plain(ledger.Command{Node: &ledger.SetNode{Node: "n01", Settings: ledger.Settings{
			Min: &low, Max: &high, FailSafe: &low, Weight: &part, BMC: "10.0.0.1:623", Labels: map[string]string{"app": "spark"},
		}}}),
		"move":            plain(ledger.Command{Move: &ledger.MoveNode{Node: "n01", To: "rack/r2"}}),
		"drain":           plain(ledger.Command{Drain: &ledger.DrainNode{Node: "n01", Resume: true}}),
		"remove":          plain(ledger.Command{Remove: &ledger.RemoveNode{Node: "n01", PoweredOff: true}}),
		"power-off":       plain(ledger.Command{PowerOff: &ledger.PowerOff{Node: "n01", By: "bmc"}}),
		"policy":          plain(ledger.Command{Policy: &ledger.Named{Name: "progress"}}),
		"brake":           plain(ledger.Command{Brake: &ledger.SetBrake{Generation: 7}}),
		"lift-brake":      plain(ledger.Command{LiftBrake: &ledger.LiftBrake{Generation: 7}}),
		"sprint-budget":   plain(ledger.Command{SprintBudget: &ledger.SetSprintBudget{Domain: "rack/r1", Capacity: 6 * units.Kilojoule, Refill: 10 * watt, Shares: map[string]float64{"gold": 0.5}}}),
		"sprint":          plain(ledger.Command{Sprint: &ledger.GrantSprint{ID: "s1", Job: "wc-7", Class: "gold", Domain: "rack/r1", Duration: time.Minute, Caps: []ledger.Target{{Node: "n01", Cap: 200 * watt}}}}),
		"end-sprint":      plain(ledger.Command{EndSprint: &ledger.EndSprint{ID: "s1", Why: "operator"}}),
		"schedule":        plain(ledger.Command{Schedule: &ledger.SetSchedule{Name: "evening", Domain: "site/lab", Cron: "0 18 * * 1-5", Zone: "Europe/Berlin", Budget: 600 * watt}}),
		"schedule-2":      plain(ledger.Command{Schedule: &ledger.SetSchedule{Name: "night", Domain: "rack/r1", Cron: "0 22 * * *", Budget: 60 * watt, Force: true}}),
		"remove-schedule": plain(ledger.Command{RemoveSchedule: &ledger.Named{Name: "evening"}}),
		"reincarnate":     plain(ledger.Command{Reincarnate: &ledger.Reincarnate{Above: 3}}),
		"token":           plain(ledger.Command{Token: &ledger.Token{ID: "t1", Name: "mia", Role: ledger.RoleOperator, Hash: ledger.TokenHash("secret"), Created: 1, Expires: 2}}),
		"revoke-token":    plain(ledger.Command{RevokeToken: &ledger.Named{Name: "t1"}}),
		"server":          plain(ledger.Command{Server: &ledger.Server{ID: "c4", RPC: "10.0.0.14:7400", Raft: "10.0.0.14:7401"}}),
		"remove-server":   plain(ledger.Command{RemoveServer: &ledger.Named{Name: "c4"}}),
		"ack-alarm":       plain(ledger.Command{AckAlarm: &ledger.Named{Name: "node-lost/n16"}}),
		"job-3": plain(ledger.Command{Job: &ledger.Job{
			ID: "job_1700000000000_0001", Name: "wc", Class: "root.q2", Spec: []byte("{}"), Submitted: 1_700_000_000_000_001, State: ledger.JobAccepted,
			Engine: "yarn", Queue: "root.q2", Floor: 0.75,
		}}),
		"set-uncapped":     plain(ledger.Command{SetUncapped: &ledger.SetUncapped{ID: "wc-7", Uncapped: 95 * time.Second}}),
		"stop-job":         plain(ledger.Command{StopJob: &ledger.StopJob{ID: "wc-7", Tasks: 40, MinTasks: 30}}),
		"drop-tasks":       plain(ledger.Command{DropTasks: &ledger.DropTasks{ID: "wc-7", Ranges: []ledger.TaskRange{{First: 31, Last: 31}, {First: 35, Last: 38}}}}),
		"container-policy": plain(ledger.Command{ContainerPolicy: &ledger.Named{Name: "paper"}}),
		"job-4": deflating(ledger.Command{Job: &ledger.Job{
			ID: "wc-8", Name: "wc", Class: "low", Spec: []byte("{}"), Submitted: 1_700_000_000_000_001, State: ledger.JobAccepted,
			Floor: 0.75, Rank: 1, Deadline: 10 * time.Minute,
		}}),
		"job-admission": deflating(ledger.Command{Job: &ledger.Job{
			ID: "wc-9", Name: "wc", Class: "low", Spec: []byte("{}"), Submitted: 1_700_000_000_000_001, State: ledger.JobAccepted, Deadline: 10 * time.Minute,
			Admission: &ledger.Admission{
				Decision: ledger.AdmissionAdmitted, Slots: 8, Need: 7, Free: 12, Work: new(2400.5), Confidence: new(0.9), Samples: 31,
				Until: 1_700_000_000_000_002, Finish: 1_700_000_000_000_003, Reason: "8 of 12 free slots do its work in 5m",
			},
		}}),
		"job-scaling": deflating(ledger.Command{Job: &ledger.Job{
			ID: "wc-10", Name: "wc", Class: "low", Spec: []byte("{}"), Submitted: 1_700_000_000_000_001, State: ledger.JobAccepted, Scaling: &ledger.Scaling{
				Points: []ledger.ScalingPoint{{Containers: 1, Speedup: 1}, {Containers: 21, Speedup: 9.5}, {Containers: 26, Speedup: 9.25}}, Runs: 6, Type: "IV", Error: 0.04,
			},
		}}),
		"finish-4": deflating(ledger.Command{Finish: &ledger.FinishJob{
			ID: "wc-8", State: ledger.JobDone, Outcome: "all done", Tasks: 8, Done: 8, Runtime: time.Minute,
			Energy: &ledger.JobEnergy{Energy: 12_340_000_000, Measured: 119 * time.Second, Unknown: time.Second, Since: 1_700_000_000_000_002, From: []string{"packages"}},
		}}),
		"deflate-job": deflating(ledger.Command{DeflateJob: &ledger.DeflateJob{ID: "wc-7", Theta: 0.2, Seed: 1<<64 - 1}}),
		"deny":        denying(ledger.Command{Deny: &ledger.Denial{Identity: "node/n03", At: 1, Actor: "c1", Reason: "stolen"}}),
		"note":        noting(ledger.Command{Note: &ledger.Note{What: "scheduler drained"}}),
		"deny-one":    denying(ledger.Command{Deny: &ledger.Denial{Serial: "3f9a01c5"}}),
		"tick-5":      denying(ledger.Command{Tick: &ledger.Tick{Drawn: []ledger.Draw{{Node: "n01", Power: 200 * watt}}}}),
		"domain-5":    denying(ledger.Command{Domain: &ledger.SetDomain{Name: "pdu/p1", RatedMax: new(200 * watt)}}),
		"node-5":      denying(ledger.Command{Node: &ledger.SetNode{Node: "n01", Settings: ledger.Settings{Rated: new(200 * watt)}}}),
		"set-lease":   denying(ledger.Command{SetLease: &ledger.SetLease{Length: 20 * time.Second}}),
		"job-inputs": running(ledger.Command{Job: &ledger.Job{
			ID: "wc-11", Name: "wc", Class: "low", Spec: []byte("{}"), Submitted: 1_700_000_000_000_001, State: ledger.JobAccepted, Floor: 0.5,
			Inputs: &ledger.JobInputs{Tasks: 40, Digest: bytes.Repeat([]byte{7}, 32)},
		}}),
		"run-job": running(ledger.Command{RunJob: &ledger.RunJob{ID: "wc-11", Drop: []ledger.TaskRange{{First: 31, Last: 33}}, Run: ledger.JobRun{
			Number: 2, Began: 1_700_000_000_000_002, Started: 1_700_000_000_000_001, Theta: 0.25, Seed: 1<<64 - 1, Decided: true, Why: "class low",
			Sprint: true, SprintAfter: 90 * time.Second, Stopping: "high",
		}}}),
		"run-over":   running(ledger.Command{RunJob: &ledger.RunJob{ID: "wc-11", Run: ledger.JobRun{Number: 2, Began: 1, Over: true}}}),
		"skip-brake": denying(ledger.Command{SkipBrake: &ledger.SkipBrake{Generation: 9}}),
	}
}

func TestCommandEncoding(t *testing.T) {
	t.Parallel()
	for name, c := range everyCommand() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			data, err := c.Encode()
			if err != nil {
				t.Fatal(err)
			}
			golden(t, "commands/"+name+".json", string(data)+"\n")
			back, err := ledger.Decode(data)
			if err != nil || !reflect.DeepEqual(back, c) {
				t.Errorf("decoded %+v, %v", back, err)
			}
		})
	}
}

// Every kind of command has a golden: a new one may not be forgotten.
func TestEveryCommandHasGolden(t *testing.T) {
	t.Parallel()
	have := map[string]bool{}
	for _, c := range everyCommand() {
		v := reflect.ValueOf(c)
		for i := range v.NumField() {
			if f := v.Field(i); f.Kind() == reflect.Pointer && f.Type().Elem().Kind() == reflect.Struct && !f.IsNil() {
				have[v.Type().Field(i).Name] = true
			}
		}
	}
	for f := range reflect.TypeFor[ledger.Command]().Fields() {
		if f.Type.Kind() == reflect.Pointer && f.Type.Elem().Kind() == reflect.Struct && !have[f.Name] {
			t.Errorf("no golden encoding of %s", f.Name)
		}
	}
}

// The snapshot's form is fixed, too: an older server's is read by a newer one.
func TestSnapshotEncoding(t *testing.T) {
	t.Parallel()
	s := crowded(t)
	must(t, s, ledger.Command{
		Epoch: first(), At: 1_700_000_000_000_000, Actor: "mia", Reason: "heat", RequestID: "r1", Budget: set("site/lab", 600),
	})
	do(t, s, ledger.Command{Job: &ledger.Job{ID: "j2", State: ledger.JobAccepted, Engine: "yarn", Queue: "root.q2", Floor: 0.75}})
	do(t, s, ledger.Command{SetUncapped: &ledger.SetUncapped{ID: "j2", Uncapped: 95 * time.Second}})
	do(t, s, ledger.Command{Reason: "late", At: 1_700_000_000_000_000, StopJob: &ledger.StopJob{ID: "j2", Tasks: 40, MinTasks: 30}})
	do(t, s, ledger.Command{DropTasks: &ledger.DropTasks{ID: "j2", Ranges: []ledger.TaskRange{{First: 38, Last: 39}, {First: 31, Last: 31}}}})
	do(t, s, ledger.Command{ContainerPolicy: &ledger.Named{Name: "paper"}})
	do(t, s, ledger.Command{Job: &ledger.Job{ID: "j3", State: ledger.JobAccepted, Floor: 0.75, Rank: 1, Deadline: 5 * time.Minute}})
	do(t, s, ledger.Command{Reason: "class low", At: 1_700_000_000_000_000, DeflateJob: &ledger.DeflateJob{ID: "j3", Theta: 0.2, Seed: 7}})
	do(t, s, ledger.Command{Job: &ledger.Job{ID: "j4", State: ledger.JobAccepted, Deadline: time.Minute, Admission: &ledger.Admission{
		Decision: ledger.AdmissionAdmitted, Slots: 3, Work: new(120.0), Reason: "3 free slots",
	}}})
	do(t, s, ledger.Command{Job: &ledger.Job{ID: "j5", State: ledger.JobAccepted, Floor: 0.5, Inputs: &ledger.JobInputs{Tasks: 12}}})
	do(t, s, ledger.Command{RunJob: &ledger.RunJob{ID: "j5", Run: ledger.JobRun{Number: 1, Began: 3}}})
	do(t, s, ledger.Command{RunJob: &ledger.RunJob{ID: "j5", Run: ledger.JobRun{Number: 1}, Drop: []ledger.TaskRange{{First: 2, Last: 4}, {First: 11, Last: 11}}}})
	do(t, s, ledger.Command{Job: &ledger.Job{ID: "j6", State: ledger.JobAccepted, Deadline: time.Second}})
	do(t, s, ledger.Command{Finish: &ledger.FinishJob{ID: "j6", State: ledger.JobDone, Course: &ledger.JobCourse{Began: 1, Ended: 2_000_000, Slots: 3}}})
	do(t, s, ledger.Command{At: 1_700_000_000_000_000, HoldScheduler: holds("p1", 0)})
	text := snapshot(t, s)
	golden(t, "snapshot.json", text+"\n")
	back, err := ledger.Restore([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	if again := snapshot(t, back); again != text {
		t.Errorf("restored:\n%s\nwant:\n%s", again, text)
	}
}

func TestDecodeRefuses(t *testing.T) {
	t.Parallel()
	for name, text := range map[string]string{
		"nothing":          ``,
		"an unknown field": `{"rules":1,"epoch":{"incarnation":1,"term":1},"gift":{}}`,
		"an unknown part":  `{"rules":1,"epoch":{"incarnation":1,"term":1},"tick":{"elapsed_ns":1,"sprint":1}}`,
		"later rules":      `{"rules":5,"epoch":{"incarnation":1,"term":1},"tick":{"elapsed_ns":1}}`,
		"no rules":         `{"epoch":{"incarnation":1,"term":1},"tick":{"elapsed_ns":1}}`,
		"text behind it":   `{"rules":1,"tick":{"elapsed_ns":1}} {}`,
		"watts in words":   `{"rules":1,"budget":{"domain":"d","budget_uw":"5W"}}`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if c, err := ledger.Decode([]byte(text)); !errors.Is(err, ledger.ErrUnknownCommand) {
				t.Errorf("decoded %+v, %v", c, err)
			}
		})
	}
}

func TestRestoreRefuses(t *testing.T) {
	t.Parallel()
	s := admitted(t, 800, "n01")
	stopped(t, s, "j1", 0.75, 40, 30)
	do(t, s, ledger.Command{DropTasks: drops("j1", 31, 33)})
	do(t, s, ledger.Command{Job: &ledger.Job{ID: "j2", State: ledger.JobAccepted, Floor: 0.8, Deadline: 300}})
	do(t, s, ledger.Command{DeflateJob: &ledger.DeflateJob{ID: "j2", Theta: 0.125}})
	good := snapshot(t, s)
	for name, edit := range map[string][2]string{
		"no nodes at all":            {`"nodes":{`, `"nodes":null,"ignored":{`},
		"a domain under two names":   {`{"name":"site/lab"`, `{"name":"site/other"`},
		"a node under two names":     {`"n01":{"name":"n01"`, `"n01":{"name":"n02"`},
		"a node of no domain":        {`"domain":"rack/r1"`, `"domain":"rack/r9"`},
		"a node without weight":      {`"weight":1`, `"weight":0`},
		"a node above all measure":   {`"rated_uw":250000000`, `"rated_uw":9223372036854775807`},
		"a domain above its own top": {`"parent":"site/lab"`, `"parent":"rack/r1"`},
		"a floor that is none":       {`"floor":0.75`, `"floor":1.5`},
		"a stop below the floor":     {`"min_tasks":30`, `"min_tasks":29`},
		"a stop above the tasks":     {`"min_tasks":30`, `"min_tasks":41`},
		"drops without a stop":       {`"stop":{"tasks":40,"min_tasks":30},`, ``},
		"drops below the stop":       {`"first":31`, `"first":20`},
		"drops of tasks not there":   {`"last":33`, `"last":40`},
		"drops that are none":        {`"first":31`, `"first":34`},
		"drops that touch":           {`"dropped":[`, `"dropped":[{"first":30,"last":30},`},
		"a drop ratio below a floor": {`"theta":0.125`, `"theta":0.25`},
		"a drop ratio that is none":  {`"theta":0.125`, `"theta":-0.1`},
		"a deadline before the job":  {`"deadline_ns":300`, `"deadline_ns":-1`},
		"half of it":                 {`"jobs"`, `"jobs`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			bad := strings.Replace(good, edit[0], edit[1], 1)
			if bad == good {
				t.Fatalf("%s is not in the snapshot: %s", edit[0], good)
			}
			if _, err := ledger.Restore([]byte(bad)); err == nil {
				t.Error("restored")
			}
		})
	}
}

// golden compares text with a file of testdata, or writes it.
func golden(t *testing.T, name, got string) {
	t.Helper()
	path := filepath.Join("testdata", filepath.FromSlash(name))
	if *update {
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatalf("%v (go test ./ledger -update writes it)", err)
	}
	if got != string(want) {
		t.Errorf("%s:\n%s\nwant:\n%s", path, got, want)
	}
}
