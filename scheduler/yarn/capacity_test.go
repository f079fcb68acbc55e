// Claims: of the capacity scheduler's configuration only maximum-capacity of the named queues
// changes, and comes back when the engine lets go, stops or was killed; the operator's edits win;
// the queues hold exactly their shares, whatever the cluster's size and the parents' maxima, but
// never less than is guaranteed to them, which is said; what the ResourceManager refuses is said
// in words, and a restart or failover of it is met.
package yarn

import (
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	headroomv1 "headroom/api/headroom/v1"
	"headroom/internal/testkit"
)

// teams are the queues of an operator: q1 and q2 below root, dev with a and b. The plant's two nodes have 16 units
// of 512 MB together by memory, 8 by vcores.
func teams() map[string]string {
	return map[string]string{
		"root.queues": "q1,q2,dev", "root.q1.capacity": "25", "root.q2.capacity": "50", "root.q2.maximum-capacity": "90", "root.dev.capacity": "25",
		"root.dev.maximum-capacity": "50", "root.dev.queues": "a,b", "root.dev.a.capacity": "40", "root.dev.b.capacity": "60",
		"maximum-am-resource-percent": "0.5",
	}
}

// inTeams runs a story with a capacity scheduler, and a job in root.q1 and another in root.dev.a.
func inTeams(t *testing.T, properties map[string]string, story func(l *lab, k *capacityPlant, first, second string)) {
	t.Helper()
	inLab(t, func(l *lab) {
		l.cfg.Shares, l.cfg.Hooks = sharesCapacity, ""
		l.cfg.Queues = []Queue{{Name: "root.q1"}, {Name: "root.dev.a"}}
		k := l.plant.capacity(properties)
		a, b := l.plant.submit("root.q1", 40, 0), l.plant.submit("root.dev.a", 40, 0)
		a.taskTime, b.taskTime = time.Hour, time.Hour
		l.start()
		l.pass(6 * time.Second)
		story(l, k, l.plant.id(a), l.plant.id(b))
	})
}

// give tells shares, by job.
func (l *lab) give(shares map[string]int) error {
	d := &headroomv1.ShareDirective{Engine: Name}
	for _, id := range slices.Sorted(maps.Keys(shares)) {
		d.Jobs = append(d.Jobs, &headroomv1.JobShare{Id: id, Containers: uint32(shares[id])})
	}
	return l.engine.Share(d)
}

// holds is how many containers a queue may hold by the plant.
func (l *lab) holds(queue string) int {
	return l.plant.cs.holds(queue, l.cfg.Container, l.plant.size())
}

// own are the operator's maxima in the plant.
func (k *capacityPlant) own() map[string]string {
	own := maps.Clone(k.conf)
	maps.DeleteFunc(own, func(name, _ string) bool { return !strings.HasSuffix(name, keyMaximum) })
	return own
}

func TestSharesByCapacity(t *testing.T) {
	t.Parallel()
	inTeams(t, teams(), func(l *lab, k *capacityPlant, first, second string) {
		before := k.own()
		if l.trouble() != "" {
			l.Errorf("trouble %q", l.trouble())
		}
		for _, shares := range [][2]int{{6, 5}, {13, 2}, {4, 8}} {
			if err := l.give(map[string]int{first: shares[0], second: shares[1]}); err != nil {
				l.Error(err)
			}
			if q1, a := l.holds("root.q1"), l.holds("root.dev.a"); q1 != shares[0] || a != shares[1] {
				l.Errorf("the queues hold %d and %d, want %v; %v", q1, a, shares, k.conf)
			}
			l.pass(3 * time.Second)
		}
		puts := len(k.puts)
		l.pass(30 * time.Second)
		if len(k.puts) != puts {
			l.Errorf("it goes on writing: %q", k.puts[puts:])
		}
		for name, value := range k.conf {
			if named := name == capacityPrefix+"root.q1"+keyMaximum || name == capacityPrefix+"root.dev.a"+keyMaximum; !named && teams()[strings.TrimPrefix(name, capacityPrefix)] != value {
				l.Errorf("%s has become %s", name, value)
			}
		}
		l.plant.loseNode("node2") // half of the cluster: the same containers are twice the part
		l.pass(2 * time.Second)
		if q1, a := l.holds("root.q1"), l.holds("root.dev.a"); q1 != 4 || a != 4 || !strings.Contains(l.said.String(), "because of its parent's maximum") {
			l.Errorf("on one node the queues hold %d and %d; %v", q1, a, k.conf)
		}
		if err := l.give(nil); err != nil || fmt.Sprint(k.own()) != fmt.Sprint(before) {
			l.Errorf("let go, %v; the maxima are %v, were %v", err, k.own(), before)
		}
	})
}

