package cluster

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"

	"headroom/lab/emulator"
	"headroom/units"
)

// drawnTries is how often a node's counter is read: its file may be renewed meanwhile.
const drawnTries = 5

// Drawn is the energy at the wall of all nodes since their boot, by the counters that their physics keep; they are
// renewed ten times a second.
func (s *Site) Drawn() (units.Energy, error) {
	var sum units.Energy
	for _, name := range s.nodes {
		e, err := drawn(filepath.Join(s.NodeDir(), name, "run", "plant.json"))
		if err != nil {
			return 0, fmt.Errorf("cluster: energy of node %s: %w", name, err)
		}
		sum += e
	}
	return sum, nil
}

func drawn(path string) (units.Energy, error) {
	var failed error
	for range drawnTries {
		text, err := os.ReadFile(path)
		if err != nil {
			failed = err
			continue
		}
		var v emulator.View
		if failed = json.Unmarshal(text, &v); failed == nil {
			return units.FromJoules(v.EnergyJ), nil
		}
	}
	return 0, failed
}
