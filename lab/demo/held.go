package demo

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"headroom/lab/cluster"
	"headroom/lab/emulator"
	"headroom/lease"
	"headroom/units"
)

// errMoving means that a node's files changed while they were read.
var errMoving = errors.New("demo: node's files changed while being read")

// nodeFiles reads what one node holds and draws from the node's own files. It
// uses none of the code that powerd reads and writes them with.
type nodeFiles struct {
	name  string
	dir   string      // DIR/nodes/NAME
	rated units.Power // what the node may draw with no limit at all
}

// heldFile is state/held.json: powerd's record of what the node may hold. powerd
// writes it before it raises a limit and after it has verified a lower one.
type heldFile struct {
	AtUs   int64       `json:"at_us"`
	State  string      `json:"state"`
	CapW   float64     `json:"cap_w"`
	Stamp  lease.Stamp `json:"stamp"`
	Limits []struct {
		Zone       string      `json:"zone"`
		Constraint string      `json:"constraint"`
		WrittenUw  units.Power `json:"written_uw"`
	} `json:"limits"`
	SupplyEfficiency float64 `json:"supply_efficiency"`
}

// at is when powerd wrote the file.
func (h heldFile) at() time.Time { return time.UnixMicro(h.AtUs) }

// Reading a node again when its files moved meanwhile.
const (
	readTries = 5
	// plantStale is how old the plant's view may be: it is renewed every 100 ms.
	plantStale = time.Second
)

// held is the cap that the node holds now, at the wall: the value in held.json,
// and what the limits in the tree exceed that by. It is the same whether powerd
// lives or not.
func (n nodeFiles) held() (units.Power, heldFile, error) {
	for range readTries {
		before, err := os.ReadFile(n.stateFile())
		if err != nil {
			return 0, heldFile{}, fmt.Errorf("demo: node %s: %w", n.name, err)
		}
		zones, err := n.zones()
		if err != nil {
			continue
		}
		after, err := os.ReadFile(n.stateFile())
		if err != nil || !bytes.Equal(before, after) {
			continue // the limits may belong to either of the two
		}
		var h heldFile
		if err := json.Unmarshal(after, &h); err != nil {
			return 0, heldFile{}, fmt.Errorf("demo: node %s: held.json: %w", n.name, err)
		}
		return h.holds(zones, n.rated), h, nil
	}
	return 0, heldFile{}, fmt.Errorf("demo: node %s: %w", n.name, errMoving)
}

func (n nodeFiles) stateFile() string { return filepath.Join(n.dir, "state", "held.json") }

// holds is the cap that the node holds, given the limits in its tree.
func (h heldFile) holds(zones []zone, rated units.Power) units.Power {
	held := units.FromWatts(h.CapW)
	if len(h.Limits) == 0 {
		return held // the node holds no limit; CapW is what it is rated
	}
	var excess units.Power
	for _, z := range zones {
		if !z.enabled {
			return max(held, rated)
		}
		excess += h.excess(z)
	}
	if h.SupplyEfficiency > 0 {
		excess = units.FromWatts(excess.Watts() / h.SupplyEfficiency)
	}
	return held + excess
}

// excess is how far the zone's limits stand above those in held.json.
func (h heldFile) excess(z zone) units.Power {
	var most units.Power
	for _, l := range h.Limits {
		if now, ok := z.limits[l.Constraint]; ok && l.Zone == z.name {
			most = max(most, now-l.WrittenUw)
		}
	}
	return most
}

// zone is a package zone of the tree: whether its limits are on, and the limits.
type zone struct {
	name    string
	enabled bool
	limits  map[string]units.Power
}

// zones are the package zones of the node's file tree, found by name.
func (n nodeFiles) zones() (zones []zone, err error) {
	names, err := filepath.Glob(filepath.Join(n.dir, "root/sys/class/powercap/intel-rapl:*/name"))
	if err != nil || len(names) == 0 {
		return nil, fmt.Errorf("demo: node %s: no powercap tree", n.name)
	}
	for _, file := range names {
		name, err := line(file)
		if err != nil {
			return nil, err
		}
		if !strings.HasPrefix(name, "package-") {
			continue
		}
		z, err := readZone(filepath.Dir(file), name)
		if err != nil {
			return nil, err
		}
		zones = append(zones, z)
	}
	return zones, nil
}

func readZone(dir, name string) (zone, error) {
	z := zone{name: name, limits: map[string]units.Power{}}
	enabled, err := line(filepath.Join(dir, "enabled"))
	z.enabled = enabled == "1"
	for i := 0; err == nil; i++ {
		file := filepath.Join(dir, fmt.Sprintf("constraint_%d_", i))
		constraint, failed := line(file + "name")
		if errors.Is(failed, os.ErrNotExist) {
			break
		}
		text, err2 := line(file + "power_limit_uw")
		limit, err3 := strconv.ParseInt(text, 10, 64)
		z.limits[constraint], err = units.Power(limit), errors.Join(failed, err2, err3)
	}
	return z, err
}

// line is the first line of a file: what the kernel would show.
func line(path string) (string, error) {
	data, err := os.ReadFile(path)
	first, _, _ := strings.Cut(string(data), "\n")
	return first, err
}

// plant is what the node draws, by its own physics; an error if the view is old.
func (n nodeFiles) plant(now time.Time) (emulator.View, error) {
	v, err := cluster.View(n.dir)
	if age := now.Sub(time.UnixMicro(v.AtUs)); err == nil && age > plantStale {
		err = fmt.Errorf("%v old", age)
	}
	if err != nil {
		return v, fmt.Errorf("demo: node %s: plant.json: %w", n.name, err)
	}
	return v, nil
}

// powerd is the process id of the node's powerd and when it was started; 0 while none runs.
func (n nodeFiles) powerd() (pid int, started time.Time) {
	path := filepath.Join(n.dir, "run", "powerd.pid")
	text, err := line(path)
	info, errStat := os.Stat(path)
	if pid, _ = strconv.Atoi(text); err != nil || errStat != nil || pid == 0 {
		return 0, time.Time{}
	}
	return pid, info.ModTime()
}