// What is guaranteed is the operator's word.
func TestGuaranteedCapacityStays(t *testing.T) {
	t.Parallel()
	inTeams(t, teams(), func(l *lab, k *capacityPlant, first, second string) {
		err := l.give(map[string]int{first: 2, second: 3})
		if !errors.Is(err, errShares) || !strings.Contains(err.Error(), "queue root.q1 keeps 4 containers, its guaranteed capacity, although its share is 2; lower its capacity") {
			l.Errorf("%v", err)
		}
		if q1, a := l.holds("root.q1"), l.holds("root.dev.a"); q1 != 4 || a != 3 || k.maximum("root.q1") != "25.000000" {
			l.Errorf("the queues hold %d and %d, %v", q1, a, k.conf)
		}
		if l.pass(2 * time.Second); l.trouble() != "" {
			l.Errorf("that is no trouble of the engine: %q", l.trouble())
		}
	})
}

// Values come back when the engine stops, when it was killed, and when shares are set another way since.
func TestCapacityComesBack(t *testing.T) {
	t.Parallel()
	for about, end := range map[string]func(l *lab, k *capacityPlant){
		"stopped": func(l *lab, _ *capacityPlant) { l.stop() },
		"killed and stopped": func(l *lab, k *capacityPlant) {
			killed(l)
			l.start()
			l.pass(3 * time.Second)
			l.stop()
		},
		"killed and switched": func(l *lab, k *capacityPlant) {
			killed(l)
			l.cfg.Shares = sharesNone
			l.start()
			l.pass(3 * time.Second)
		},
		"killed and let go": func(l *lab, k *capacityPlant) {
			killed(l)
			l.start()
			l.pass(3 * time.Second)
			testkit.Check(l, l.give(nil))
		},
		"away at the end": func(l *lab, k *capacityPlant) {
			l.plant.with(func() {
				l.plant.fault = func(_ string, w *httptest.ResponseRecorder) bool { w.Code = 999; return true }
			})
			l.stop()
			if !strings.Contains(l.said.String(), "the next start of the scheduler restores them") {
				l.Error("it was not said")
			}
			l.plant.with(func() { l.plant.fault = nil })
			l.start()
			l.pass(3 * time.Second)
			l.stop()
		},
	} {
		t.Run(about, func(t *testing.T) {
			t.Parallel()
			properties := teams()
			properties["root.q1.maximum-capacity"] = "80"
			inTeams(t, properties, func(l *lab, k *capacityPlant, first, second string) {
				before := k.own()
				testkit.Check(l, l.give(map[string]int{first: 6, second: 5}))
				if k.maximum("root.q1") == "80" {
					l.Fatal("nothing was written")
				}
				end(l, k)
				if fmt.Sprint(k.own()) != fmt.Sprint(before) {
					l.Errorf("the maxima are %v, were %v", k.own(), before)
				}
			})
		})
	}
}

// killed ends the engine without a word to the ResourceManager, as kill -9 does.
func killed(l *lab) {
	l.plant.with(func() {
		l.plant.fault = func(_ string, w *httptest.ResponseRecorder) bool { w.Code = 999; return true }
	})
	l.stop()
	l.plant.with(func() { l.plant.fault = nil })
}

