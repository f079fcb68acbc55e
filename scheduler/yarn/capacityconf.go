package yarn

import (
	"bytes"
	"context"
	"encoding/json"
	"encoding/xml"
	"errors"
	"fmt"
	"maps"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"headroom/units"
)

// The functions below read and write queues of ResourceManagers with the capacity scheduler.

const (
	// capacityPrefix is the prefix of the properties of its queues.
	capacityPrefix = "yarn.scheduler.capacity."
	keyMaximum     = ".maximum-capacity"
	keyCapacity    = ".capacity"
	// keyCalculator is how containers are measured: by memory only, or by all resources.
	keyCalculator = capacityPrefix + "resource-calculator"
	// roundUp is added to a number of containers: the scheduler rounds a maximum down to multiples of its minimum
	// allocation, which must not lose a container.
	roundUp = 0.25
	// noVersion is the version of a configuration without one: releases before 3.3.
	noVersion = "none"
)

// version returns the version of the configuration; every change alters it.
func (c *client) version(ctx context.Context) (string, error) {
	body, err := c.cluster(ctx, "scheduler-conf/version")
	if errors.Is(err, errNotThere) {
		return noVersion, nil
	}
	if err != nil {
		return "", notMutable(err)
	}
	var answer struct {
		Version json.Number `json:"versionID"`
	}
	if err := read(body, &answer); err != nil {
		return "", err
	}
	return answer.Version.String(), nil
}

// underneath finds the scheduler's name in the answer of a ResourceManager whose configuration is not mutable.
var underneath = regexp.MustCompile(`underneath scheduler (\w+)`)

// notMutable explains what a mutable configuration needs, if that is why a ResourceManager refused.
func notMutable(err error) error {
	if err == nil || !strings.Contains(strings.ToLower(err.Error()), "mutable") {
		return err
	}
	scheduler := "scheduler"
	if m := underneath.FindStringSubmatch(err.Error()); m != nil {
		scheduler = m[1]
	}
	return fmt.Errorf("yarn: the configuration of the ResourceManager's %s cannot be changed at run time: shares: capacity needs the CapacityScheduler, "+
		"with yarn.scheduler.configuration.store.class in yarn-site.xml set to memory, fs, leveldb or zk: %w", scheduler, errCapacity)
}

// capacity reads the configuration and the resulting queues.
func (c *client) capacity(ctx context.Context) (conf map[string]string, tree capacityTree, err error) {
	body, err := c.cluster(ctx, "scheduler-conf")
	if err != nil {
		return nil, nil, notMutable(err)
	}
	if conf, err = readCapacityConf(body); err != nil {
		return nil, nil, err
	}
	if body, err = c.cluster(ctx, "scheduler"); err != nil {
		return nil, nil, err
	}
	tree, err = readCapacityTree(body)
	return conf, tree, err
}

// readCapacityConf reads the answer of /ws/v1/cluster/scheduler-conf.
func readCapacityConf(body []byte) (map[string]string, error) {
	var answer struct {
		Property many[struct {
			Name  string `json:"name"`
			Value string `json:"value"`
		}] `json:"property"`
	}
	if err := read(body, &answer); err != nil {
		return nil, err
	}
	conf := map[string]string{}
	for _, p := range answer.Property {
		if strings.HasPrefix(p.Name, capacityPrefix) {
			conf[p.Name] = strings.TrimSpace(p.Value)
		}
	}
	if len(conf) == 0 {
		return nil, wrong("no properties of the capacity scheduler")
	}
	return conf, nil
}

// capacityQueue is a queue as reported by the capacity scheduler.
type capacityQueue struct {
	// Guaranteed and most are fractions of the cluster, 0 to 1.
	guaranteed, most float64
	// absolute is whether its bounds are amounts of resources; least and room are then its guarantee and its maximum.
	absolute    bool
	least, room Container
	leaf        bool
}

// capacityTree are the queues by their full names.
type capacityTree map[string]capacityQueue

type jsonCapacityQueue struct {
	QueueName  string  `json:"queueName"`
	QueuePath  string  `json:"queuePath"`
	Guaranteed float64 `json:"absoluteCapacity"`
	Most       float64 `json:"absoluteMaxCapacity"`
	Absolute   bool    `json:"isAbsoluteResource"`
	Min        struct {
		MemoryMB int `json:"memory"`
		VCores   int `json:"vCores"`
	} `json:"minEffectiveCapacity"`
	Max struct {
		MemoryMB int `json:"memory"`
		VCores   int `json:"vCores"`
	} `json:"maxEffectiveCapacity"`
	Queues *struct {
		Queue many[jsonCapacityQueue] `json:"queue"`
	} `json:"queues"`
}

