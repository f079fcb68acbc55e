package demo

import (
	"fmt"
	"os"
	"strings"

	"headroom/units"
)

// csvFile is power.csv (docs/demo.md): one row each 250 ms, written as it is sampled. Unknown values are empty.
type csvFile struct{ file *os.File }

func createCSV(path string, nodes []string) (*csvFile, error) {
	f, err := os.Create(path)
	if err != nil {
		return nil, fmt.Errorf("demo: power.csv: %w", err)
	}
	c := &csvFile{f}
	return c, c.write(append([]string{"time_s", "budget_w", "reserved_w", "held_w", "measured_w"}, nodes...))
}

// row writes one sample.
func (c *csvFile) row(s sample) error {
	fields := []string{fmt.Sprintf("%.3f", s.at.Seconds())}
	for _, p := range append([]*units.Power{&s.budget, s.reserved, s.held, s.measured}, s.nodes...) {
		text := ""
		if p != nil {
			text = fmt.Sprintf("%.3f", p.Watts())
		}
		fields = append(fields, text)
	}
	return c.write(fields)
}

func (c *csvFile) write(fields []string) error {
	if _, err := c.file.WriteString(strings.Join(fields, ",") + "\n"); err != nil {
		return fmt.Errorf("demo: power.csv: %w", err)
	}
	return nil
}

func (c *csvFile) close() error { return c.file.Close() }
