package yarn

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/google/renameio/v2"
)

// This file limits queues of the capacity scheduler to their shares. It writes only maximum-capacity of the named
// queues, into the ResourceManager's configuration store, which must be mutable
// (yarn.scheduler.configuration.store.class).

const (
	// capacityWait bounds one attempt to set the maxima, because the scheduler's stream to the coordinators waits for
	// it.
	capacityWait = 4 * time.Second
	// capacityRetry is the wait after a refusal of the ResourceManager.
	capacityRetry = 10 * time.Second
	// mergesMax is how often a configuration that changes meanwhile is merged again.
	mergesMax = 5
	// capacityLook is how often the configuration is read if its version does not show changes.
	capacityLook = 10 * time.Second
)

// capacityQueues writes queue maxima into the capacity scheduler's configuration. It is safe for concurrent use.
type capacityQueues struct {
	client *client
	// notes is the file of the operator's own values, so that they are restored even after a kill.
	notes string

	mu sync.Mutex
	// own are the operator's values; nil before the notes were read.
	own map[string]ownMaximum
	// last is the result of the previous round.
	last capacityRound
	// checked is when it was last checked that shares can be set; misfit is why not.
	checked time.Time
	misfit  error
}

// ownMaximum is the content of the configuration before the engine wrote there.
type ownMaximum struct {
	// Value is the operator's maximum-capacity; nil for none.
	Value *string `json:"value"`
	// Written are the values of the engine that the configuration may contain now.
	Written []string `json:"written"`
}

// notedMaxima is the file of the operator's own values.
type notedMaxima struct {
	ResourceManager []string              `json:"resourcemanager"`
	Queues          map[string]ownMaximum `json:"queues"`
}

// capacityRound is the input of the maxima, and the result.
type capacityRound struct {
	at      time.Time
	version string
	want    map[string]int
	size    Container
	// held states which queues could not be limited to their shares.
	held []string
	err  error
}

// wanted are containers by queue, with their unit and the size of the cluster.
type wanted struct {
	queues     map[string]int
	unit, size Container
}

func newCapacityQueues(c *client, dir string) *capacityQueues {
	return &capacityQueues{client: c, notes: filepath.Join(dir, "yarn-capacity.json")}
}

// left reports whether the configuration may contain values of the engine.
func (q *capacityQueues) left() (bool, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	err := q.recall()
	return len(q.own) > 0, err
}

// set makes want the maxima of its queues, and restores the operator's own for all others. changed is whether the
// configuration was written, held states which queues could not be limited to their shares.
func (q *capacityQueues) set(parent context.Context, now time.Time, want wanted) (changed bool, held []string, err error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if err := q.recall(); err != nil {
		return false, nil, err
	}
	ctx, cancel := context.WithTimeout(parent, capacityWait)
	defer cancel()
	version, err := q.client.version(ctx)
	if err != nil {
		return false, q.last.held, err
	}
	if q.last.stands(now, version, want) {
		return false, q.last.held, q.last.err
	}
	round := capacityRound{at: now, version: version, want: maps.Clone(want.queues), size: want.size}
	changed, round.held, round.err = q.merge(ctx, want)
	if round.version = ""; !changed && round.err == nil {
		round.version = version // what was just written is read back the next time
	}
	q.last = round
	return changed, round.held, round.err
}

// check reports whether queues could be limited while none are, so that an operator learns of a mistake before the
// first cut. It asks the ResourceManager every capacityLook.
func (q *capacityQueues) check(parent context.Context, now time.Time, queues []Queue, unit, size Container) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	if now.Sub(q.checked) < capacityLook {
		return q.misfit
	}
	ctx, cancel := context.WithTimeout(parent, capacityWait)
	defer cancel()
	want := wanted{queues: map[string]int{}, unit: unit, size: size}
	for _, name := range queues {
		want.queues[name.Name] = 1
	}
	conf, tree, err := q.client.capacity(ctx)
	if err == nil {
		_, _, err = tree.values(conf, want)
	}
	q.checked, q.misfit = now, err
	return err
}

// stands reports whether nothing has changed since the round.
func (r *capacityRound) stands(now time.Time, version string, want wanted) bool {
	same := maps.Equal(r.want, want.queues) && r.size == want.size
	if r.err != nil {
		return same && now.Sub(r.at) < capacityRetry
	}
	return same && r.version != "" && r.version == version && now.Sub(r.at) < capacityLook
}