// readCapacityTree reads the answer of /ws/v1/cluster/scheduler.
func readCapacityTree(body []byte) (capacityTree, error) {
	var answer struct {
		Scheduler *struct {
			Info *struct {
				jsonCapacityQueue

				Type string `json:"type"`
			} `json:"schedulerInfo"`
		} `json:"scheduler"`
	}
	if err := read(body, &answer); err != nil {
		return nil, err
	}
	if answer.Scheduler == nil || answer.Scheduler.Info == nil {
		return nil, wrong("no scheduler")
	}
	info := answer.Scheduler.Info
	if info.Type != "capacityScheduler" {
		return nil, fmt.Errorf("yarn: the ResourceManager uses %q: shares: capacity needs the capacity scheduler: %w", clip(info.Type), errCapacity)
	}
	tree := capacityTree{}
	info.QueueName, info.Guaranteed, info.Most = "root", 100, 100 // the values of root are those of the cluster
	err := info.into(tree, "")
	return tree, err
}

func (q *jsonCapacityQueue) into(tree capacityTree, parent string) error {
	name := q.QueuePath
	if name == "" { // releases before 3.3
		name = strings.TrimPrefix(parent+"."+q.QueueName, ".")
	}
	for _, part := range []float64{q.Guaranteed, q.Most} {
		if math.IsNaN(part) || part < 0 || part > 101 {
			return wrong("queue %s with a capacity of %v %%", clip(name), part)
		}
	}
	if len(tree) > nodesMax {
		return wrong("more than %d queues", nodesMax)
	}
	below := q.Queues
	tree[name] = capacityQueue{
		guaranteed: q.Guaranteed / 100, most: q.Most / 100, absolute: q.Absolute,
		least: Container{q.Min.MemoryMB, q.Min.VCores}, room: Container{q.Max.MemoryMB, q.Max.VCores},
		leaf: below == nil || len(below.Queue) == 0,
	}
	if below == nil {
		return nil
	}
	for i := range below.Queue {
		if err := below.Queue[i].into(tree, name); err != nil {
			return err
		}
	}
	return nil
}

// values returns the maxima that limit the queues to the wanted containers, in the form of the configuration. held
// states which queues cannot be limited: a maximum is at least the queue's guarantee, and at most its parent's maximum.
func (t capacityTree) values(conf map[string]string, want wanted) (values map[string]string, held []string, err error) {
	values = map[string]string{}
	for _, name := range slices.Sorted(maps.Keys(want.queues)) {
		q, known := t[name]
		parent := t[name[:max(0, strings.LastIndexByte(name, '.'))]]
		capacity, set := conf[capacityPrefix+name+keyCapacity]
		switch {
		case !known || !q.leaf:
			return nil, held, fmt.Errorf("yarn: queue %s: %w in the capacity scheduler, or not a leaf; list only leaf queues in yarn.queues", name, errQueue)
		case !set:
			return nil, held, fmt.Errorf("yarn: queue %s was created by the ResourceManager and has no capacity of its own, so its maximum cannot be set: %w", name, errCapacity)
		}
		h := capacityHold{
			name: name, queue: q, parent: parent, containers: want.queues[name], unit: want.unit, size: want.size,
			all: strings.Contains(conf[keyCalculator], "Dominant"), now: conf[capacityPrefix+name+keyMaximum],
		}
		var words string
		if q.absolute || strings.HasPrefix(capacity, "[") {
			values[name], words, err = h.amount(capacity)
		} else {
			values[name], words, err = h.percent()
		}
		if err != nil {
			return nil, held, err
		}
		if words != "" {
			held = append(held, words)
		}
	}
	return values, held, nil
}

// capacityHold is one queue with its wanted containers.
type capacityHold struct {
	name          string
	queue, parent capacityQueue
	containers    int
	unit, size    Container
	// all is whether all resources count, not only memory.
	all bool
	// now is maximum-capacity in the configuration.
	now string
}

// part returns the fraction of the cluster that n containers are.
func (h *capacityHold) part(n float64) float64 {
	p := n * float64(h.unit.MemoryMB) / float64(h.size.MemoryMB)
	if h.all {
		p = max(p, n*float64(h.unit.VCores)/float64(h.size.VCores))
	}
	return p
}

// percent returns the maximum as a percentage of the parent's.
func (h *capacityHold) percent() (value, words string, err error) {
	if h.size.MemoryMB <= 0 || h.size.VCores <= 0 || h.parent.most <= 0 {
		return "", "", fmt.Errorf("yarn: queue %s: the capacity of the cluster or of its parent is unknown: %w", h.name, errCapacity)
	}
	asked := h.part(float64(h.containers) + roundUp)
	part := min(max(asked, h.queue.guaranteed), h.parent.most)
	switch {
	case h.part(float64(h.containers)) > h.parent.most*(1+1e-6):
		words = h.limited()
	case part > asked+1e-9 && h.holds(part) > h.containers:
		words = h.guaranteed(h.holds(part))
	}
	return strconv.FormatFloat(100*part/h.parent.most, 'f', 6, 64), words, h.heeds(part)
}