// An operator's edit wins, also one between the engine's read and write, and is what comes back.
func TestOperatorsCapacityWins(t *testing.T) {
	t.Parallel()
	inTeams(t, teams(), func(l *lab, k *capacityPlant, first, second string) {
		testkit.Check(l, l.give(map[string]int{first: 6, second: 5}))
		l.plant.with(func() { k.edit("root.q1", "70") })
		l.pass(2 * time.Second)
		if l.holds("root.q1") != 6 {
			l.Errorf("after an edit q1 holds %d: %v", l.holds("root.q1"), k.conf)
		}
		l.plant.with(func() { k.before = func() { k.edit("root.dev.a", "77") } })
		testkit.Check(l, l.give(map[string]int{first: 7, second: 5}))
		l.pass(2 * time.Second)
		if q1, a := l.holds("root.q1"), l.holds("root.dev.a"); q1 != 7 || a != 5 {
			l.Errorf("the queues hold %d and %d", q1, a)
		}
		testkit.Check(l, l.give(nil))
		if q1, a := k.maximum("root.q1"), k.maximum("root.dev.a"); q1 != "70" || a != "77" {
			l.Errorf("the edits are %s and %s", q1, a)
		}
	})
}

// A ResourceManager that keeps its changes in memory comes back with the operator's file; so does the standby that takes
// over. An answer that is lost loses nothing.
func TestResourceManagerRestarts(t *testing.T) {
	t.Parallel()
	inTeams(t, teams(), func(l *lab, k *capacityPlant, first, second string) {
		before := k.own()
		testkit.Check(l, l.give(map[string]int{first: 6, second: 5}))
		l.plant.with(func() { k = l.plant.capacity(teams()) })
		l.pass(3 * time.Second)
		if q1, a := l.holds("root.q1"), l.holds("root.dev.a"); q1 != 6 || a != 5 {
			l.Errorf("after a restart the queues hold %d and %d", q1, a)
		}
		l.plant.with(func() { k.lost = true })
		if err := l.give(map[string]int{first: 9, second: 5}); err == nil {
			l.Error("the answer was lost, and nothing is said")
		}
		l.plant.with(func() { k.lost = false })
		l.pass(capacityRetry + 2*time.Second)
		if l.holds("root.q1") != 9 || l.trouble() != "" {
			l.Errorf("q1 holds %d, trouble %q", l.holds("root.q1"), l.trouble())
		}
		testkit.Check(l, l.give(nil))
		if fmt.Sprint(k.own()) != fmt.Sprint(before) {
			l.Errorf("the maxima are %v, were %v", k.own(), before)
		}
	})
}

func TestCapacityOfTheActive(t *testing.T) {
	t.Parallel()
	inLab(t, func(l *lab) {
		l.cfg.ResourceManager = []string{"http://rm1:8088", "http://rm2:8088"}
		l.cfg.Shares, l.cfg.Hooks = sharesCapacity, ""
		l.plant.capacity(teams())
		l.plant.standby["rm1:8088"] = true
		a := l.plant.submit("root.q1", 40, 0)
		l.start()
		l.pass(6 * time.Second)
		l.engine.client.prefer(0) // it became the active one, as far as was known
		testkit.Check(l, l.engine.client.update(l.Context(), []maximum{{"root.q1", new("60")}}))
		if l.plant.cs.maximum("root.q1") != "60" {
			l.Errorf("%s: %v", l.plant.id(a), l.plant.cs.conf)
		}
		l.plant.standby["rm2:8088"] = true
		if err := l.engine.client.update(l.Context(), []maximum{{"root.q1", new("61")}}); !errors.Is(err, errStandby) {
			l.Errorf("%v", err)
		}
	})
}

