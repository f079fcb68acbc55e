package yarn

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"time"

	headroomv1 "headroom/api/headroom/v1"
	"headroom/internal/wire"
)

// numbers is a set of map tasks.
type numbers map[int]bool

func (n numbers) sorted() []int {
	list := slices.Sorted(maps.Keys(n))
	if list == nil {
		list = []int{} // JSON's [], not null
	}
	return list
}

func (n numbers) add(more numbers) {
	maps.Copy(n, more)
}

// fromRanges returns the set of ranges. Ranges without a task, or with more than a job can have, are ignored: they were
// committed for another version of the job.
func fromRanges(ranges []*headroomv1.TaskRange) numbers {
	set := numbers{}
	for _, r := range ranges {
		if r.GetFirst() > r.GetLast() || r.GetLast() >= tasksMax {
			continue
		}
		for i := r.GetFirst(); i <= r.GetLast(); i++ {
			set[int(i)] = true
		}
	}
	return set
}

// ranges returns the fewest ranges of the set.
func (n numbers) ranges() []*headroomv1.TaskRange { return wire.TaskRanges(n.sorted()) }

// requestOf returns the key of the command that drops these tasks of a job: the same for a repeated command, different
// for another one.
func requestOf(id string, n numbers) string {
	sum := sha256.New()
	for _, r := range n.ranges() {
		fmt.Fprintf(sum, "%d-%d,", r.GetFirst(), r.GetLast()) //nolint:errcheck // a hash takes everything
	}
	return "drop-" + id + "-" + hex.EncodeToString(sum.Sum(nil)[:8])
}

func ms(t time.Time) string { return strconv.FormatInt(t.UnixMilli(), 10) }
