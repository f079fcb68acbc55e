package demo

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"strconv"

	"headroom/units"
)

// csvFile is power.csv: one row each 250 ms, written as it is seen.
//
// time_s counts from the moment at which all nodes were admitted and jobs ran.
// budget_w is the site's budget as last committed. reserved_w is what the leader
// charges all nodes below the site; the site has no unmanaged watts here. It is
// empty while no leader answers. held_w is the sum of the caps that the nodes
// hold, from state/held.json and the limits in their trees, dead powerd or not;
// empty when one node could not be read. measured_w is the sum of the plants' own
// wall power, mean over 1 s; the other columns are its parts, one a node.
type csvFile struct {
	file *os.File
	buf  *bufio.Writer
}

func createCSV(path string, nodes []string) (*csvFile, error) {
	f, err := os.Create(path)
	if err != nil {
		return nil, fmt.Errorf("demo: power.csv: %w", err)
	}
	c := &csvFile{file: f, buf: bufio.NewWriter(f)}
	_, _ = c.buf.WriteString("time_s,budget_w,reserved_w,held_w,measured_w")
	for _, n := range nodes {
		_, _ = c.buf.WriteString("," + n)
	}
	_ = c.buf.WriteByte('\n')
	return c, c.flush()
}

// row writes one sample.
func (c *csvFile) row(s sample) error {
	_, _ = c.buf.WriteString(strconv.FormatFloat(s.at.Seconds(), 'f', 3, 64))
	for _, p := range append([]*units.Power{&s.budget, s.reserved, s.held, s.measured}, s.nodes...) {
		_ = c.buf.WriteByte(',')
		if p != nil {
			_, _ = c.buf.WriteString(strconv.FormatFloat(p.Watts(), 'f', 3, 64))
		}
	}
	_ = c.buf.WriteByte('\n')
	return c.flush()
}

func (c *csvFile) flush() error {
	if err := c.buf.Flush(); err != nil {
		return fmt.Errorf("demo: power.csv: %w", err)
	}
	return nil
}

func (c *csvFile) close() error {
	if err := errors.Join(c.flush(), c.file.Close()); err != nil {
		return fmt.Errorf("demo: power.csv: %w", err)
	}
	return nil
}
