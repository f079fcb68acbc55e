package hadoop

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"headroom/scheduler/jhist"
)

// history reads the history file of an application. The error is os.ErrNotExist when
// there is none.
func (c *Cluster) history(ctx context.Context, application string) (h *jhist.History, err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("hadoop: history of %s: %w", application, err)
		}
	}()
	file := filepath.Join("history", "new", "*", strings.Replace(application, "application", "job", 1)+"-*.jhist")
	if c.config.HDFS {
		copied := filepath.Join("history", "new", application)
		if err := os.MkdirAll(c.path(copied), 0o755); err != nil {
			return nil, err
		}
		if err := c.Get(ctx, "/"+file, c.path(copied)); err != nil && !strings.Contains(err.Error(), "No such file or directory") {
			return nil, err
		}
	}
	found, err := filepath.Glob(c.path(file))
	if err == nil && len(found) == 0 {
		err = os.ErrNotExist
	}
	if err != nil {
		return nil, err
	}
	f, err := os.Open(slices.Max(found))
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }()
	return jhist.Read(f)
}