// What stands in the way is an engine's trouble, in words, before the first cut where it can be; shares are set as soon as
// it is gone.
func TestCapacityTroubles(t *testing.T) {
	t.Parallel()
	for about, c := range map[string]struct {
		spoil func(l *lab, k *capacityPlant)
		early bool
		words string
	}{
		"not mutable":    {func(_ *lab, k *capacityPlant) { k.fixed = true }, true, "yarn.scheduler.configuration.store.class in yarn-site.xml set to memory"},
		"fair scheduler": {func(l *lab, _ *capacityPlant) { l.plant.cs = nil }, true, "configuration of the ResourceManager's FairScheduler cannot be changed"},
		"a parent":       {func(_ *lab, k *capacityPlant) { k.conf[capacityPrefix+"root.dev.a.queues"] = "x" }, true, "queue root.dev.a: no such queue in the capacity scheduler, or not a leaf"},
		"no such queue":  {func(_ *lab, k *capacityPlant) { k.conf[capacityPrefix+"root.queues"] = "q2,dev" }, true, "queue root.q1: no such queue"},
		"made by itself": {func(_ *lab, k *capacityPlant) { delete(k.conf, capacityPrefix+"root.q1"+keyCapacity) }, true, "queue root.q1 was created by the ResourceManager"},
		"mixed units": {func(_ *lab, k *capacityPlant) {
			k.conf[capacityPrefix+"root.q1"+keyCapacity] = "[memory=50%,vcores=2w]"
		}, true, "mixes units"},
		"other resources": {func(_ *lab, k *capacityPlant) {
			k.conf[capacityPrefix+"root.q1"+keyCapacity] = "[memory=1024,vcores=2,yarn.io/gpu=1]"
		}, true, "resources other"},
		"not heeded": {func(_ *lab, k *capacityPlant) { k.heedless = true }, false, "but the scheduler uses 50 % of the cluster instead of 32.81 %"},
		"refused": {func(l *lab, _ *capacityPlant) {
			l.plant.fault = func(path string, w *httptest.ResponseRecorder) bool {
				if strings.HasSuffix(path, "/scheduler-conf") && w.Body.Len() > 0 && !strings.HasPrefix(w.Body.String(), "{") {
					w.Code = http.StatusForbidden
					w.Body.Reset()
					w.Body.WriteString(`{"RemoteException":{"exception":"ForbiddenException","message":"Only admin can carry out this operation.","javaClassName":"X"}}`)
				}
				return true
			}
		}, false, "refused with status 403: Only admin can carry out this operation."},
		"nonsense": {func(l *lab, _ *capacityPlant) {
			l.plant.fault = func(path string, w *httptest.ResponseRecorder) bool {
				if strings.HasSuffix(path, "/scheduler-conf") {
					w.Body.Reset()
					w.Body.WriteString(`{"property":[]}`)
				}
				return true
			}
		}, true, "no properties of the capacity scheduler"},
	} {
		t.Run(about, func(t *testing.T) {
			t.Parallel()
			inTeams(t, teams(), func(l *lab, k *capacityPlant, first, second string) {
				l.plant.with(func() { c.spoil(l, k) })
				l.pass(capacityLook + 2*time.Second)
				if early := strings.Contains(l.trouble(), c.words); early != c.early {
					l.Errorf("before the first cut: %q", l.trouble())
				}
				if err := l.give(map[string]int{first: 6, second: 5}); err == nil || !strings.Contains(err.Error(), c.words) {
					l.Errorf("%v, want %q", err, c.words)
				}
				if l.pass(time.Second); !strings.Contains(l.trouble(), c.words) {
					l.Errorf("trouble %q, want %q", l.trouble(), c.words)
				}
				l.plant.with(func() { l.plant.fault, l.plant.cs = nil, nil; l.plant.capacity(teams()) })
				l.pass(2*capacityRetry + 2*time.Second)
				if q1, a := l.holds("root.q1"), l.holds("root.dev.a"); q1 != 6 || a != 5 || l.trouble() != "" {
					l.Errorf("once it is mended the queues hold %d and %d, trouble %q", q1, a, l.trouble())
				}
			})
		})
	}
}

