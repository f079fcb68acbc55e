package yarn

import (
	"encoding/xml"
	"fmt"
	"io"
	"maps"
	"math"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
)

// capacityPlant is the configuration of a capacity scheduler that may be changed while it runs. What it answers, and
// what it takes, is what a ResourceManager of 3.4.2 does: it refuses what it cannot read, and of an amount of resources
// one below the guaranteed one; it takes names of queues that there are not.
type capacityPlant struct {
	conf    map[string]string
	version int
	// fixed is a configuration that cannot be changed, heedless one that is kept and not gone by.
	fixed, heedless bool
	// before is called when a change comes in, before it is carried out; lost loses the answer to it.
	before func()
	lost   bool
	puts   []string
	// made are the maxima in force, by queue, as they were written.
	made map[string]string
}

// capacity gives the plant a capacity scheduler with these properties, the prefix left out.
func (p *plant) capacity(properties map[string]string) *capacityPlant {
	k := &capacityPlant{conf: map[string]string{}, version: 1, made: map[string]string{}}
	for name, value := range properties {
		k.conf[capacityPrefix+name] = value
	}
	k.make()
	p.cs = k
	return k
}

func (k *capacityPlant) make() {
	k.made = map[string]string{}
	for name, value := range k.conf {
		if queue, ok := strings.CutSuffix(strings.TrimPrefix(name, capacityPrefix), keyMaximum); ok {
			k.made[queue] = value
		}
	}
}

// maximum is what stands in the configuration for a queue; "" for nothing.
func (k *capacityPlant) maximum(queue string) string { return k.conf[capacityPrefix+queue+keyMaximum] }

// edit is an operator's change.
func (k *capacityPlant) edit(queue, value string) {
	k.version++
	k.conf[capacityPrefix+queue+keyMaximum] = value
	k.make()
}

// serve answers what is asked of the configuration.
func (k *capacityPlant) serve(w *httptest.ResponseRecorder, r *http.Request, path []string) {
	const immutable = "This API only supports to retrieve scheduler configuration from a mutable-conf scheduler, underneath scheduler CapacityScheduler is not an instance of MutableConfScheduler"
	switch {
	case k.fixed && r.Method == http.MethodPut:
		k.refuse(w, "Configuration change only supported by mutable configuration store.")
	case k.fixed:
		k.refuse(w, immutable)
	case r.Method == http.MethodPut:
		k.change(w, r)
	case len(path) > 4:
		reply(w, object{"versionID": strconv.Itoa(k.version)})
	default:
		var list []object
		for _, name := range slices.Sorted(maps.Keys(k.conf)) {
			list = append(list, object{"name": name, "value": k.conf[name]})
		}
		reply(w, object{"property": list})
	}
}

func (k *capacityPlant) refuse(w *httptest.ResponseRecorder, words string) {
	w.Header().Set("Content-Type", "application/json;charset=utf-8")
	w.WriteHeader(http.StatusBadRequest)
	_, _ = io.WriteString(w, words)
}

func (k *capacityPlant) change(w *httptest.ResponseRecorder, r *http.Request) {
	if k.before != nil {
		before := k.before
		k.before = nil
		before()
	}
	var change struct {
		Queues []struct {
			Name    string `xml:"queue-name"`
			Entries []struct {
				Key   string  `xml:"key"`
				Value *string `xml:"value"`
			} `xml:"params>entry"`
		} `xml:"update-queue"`
	}
	body, err := io.ReadAll(r.Body)
	if err != nil || xml.Unmarshal(body, &change) != nil || r.Header.Get("Content-Type") != "application/xml" {
		k.refuse(w, "what was sent is no change")
		return
	}
	next := maps.Clone(k.conf)
	for _, q := range change.Queues {
		for _, e := range q.Entries {
			if e.Key != "maximum-capacity" {
				k.refuse(w, "nobody asked for "+e.Key)
				return
			}
			name := capacityPrefix + q.Name + keyMaximum
			if e.Value == nil {
				delete(next, name)
				k.puts = append(k.puts, q.Name+" unset")
				continue
			}
			if _, err := strconv.ParseFloat(*e.Value, 64); err != nil && !strings.HasPrefix(*e.Value, "[") {
				k.refuse(w, fmt.Sprintf("Failed to re-init queues : For input string: %q", *e.Value))
				return
			}
			next[name] = *e.Value
			k.puts = append(k.puts, q.Name+" "+*e.Value)
		}
	}
	k.version++
	k.conf = next
	if !k.heedless {
		k.make()
	}
	if k.lost {
		w.Code = 999
		return
	}
	w.Header().Set("Content-Type", "application/json;charset=utf-8")
	_, _ = io.WriteString(w, "Configuration change successfully applied.")
}

// tree is what /scheduler answers. all is what the cluster has.
func (k *capacityPlant) tree(all Container) object {
	root := k.queue("root", 1, 1, all, all)
	return object{"type": "capacityScheduler", "capacity": 100.0, "maxCapacity": 100.0, "queueName": "root", "queuePath": "root", "queues": root["queues"]}
}

func (k *capacityPlant) queue(name string, guaranteed, most float64, room, all Container) object {
	var below []object
	for child := range strings.SplitSeq(k.conf[capacityPrefix+name+".queues"], ",") {
		if child == "" {
			continue
		}
		path := name + "." + child
		part, limit := k.parts(path)
		below = append(below, k.queue(path, guaranteed*part, most*limit, k.amount(k.made[path], room), all))
	}
	least := k.amount(k.conf[capacityPrefix+name+keyCapacity], Container{})
	o := object{
		"queueName": name[strings.LastIndexByte(name, '.')+1:], "queuePath": name, "absoluteCapacity": 100 * guaranteed, "absoluteMaxCapacity": 100 * most,
		"isAbsoluteResource":   strings.HasPrefix(k.conf[capacityPrefix+name+keyCapacity], "["),
		"minEffectiveCapacity": object{"memory": least.MemoryMB, "vCores": least.VCores}, "maxEffectiveCapacity": object{"memory": room.MemoryMB, "vCores": room.VCores},
	}
	if below != nil {
		o["queues"] = object{"queue": below}
	}
	return o
}

// parts are a queue's capacity and maximum as parts of its parent's.
func (k *capacityPlant) parts(name string) (part, limit float64) {
	limit = 1
	part, _ = strconv.ParseFloat(k.conf[capacityPrefix+name+keyCapacity], 64)
	if x, err := strconv.ParseFloat(k.made[name], 64); err == nil {
		limit = x / 100
	}
	return float64(float32(part / 100)), float64(float32(limit))
}

func (k *capacityPlant) amount(text string, otherwise Container) Container {
	var c Container
	if _, err := fmt.Sscanf(text, "[memory=%d,vcores=%d]", &c.MemoryMB, &c.VCores); err != nil {
		return otherwise
	}
	return c
}

// holds is how many containers of the unit fit into what a queue may hold, as the scheduler rounds: to multiples of
// 128 MB.
func (k *capacityPlant) holds(queue string, unit, all Container) int {
	most := 1.0
	parts := strings.Split(queue, ".")
	for i := 1; i < len(parts); i++ {
		_, limit := k.parts(strings.Join(parts[:i+1], "."))
		most *= limit
	}
	if c := k.amount(k.made[queue], Container{}); c.MemoryMB > 0 {
		return min(c.MemoryMB/unit.MemoryMB, c.VCores/unit.VCores)
	}
	return int(math.Floor(float64(all.MemoryMB)*most/128)) * 128 / unit.MemoryMB
}
