// Claims: a bound that the kernel's worker has not carried out yet is waited for, for all
// policies together and for no longer than is said; one that never comes is refused.
package dvfs

import (
	"errors"
	"fmt"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"headroom/units"
)

// Many policies whose workers are all late take no longer than one of them.
func TestLateWorkersAreWaitedForTogether(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		root := fixture(t, "cppc_cpufreq", nil)
		at := filepath.Join(root.Name(), cpufreqDir)
		for n := 100; n < 164; n++ {
			for file, text := range map[string]string{
				"scaling_driver": "cppc_cpufreq", "cpuinfo_min_freq": "1000000", "cpuinfo_max_freq": "2600000",
				"scaling_min_freq": "1000000", "scaling_max_freq": "2600000", "affected_cpus": fmt.Sprint(n),
			} {
				put(t, filepath.Join(at, fmt.Sprintf("policy%d", n), file), text)
			}
		}
		k := boot(root)
		k.lateBy = 25 * time.Millisecond
		set, err := find(&Set{root: root, open: numbered(k.open)})
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = set.Close() }()
		c := hands(t, set)
		began := time.Now()
		r := c.Set(1500 * mhz)
		if !r.Held() || r.Err() != nil || len(r) < 64 {
			t.Errorf("%d policies, held %v: %v", len(r), r.Held(), r.Err())
		}
		if took := time.Since(began); took > SettleMost {
			t.Errorf("it took %v of the bubble's time", took)
		}
		if highest, known := r.Highest(); !known || highest != 1500*mhz {
			t.Errorf("highest %v, %v", highest, known)
		}
		time.Sleep(time.Second) // the bubble's: workers end
	})
}

// A worker that does not come is a ceiling that is not taken; a floor that was in the
// way still goes back, though it reads back late too.
func TestLateFloorAndLostCeiling(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		set, k := started(t, "amd-pstate-epp", nil) // floor 1804 MHz
		k.lateBy = 10 * time.Millisecond
		c := hand(t, set.Policies()[0])
		for _, f := range []units.Freq{1000 * mhz, 3763 * mhz} {
			if got, err := c.Set(f); err != nil || got > f {
				t.Errorf("%v, %v; want %v", got, err, f)
			}
			time.Sleep(k.lateBy + time.Millisecond)
		}
		if got := floorOf(t, c.Policy()); got != 1804*mhz {
			t.Errorf("floor %v, want it back at 1804 MHz", got)
		}
		k.lateBy = time.Minute
		began := time.Now()
		if _, err := c.Set(1200 * mhz); !errors.Is(err, ErrNotTaken) {
			t.Errorf("a ceiling that does not come: %v", err)
		}
		if took := time.Since(began); took > SettleMost {
			t.Errorf("it was waited for %v", took)
		}
		time.Sleep(2 * time.Minute)
	})
}

// What was put back by its control is waited for likewise, within the patience given.
func TestSettle(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		set, k := started(t, "amd-pstate-epp", nil)
		k.lateBy = 15 * time.Millisecond
		c := hand(t, set.Policies()[0])
		is := func(want units.Freq) func(units.Freq) bool {
			return func(f units.Freq) bool { return f == want }
		}
		patience := SettleMost
		old, err := c.fileControl().Write(int64(2000 * mhz))
		if err != nil || units.Freq(old) == 2000*mhz {
			t.Fatalf("reads back %d, %v at once: nothing is shown", old, err)
		}
		if got, err := Settle(c.fileControl(), units.Freq(old), is(2000*mhz), &patience); err != nil || got != 2000*mhz || patience <= 0 {
			t.Errorf("%v, %v, %v left", got, err, patience)
		}
		if got, err := Settle(c.fileControl(), 2000*mhz, is(2500*mhz), &patience); err != nil || got != 2000*mhz || patience > 0 {
			t.Errorf("%v, %v, %v left", got, err, patience)
		}
	})
}
