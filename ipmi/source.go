package ipmi

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
)

// candidate is one way to wall power, in words.
type candidate string

const (
	byDCMI     candidate = "DCMI"               // Get Power Reading
	bySystem   candidate = "sensor of the node" // the best of those
	bySupplies candidate = "supplies"           // the sum of their inputs
	byName     candidate = "sensor"             // the one that Config.Source names
)

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
	all := []candidate{byDCMI, bySystem, bySupplies}
	switch r.m.cfg.Source {
	case ChoiceAuto:
		return all
	case ChoiceDCMI:
		return all[:1]
	case ChoiceSensors:
		return all[1:]
	}
	return []candidate{byName}
}

// observe takes one reading from the source in use, or looks for one that is plausible.
func (r *reader) observe(ctx context.Context) (observation, error) {
	if err := r.connect(ctx); err != nil {
		return observation{}, err
	}
	if r.using == "" {
		return r.search(ctx)
	}
	obs, err := r.read(ctx, r.using)
	if err == nil && obs.why == "" {
		r.goodAt = r.m.now()
	} else if errors.Is(err, ErrNoReading) || r.m.now()-r.goodAt > switchAfter {
		r.using = ""
		return r.search(ctx)
	}
	obs.note = joinWords(r.passed, obs.note)
	return obs, err
}

// search tries each source. Where none is plausible, the first that the BMC has counts.
func (r *reader) search(ctx context.Context) (first observation, firstErr error) {
	var whys, missing []string
	r.searches++
	for _, c := range r.candidates() {
		obs, err := r.read(ctx, c)
		why := obs.why
		switch {
		case err == nil && why == "":
			r.using, r.goodAt, r.passed, r.searches = c, r.m.now(), strings.Join(whys, "; "), 0
			obs.note = joinWords(r.passed, obs.note)
			return obs, nil
		case errors.Is(err, ErrNoReading):
			missing = append(missing, strings.TrimPrefix(err.Error(), ErrNoReading.Error()+": "))
			continue
		case err != nil:
			why = err.Error()
		}
		if len(whys) == 0 {
			first, firstErr = obs, err
		}
		whys = append(whys, fmt.Sprintf("%s not used: %s", c, why))
		if ctx.Err() != nil || err != nil && r.searches < patience {
			break
		}
	}
	switch {
	case len(whys) == 0:
		words := strings.Join(missing, ", ")
		if r.records != nil && len(r.records.watts) > 0 {
			words += "; the BMC has " + names(r.records.watts[:min(namedMost, len(r.records.watts))])
		}
		r.hangUp() // a later login may show more
		firstErr = fmt.Errorf("%w: %s", ErrNoReading, words)
	case firstErr == nil && len(whys) > 1:
		first.why = strings.Join(whys, "; ")
	}
	return first, firstErr
}

// namedMost bounds the sensors that an error names.
const namedMost = 8

// read takes one reading of one source; why says what this node cannot draw.
func (r *reader) read(ctx context.Context, c candidate) (obs observation, err error) {
	if c == byDCMI {
		obs, err = readDCMI(ctx, r.link)
	} else {
		obs, err = r.readSensors(ctx, c)
	}
	if err == nil && obs.why == "" {
		obs.why = r.m.track.limits.outside(obs.power)
	}
	return obs, err
}

func (r *reader) readSensors(ctx context.Context, c candidate) (observation, error) {
	recs, err := r.sensors(ctx)
	if err != nil {
		return observation{}, err
	}
	chosen, none := systemOf(recs.watts), "no watt sensor of the node"
	switch c {
	case bySupplies:
		chosen, none = suppliesOf(recs.watts), "no watt sensor of a supply"
		if len(chosen) > 0 && recs.doubt != "" && r.m.cfg.Source == ChoiceAuto {
			return observation{why: recs.doubt + ", so a supply may be missing in the sum; ipmi.source: sensors uses it nevertheless"}, nil
		}
	case byName:
		at := slices.IndexFunc(recs.watts, func(s sensor) bool { return s.name == r.m.cfg.Source })
		chosen, none = recs.watts[max(0, at):at+1], fmt.Sprintf("no watt sensor %q", r.m.cfg.Source)
	case bySystem, byDCMI:
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
	if now := r.m.now(); r.records != nil || r.walkErr != nil && now-r.walkedAt < walkPause {
		return r.records, r.walkErr
	}
	r.records, r.walkErr = listSensors(ctx, r.link)
	r.walkedAt = r.m.now()
	return r.records, r.walkErr
}

func joinWords(a, b string) string {
	if a == "" || b == "" {
		return a + b
	}
	return a + "; " + b
}
