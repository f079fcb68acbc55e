package cluster

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"

	"headroom/lab/emulator"
	"headroom/units"
)

// drawnTries is how often a node's view is read: its file may be renewed meanwhile.
const drawnTries = 5

// Drawn is the energy at the wall of all nodes since their boot, by the counters that their physics keep; they are
// renewed ten times a second.
func (s *Site) Drawn() (units.Energy, error) {
	var sum units.Energy
	for _, name := range s.nodes {
		v, err := View(filepath.Join(s.NodeDir(), name))
		if err != nil {
			return 0, fmt.Errorf("cluster: energy of node %s: %w", name, err)
		}
		sum += units.FromJoules(v.EnergyJ)
	}
	return sum, nil
}

// View is what the physics of the emulated node in the folder dir show.
func View(dir string) (v emulator.View, err error) {
	for range drawnTries {
		var text []byte
		if text, err = os.ReadFile(filepath.Join(dir, "run", "plant.json")); err == nil {
			err = json.Unmarshal(text, &v)
		}
		if err == nil {
			break
		}
	}
	return v, err
}