// merge reads the configuration, and writes the changes.
func (q *capacityQueues) merge(ctx context.Context, want wanted) (changed bool, held []string, err error) {
	for range mergesMax {
		conf, tree, err := q.client.capacity(ctx)
		if err != nil {
			return changed, held, err
		}
		values, words, err := tree.values(conf, want)
		if err != nil {
			return changed, words, err
		}
		m := mergeMaxima(conf, values, q.own)
		if len(m.updates) == 0 {
			return changed, words, q.note(m.after)
		}
		if err := q.note(m.during); err != nil { // first, so that the original values survive a kill
			return changed, words, err
		}
		if err := q.client.update(ctx, m.updates); err != nil {
			return changed, words, err
		}
		changed, held = true, words // and is read back
	}
	return changed, held, fmt.Errorf("yarn: the capacity scheduler's configuration was edited %d times while shares were being set: %w", mergesMax, errCapacity)
}

// recall reads the notes of an earlier process.
func (q *capacityQueues) recall() error {
	if q.own != nil {
		return nil
	}
	var n notedMaxima
	data, err := os.ReadFile(q.notes)
	if err == nil {
		err = json.Unmarshal(data, &n)
	}
	switch {
	case errors.Is(err, fs.ErrNotExist):
	case err != nil:
		return fmt.Errorf("yarn: the operator's original maxima are unreadable: %w; check maximum-capacity of the queues, then remove %s", err, q.notes)
	case len(n.Queues) > 0 && !slices.ContainsFunc(n.ResourceManager, func(m string) bool { return slices.Contains(q.client.managers, m) }):
		return fmt.Errorf("yarn: %s contains the original maxima of another cluster, %s: set yarn.resourcemanager to it until they are restored, or check maximum-capacity of %s there and remove the file: %w",
			q.notes, strings.Join(n.ResourceManager, ", "), strings.Join(slices.Sorted(maps.Keys(n.Queues)), ", "), errCapacity)
	}
	q.own = map[string]ownMaximum{}
	maps.Copy(q.own, n.Queues)
	return nil
}

// note stores the operator's own values durably.
func (q *capacityQueues) note(values map[string]ownMaximum) error {
	if reflect.DeepEqual(values, q.own) {
		return nil
	}
	data, err := json.MarshalIndent(notedMaxima{ResourceManager: q.client.managers, Queues: values}, "", "  ")
	if err == nil {
		err = renameio.WriteFile(q.notes, append(data, '\n'), 0o600)
	}
	if err != nil {
		return fmt.Errorf("yarn: store the operator's original maxima: %w", err)
	}
	q.own = values
	return nil
}

// maximum is the maximum-capacity of a queue; nil for none.
type maximum struct {
	queue string
	value *string
}

// mergedMaxima are the updates of a configuration.
type mergedMaxima struct {
	updates []maximum
	// during must be stored before they are written; after suffices afterwards.
	during, after map[string]ownMaximum
}

// mergeMaxima returns the updates that set the wanted values, and restore the operator's own for the rest. before is
// the stored record of earlier writes. A value that is not one of the engine's is the operator's own: it was there
// first, or the operator has edited it since.
func mergeMaxima(conf map[string]string, want map[string]string, before map[string]ownMaximum) mergedMaxima {
	m := mergedMaxima{during: map[string]ownMaximum{}, after: map[string]ownMaximum{}}
	names := slices.Concat(slices.Collect(maps.Keys(want)), slices.Collect(maps.Keys(before)))
	slices.Sort(names)
	for _, queue := range slices.Compact(names) {
		now, set := conf[capacityPrefix+queue+keyMaximum]
		value, wants := want[queue]
		o, known := before[queue]
		ours := known && set && slices.Contains(o.Written, now)
		if !ours {
			o = ownMaximum{}
			if set {
				o.Value = &now
			}
		}
		switch {
		case wants && ours && now == value:
			o.Written = []string{value}
			m.during[queue], m.after[queue] = o, o
		case wants && ours:
			o.Written = []string{now, value}
			m.during[queue], m.after[queue] = o, o
			m.updates = append(m.updates, maximum{queue, &value})
		case wants && set && now == value:
			// It already is the operator's own.
		case wants:
			o.Written = []string{value}
			m.during[queue], m.after[queue] = o, o
			m.updates = append(m.updates, maximum{queue, &value})
		case ours:
			m.during[queue] = o
			m.updates = append(m.updates, maximum{queue, o.Value})
		}
	}
	return m
}
