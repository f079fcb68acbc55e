package scheduler

import (
	"maps"
	"net"
	"slices"
	"strings"
	"time"

	"headroom/internal/cli"
	"headroom/internal/config"
	"headroom/jobs/dispatch/pigeon"
	"headroom/scheduler/distributor"
	"headroom/scheduler/jobfile"
)

// Dispatch is the dispatch section: the groups of workers whose masters dispatch tasks.
type Dispatch struct {
	// Groups are the addresses of each group's masters. Without groups, jobs with dispatch: pigeon are refused.
	Groups map[string][]string `yaml:"groups"`
	// Cutoff separates short jobs from long ones by the duration of their tasks.
	Cutoff config.Duration `yaml:"cutoff"`
	// Spread is power, level or even.
	Spread string `yaml:"spread"`
	// Placement is round-robin or block.
	Placement string `yaml:"placement"`
	// MaxTasks bounds the unfinished tasks of such jobs.
	MaxTasks int `yaml:"max_tasks"`
}

const (
	groupsMax = 1000
	// mastersMax is the active master and its standby.
	mastersMax = 2
	// maxTasksMost is about what fits into the memory of one scheduler: a waiting task takes about 120 bytes.
	maxTasksMost = 10_000_000
)

// On reports whether groups are configured.
func (d Dispatch) On() bool { return len(d.Groups) > 0 }

// dispatchDefaults allows five of the largest jobs, and has the cutoff of the papers' shortest trace.
func dispatchDefaults() Dispatch {
	return Dispatch{Cutoff: config.Duration(10 * time.Second), Spread: "power", Placement: "round-robin", MaxTasks: 300_000}
}

func spreads() map[string]pigeon.Spread {
	return map[string]pigeon.Spread{"power": pigeon.Balanced, "level": pigeon.Level, "even": pigeon.Even}
}

func placements() map[string]pigeon.Placement {
	return map[string]pigeon.Placement{"round-robin": pigeon.RoundRobin, "block": pigeon.Block}
}

func (d Dispatch) check() *cli.Error {
	_, spread := spreads()[d.Spread]
	_, placement := placements()[d.Placement]
	switch {
	case !spread:
		return config.Bad("want one of power, level, even", "dispatch.spread %q is unknown", d.Spread)
	case !placement:
		return config.Bad("want one of round-robin, block", "dispatch.placement %q is unknown", d.Placement)
	case d.Cutoff <= 0:
		return config.Bad("cutoff: 10s is the default", "dispatch.cutoff is %v; it must be above 0", d.Cutoff)
	case d.MaxTasks < 1 || d.MaxTasks > maxTasksMost:
		return config.Bad("max_tasks: 300000 is the default", "dispatch.max_tasks is %d; it must be from 1 to %d", d.MaxTasks, maxTasksMost)
	case len(d.Groups) > groupsMax:
		return config.Bad("use larger groups, of 50 to 100 workers each", "%d dispatch.groups; the maximum is %d", len(d.Groups), groupsMax)
	}
	var addresses []string
	for _, name := range slices.Sorted(maps.Keys(d.Groups)) {
		if err := checkGroup(name, d.Groups[name], addresses); err != nil {
			return err
		}
		addresses = append(addresses, d.Groups[name]...)
	}
	return nil
}

// checkGroup checks a group whose masters must not be among others.
func checkGroup(name string, masters, others []string) *cli.Error {
	switch {
	case !jobfile.ValidName(strings.ReplaceAll(name, "/", "-")):
		return config.Bad("use the name of a power domain, for example rack/r1", "dispatch.groups: group name %q is invalid", name)
	case len(masters) < 1 || len(masters) > mastersMax:
		return config.Bad(`for example rack/r1: ["10.0.1.1:7420", "10.0.1.2:7420"]`, "dispatch.groups: %s has %d masters; it must have 1 or %d", name, len(masters), mastersMax)
	}
	for i, a := range masters {
		if _, _, err := net.SplitHostPort(a); err != nil {
			return config.Bad("write host:port, for example 10.0.1.1:7420", "dispatch.groups: %s: %q is not an address", name, a)
		}
		if slices.Contains(others, a) || slices.Contains(masters[:i], a) {
			return config.Bad("a master serves one group", "dispatch.groups: %s: %s appears twice", name, a)
		}
	}
	return nil
}

// masters returns the addresses of all masters.
func (d Dispatch) masters() []string { return slices.Concat(slices.Collect(maps.Values(d.Groups))...) }

// Distributor returns the configuration of a distributor.
func (d Dispatch) Distributor() distributor.Config {
	c := distributor.Config{Spread: spreads()[d.Spread], Placement: placements()[d.Placement]}
	for _, name := range slices.Sorted(maps.Keys(d.Groups)) {
		c.Groups = append(c.Groups, distributor.Group{Name: name, Masters: d.Groups[name]})
	}
	return c
}