// Where capacities are amounts of resources, maxima are too.
func TestAmountsOfResources(t *testing.T) {
	t.Parallel()
	properties := map[string]string{
		"root.queues": "q1,dev", "root.q1.capacity": "[memory=1024,vcores=1]", "root.dev.capacity": "[memory=4096,vcores=4]", "root.dev.queues": "a",
		"root.dev.maximum-capacity": "[memory=4096,vcores=4]", "root.dev.a.capacity": "[memory=512,vcores=1]", "root.dev.a.maximum-capacity": "[memory=1024,vcores=2]",
		"resource-calculator": "org.apache.hadoop.yarn.util.resource.DominantResourceCalculator",
	}
	inTeams(t, properties, func(l *lab, k *capacityPlant, first, second string) {
		testkit.Check(l, l.give(map[string]int{first: 5, second: 3}))
		if q1, a := k.maximum("root.q1"), k.maximum("root.dev.a"); q1 != "[memory=2560,vcores=5]" || a != "[memory=1536,vcores=3]" {
			l.Errorf("%s and %s", q1, a)
		}
		err := l.give(map[string]int{first: 0, second: 7})
		if err == nil || !strings.Contains(err.Error(), "queue root.dev.a cannot use its share of 7 containers") || k.maximum("root.dev.a") != "[memory=3584,vcores=4]" {
			l.Errorf("%v, %s", err, k.maximum("root.dev.a"))
		}
		testkit.Check(l, l.give(nil))
		if _, set := k.conf[capacityPrefix+"root.q1"+keyMaximum]; set || k.maximum("root.dev.a") != "[memory=1024,vcores=2]" {
			l.Errorf("let go: %v", k.conf)
		}
	})
}

// With a calculator of all resources the scarcer one decides.
func TestScarcerResource(t *testing.T) {
	t.Parallel()
	properties := teams()
	properties["resource-calculator"] = "org.apache.hadoop.yarn.util.resource.DominantResourceCalculator"
	inTeams(t, properties, func(l *lab, k *capacityPlant, first, second string) {
		testkit.Check(l, l.give(map[string]int{first: 4, second: 2})) // of 8 vcores; 16 by memory
		if k.maximum("root.q1") != "53.125000" {
			l.Errorf("%v", k.conf)
		}
	})
}

// Whatever the sizes, the guarantees and the shares: a queue holds its share, at least what is guaranteed, at most what
// its parent has.
func TestCapacityLaws(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		unit := Container{MemoryMB: rapid.IntRange(128, 8192).Draw(t, "unit"), VCores: 1}
		nodes := rapid.IntRange(1, 2000).Draw(t, "nodes")
		size := Container{MemoryMB: nodes * max(unit.MemoryMB, rapid.IntRange(1024, 1<<20).Draw(t, "memory")), VCores: nodes * 64}
		parent := float64(rapid.IntRange(1, 100).Draw(t, "parent")) / 100
		guaranteed := parent * float64(rapid.IntRange(0, 100).Draw(t, "guaranteed")) / 100
		all := int(float64(size.MemoryMB) / float64(unit.MemoryMB))
		n := rapid.IntRange(0, all).Draw(t, "share")
		h := capacityHold{name: "root.q", queue: capacityQueue{guaranteed: guaranteed, most: 1}, parent: capacityQueue{most: parent}, containers: n, unit: unit, size: size}
		value, words, err := h.percent()
		if err != nil {
			t.Fatal(err)
		}
		var percent float32
		if _, err := fmt.Sscan(value, &percent); err != nil || percent > 100 {
			t.Fatalf("%q, %v", value, err)
		}
		holds := int(float64(percent) / 100 * parent * float64(size.MemoryMB) / float64(unit.MemoryMB))
		least, most := int(guaranteed*float64(size.MemoryMB)/float64(unit.MemoryMB)), int(parent*float64(size.MemoryMB)/float64(unit.MemoryMB)+1e-3)
		switch {
		case words == "" && holds != n && !(n > 0 && holds == most && holds == n-1):
			t.Fatalf("%s of %v holds %d, want %d", value, size, holds, n)
		case words != "" && holds < min(n, most)-1, holds < least-1, holds > max(n, least)+1:
			t.Fatalf("%s of %v holds %d, want %d, from %d to %d: %s", value, size, holds, n, least, most, words)
		}
	})
}

