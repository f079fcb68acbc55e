package simulation

import (
	"fmt"
	"slices"
	"strings"
)

// breach is one rule of the design that can be broken on purpose, to see that the
// judges find it: a small change of a production file.
type breach struct {
	// Name for --sabotage.
	Name string `json:"name"`
	// Breaks is the promise under which the judges find it.
	Breaks string `json:"breaks"`
	// File that it changes, below the module.
	File string `json:"file"`

	edits []edit
}

// edit replaces a text that stands in a file once. BROKEN in the new text stands for
// whether this sabotage was chosen.
type edit struct {
	file, old, new string
}

// findSabotage is the sabotage of a name; "" is none.
func findSabotage(name string) (breach, error) {
	if name == "" {
		return breach{}, nil
	}
	list := append(sabotages(), hiddenSabotages()...)
	i := slices.IndexFunc(list, func(s breach) bool { return s.Name == name })
	if i < 0 {
		var names []string
		for _, s := range sabotages() {
			names = append(names, s.Name)
		}
		return breach{}, fmt.Errorf("unknown sabotage %q: must be one of %s", name, strings.Join(names, ", "))
	}
	return list[i], nil
}
