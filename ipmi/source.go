package ipmi

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"
)

// candidate is one way to wall power.
type candidate int

const (
	byNothing  candidate = iota // none was good yet
	byDCMI                      // Get Power Reading
	bySystem                    // the sensor of the whole node
	bySupplies                  // the sum of the supplies' inputs
	byName                      // the sensor that Config.Source names
)

// String is the candidate in words.
func (c candidate) String() string {
	switch c {
	case byDCMI:
		return "DCMI"
	case bySystem:
		return "sensor of the node"
	case bySupplies:
		return "supplies"
	case byName, byNothing:
	}
	return "sensor"
}

const (
	// switchAfter is how long the source in use may be bad before the others are tried again:
	// a change of source is a step in the value.
	switchAfter = time.Minute
	// patience is how many times a source may refuse or not answer before the next one is
	// tried: a BMC that starts, or is busy, does so for a moment.
	patience = 3
	// walkPause is the least time between two attempts to read the sensor records.
	walkPause = 10 * time.Second
)

// candidates are the ways that the configuration allows, in order.
func (r *reader) candidates() []candidate {
	switch r.m.cfg.Source {
	case ChoiceAuto, "":
		return []candidate{byDCMI, bySystem, bySupplies}
	case ChoiceDCMI:
		return []candidate{byDCMI}
	case ChoiceSensors:
		return []candidate{bySystem, bySupplies}
	}
	return []candidate{byName}
}

// observe takes one reading from the source in use, or looks for one that is plausible.
func (r *reader) observe(ctx context.Context) (observation, error) {
	if err := r.connect(ctx); err != nil {
		return observation{}, err
	}
	if r.using == byNothing {
		return r.search(ctx)
	}
	obs, err := r.read(ctx, r.using)
	now := r.m.now()
	switch {
	case err == nil && obs.why == "":
		r.goodAt = now
	case errors.Is(err, ErrNoReading), now-r.goodAt > switchAfter:
		r.using = byNothing
		return r.search(ctx)
	}
	return obs, err
}

// search tries each source. Where none is plausible, the first that the BMC has counts, and all
// reasons are given.
func (r *reader) search(ctx context.Context) (first observation, firstErr error) {
	var whys, missing []string
	has := false
	r.searches++
	for _, c := range r.candidates() {
		obs, err := r.read(ctx, c)
		if err == nil && obs.why == "" {
			r.using, r.goodAt, r.passed, r.searches = c, r.m.now(), strings.Join(whys, "; "), 0
			obs.note = joinWords(r.passed, obs.note)
			return obs, nil
		}
		if ctx.Err() != nil {
			return obs, err
		}
		if errors.Is(err, ErrNoReading) {
			missing = append(missing, strings.TrimPrefix(err.Error(), ErrNoReading.Error()+": "))
			continue
		}
		why := obs.why
		if err != nil {
			why = err.Error()
		}
		whys = append(whys, fmt.Sprintf("%v not used: %s", c, why))
		if !has {
			first, firstErr, has = obs, err, true
		}
		if err != nil && r.searches < patience {
			break
		}
	}
	switch all := strings.Join(whys, "; "); {
	case !has: // a later login may show more
		words := strings.Join(missing, ", ")
		if r.records != nil {
			words = joinWords(words, inventory(r.records))
		}
		r.hangUp()
		return observation{}, fmt.Errorf("%w: %s", ErrNoReading, words)
	case firstErr != nil && len(whys) > 1:
		return observation{}, fmt.Errorf("%w (%s)", firstErr, all)
	case firstErr == nil && len(whys) > 1:
		first.why = all
	}
	return first, firstErr
}

// read takes one reading of one source; why says what this node cannot draw.
func (r *reader) read(ctx context.Context, c candidate) (observation, error) {
	obs, err := r.readSource(ctx, c)
	if err == nil && obs.why == "" {
		obs.why = r.m.track.limits.outside(obs.power)
	}
	if c == r.using {
		obs.note = joinWords(r.passed, obs.note)
	}
	return obs, err
}

func (r *reader) readSource(ctx context.Context, c candidate) (observation, error) {
	if c == byDCMI {
		return readDCMI(ctx, r.link)
	}
	recs, err := r.sensors(ctx)
	if err != nil {
		return observation{}, err
	}
	var chosen []sensor
	none := "no watt sensor of the node"
	switch c {
	case bySystem:
		chosen = systemOf(recs.watts)
	case bySupplies:
		chosen, none = suppliesOf(recs.watts), "no watt sensor of a supply"
		if len(chosen) > 0 && recs.doubt != "" && r.m.cfg.Source == ChoiceAuto {
			return observation{why: recs.doubt + ", so a supply may be missing in the sum; ipmi.source: sensors uses it nevertheless"}, nil
		}
	case byName:
		chosen, none = named(recs.watts, r.m.cfg.Source), fmt.Sprintf("no watt sensor %q", r.m.cfg.Source)
	case byNothing, byDCMI:
	}
	if len(chosen) == 0 {
		return observation{}, fmt.Errorf("%w: %s", ErrNoReading, none)
	}
	obs, err := readSensors(ctx, r.link, chosen, r.measured)
	obs.note = joinWords(obs.note, recs.note)
	return obs, err
}

// sensors are the watt sensors, read once per login.
func (r *reader) sensors(ctx context.Context) (*records, error) {
	now := r.m.now()
	if r.records != nil || r.walkErr != nil && now-r.walkedAt < walkPause {
		return r.records, r.walkErr
	}
	recs, err := listSensors(ctx, r.link)
	r.walkErr, r.walkedAt = err, r.m.now()
	if err != nil {
		return nil, err
	}
	r.records = &recs
	return r.records, nil
}

// named is the sensor of that name.
func named(all []sensor, name string) []sensor {
	for _, s := range all {
		if s.name == name {
			return []sensor{s}
		}
	}
	return nil
}

// inventoryMost bounds the sensors that an error names.
const inventoryMost = 8

// inventory is what the BMC has, in words.
func inventory(recs *records) string {
	all := recs.watts
	if len(all) == 0 {
		return recs.note
	}
	more := ""
	if n := len(all) - inventoryMost; n > 0 {
		all, more = all[:inventoryMost], fmt.Sprintf(" and %d more", n)
	}
	return joinWords("the BMC has "+strings.ReplaceAll(names(all), " + ", ", ")+more, recs.note)
}

func joinWords(a, b string) string {
	if a == "" || b == "" {
		return a + b
	}
	return a + "; " + b
}