// Merging twice is merging once, own values stay known, and letting go gives them back.
func TestMergeMaxima(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		conf, before := map[string]string{"yarn.scheduler.capacity.root.queues": "a,b"}, map[string]ownMaximum{}
		operators := map[string]string{}
		draw := func(queue string) string {
			return rapid.SampledFrom([]string{"10", "20", "30", "mine", "yours"}).Draw(t, queue)
		}
		for range rapid.IntRange(1, 20).Draw(t, "steps") {
			queue := rapid.SampledFrom([]string{"root.a", "root.b"}).Draw(t, "queue")
			key := capacityPrefix + queue + keyMaximum
			if rapid.IntRange(0, 3).Draw(t, "who") == 0 { // the operator edits, with a value that is not the engine's
				value := "op" + draw(queue)
				conf[key], operators[key] = value, value
				continue
			}
			want := map[string]string{}
			for _, q := range []string{"root.a", "root.b"} {
				if rapid.Bool().Draw(t, "wanted "+q) {
					want[q] = draw(q)
				}
			}
			m := mergeMaxima(conf, want, before)
			before = m.during
			if rapid.Bool().Draw(t, "killed before the write") {
				continue
			}
			for _, u := range m.updates {
				delete(conf, capacityPrefix+u.queue+keyMaximum)
				if u.value != nil {
					conf[capacityPrefix+u.queue+keyMaximum] = *u.value
				}
			}
			if rapid.Bool().Draw(t, "killed after it") {
				continue
			}
			again := mergeMaxima(conf, want, before)
			if before = again.after; len(again.updates) != 0 {
				t.Fatalf("merged again it writes %v", again.updates)
			}
			for q, value := range want {
				if conf[capacityPrefix+q+keyMaximum] != value {
					t.Fatalf("%s is %s, want %s", q, conf[capacityPrefix+q+keyMaximum], value)
				}
			}
		}
		for _, u := range mergeMaxima(conf, nil, before).updates {
			delete(conf, capacityPrefix+u.queue+keyMaximum)
			if u.value != nil {
				conf[capacityPrefix+u.queue+keyMaximum] = *u.value
			}
		}
		operators["yarn.scheduler.capacity.root.queues"] = "a,b"
		if fmt.Sprint(conf) != fmt.Sprint(operators) {
			t.Fatalf("let go: %v, the operator's is %v", conf, operators)
		}
	})
}

// Notes of another cluster, or damaged ones, are not guessed over.
func TestCapacityNotes(t *testing.T) {
	t.Parallel()
	for text, words := range map[string]string{
		"{": "are unreadable",
		`{"resourcemanager":["http://x:1"],"queues":{"root.q1":{"value":"80","written":["1"]}}}`: "of another cluster, http://x:1",
	} {
		inTeams(t, teams(), func(l *lab, k *capacityPlant, first, second string) {
			l.stop()
			testkit.WriteFile(t, filepath.Join(l.dir, "yarn-capacity.json"), text)
			l.start()
			l.pass(2 * time.Second)
			if err := l.give(map[string]int{first: 6}); err == nil || !strings.Contains(l.trouble(), words) || len(k.puts) != 0 {
				l.Errorf("%v, trouble %q, written %q", err, l.trouble(), k.puts)
			}
			testkit.Check(t, os.Remove(filepath.Join(l.dir, "yarn-capacity.json")))
		})
	}
}
