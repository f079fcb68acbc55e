package yarn

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// sharesFile was a value of Shares in earlier versions, which wrote maxima into the fair scheduler's allocation file.
const sharesFile = "file"

// FileHint is the hint for configurations of those versions.
const FileHint = "with the fair scheduler use shares: hook and the plug-in headroom.hadoop.LiveFairScheduler, with the capacity scheduler shares: capacity; " +
	"remove allocation_file and refresh; see docs/hadoop.md, \"Moving from shares: file\""

// leftBehind returns an error with the steps that restore the operator's allocation file, if an earlier version was killed while its
// maxima stood there. With these the operator's own maxima are unknown, and shares could only be lowered.
func leftBehind(dir string) error {
	var noted struct {
		File   string `json:"allocation_file"`
		Queues map[string]struct {
			Element string `json:"element"`
		} `json:"queues"`
	}
	notes := filepath.Join(dir, "yarn-queues.json")
	data, err := os.ReadFile(notes)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err == nil {
		err = json.Unmarshal(data, &noted)
	}
	if err != nil {
		return fmt.Errorf("yarn: cannot tell whether an earlier version left its maxima in the allocation file: %w; check maxResources of its queues, then remove %s", err, notes)
	}
	if len(noted.Queues) == 0 {
		return nil
	}
	var steps []string
	for _, queue := range slices.Sorted(maps.Keys(noted.Queues)) {
		if element := noted.Queues[queue].Element; element == "" {
			steps = append(steps, fmt.Sprintf("remove maxResources of %s", queue))
		} else {
			steps = append(steps, fmt.Sprintf("write %s for %s", element, queue))
		}
	}
	return fmt.Errorf("yarn: an earlier version of the scheduler was killed while its maxima stood in %s: %s; then run yarn rmadmin -refreshQueues and remove %s: %w",
		noted.File, strings.Join(steps, ", "), notes, errShares)
}