// heeds returns an error if the configuration already has the maximum, but the scheduler uses another one.
func (h *capacityHold) heeds(part float64) error {
	now, err := strconv.ParseFloat(h.now, 64)
	const slack = 1e-3
	if err != nil || math.Abs(now/100*h.parent.most-part) > 1e-7 || math.Abs(h.queue.most-part) <= slack {
		return nil
	}
	return fmt.Errorf("yarn: queue %s: its maximum-capacity is %s, but the scheduler uses %s of the cluster instead of %s: %w",
		h.name, h.now, units.Percent(h.queue.most), units.Percent(part), errCapacity)
}

// holds returns how many containers fit into a fraction of the cluster.
func (h *capacityHold) holds(part float64) int { return int(part/h.part(1) + 1e-6) }

func (h *capacityHold) limited() string {
	return fmt.Sprintf("queue %s cannot use its share of %d containers because of its parent's maximum; raise the parent's maximum-capacity", h.name, h.containers)
}

func (h *capacityHold) guaranteed(n int) string {
	return fmt.Sprintf("queue %s keeps %d containers, its guaranteed capacity, although its share is %d; lower its capacity", h.name, n, h.containers)
}

// amounts match an amount of resources, [memory=1024,vcores=2], and one with mixed units.
var (
	amountForm = regexp.MustCompile(`^\[\s*(memory(-mb)?|vcores)\s*=\s*[0-9]+\s*[A-Za-z]{0,2}\s*(,\s*(memory(-mb)?|vcores)\s*=\s*[0-9]+\s*[A-Za-z]{0,2}\s*)*\]$`)
	mixedForm  = regexp.MustCompile(`[0-9](%|w)`)
)

// amount returns the maximum as an amount of resources.
func (h *capacityHold) amount(capacity string) (value, words string, err error) {
	for _, text := range []string{capacity, h.now} {
		switch {
		case text == "" || amountForm.MatchString(text) && !mixedForm.MatchString(text):
		case strings.HasPrefix(text, "["):
			return "", "", fmt.Errorf("yarn: queue %s: %q mixes units or has resources other than memory and vcores, which shares: capacity does not support: %w", h.name, clip(text), errCapacity)
		}
	}
	room := h.parent.room
	if room == (Container{}) {
		room = h.size
	}
	if room.MemoryMB <= 0 || room.VCores <= 0 {
		return "", "", fmt.Errorf("yarn: queue %s: the capacity of the cluster or of its parent is unknown: %w", h.name, errCapacity)
	}
	memory, cores := h.containers*h.unit.MemoryMB, h.containers*h.unit.VCores
	switch {
	case memory > room.MemoryMB || h.all && cores > room.VCores:
		words = h.limited()
	case memory < h.queue.least.MemoryMB || cores < h.queue.least.VCores:
		least := h.queue.least
		if n := max(least.MemoryMB/h.unit.MemoryMB, least.VCores/h.unit.VCores); n > h.containers {
			words = h.guaranteed(n)
		}
	}
	memory = min(max(memory, h.queue.least.MemoryMB), room.MemoryMB)
	cores = min(max(cores, h.queue.least.VCores), room.VCores)
	return fmt.Sprintf("[memory=%d,vcores=%d]", memory, cores), words, nil
}

// update writes maxima. A nil one is removed.
func (c *client) update(ctx context.Context, maxima []maximum) error {
	var body bytes.Buffer
	body.WriteString("<sched-conf>")
	for _, m := range maxima {
		body.WriteString("<update-queue><queue-name>")
		_ = xml.EscapeText(&body, []byte(m.queue)) // writing to a Buffer never fails
		body.WriteString("</queue-name><params><entry><key>maximum-capacity</key>")
		if m.value != nil {
			body.WriteString("<value>")
			_ = xml.EscapeText(&body, []byte(*m.value))
			body.WriteString("</value>")
		}
		body.WriteString("</entry></params></update-queue>")
	}
	body.WriteString("</sched-conf>")
	return notMutable(c.change(ctx, "scheduler-conf", document{typeXML, body.Bytes(), errCapacity}))
}

// standby reports whether a ResourceManager says that it is not the active one.
func standby(body []byte) bool {
	return bytes.HasPrefix(body, []byte("This is standby RM")) || bytes.HasPrefix(body, []byte("Can not find any active RM"))
}
