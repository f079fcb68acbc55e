package capping

import "strings"

// Rung is a control that can enforce a cap.
type Rung int

// Rungs, best first. DCMI is never used alone: it is the limit of the BMC a little above
// the cap, as a last line behind the rung in use.
const (
	RungNone Rung = iota
	RungRAPL
	RungFreq
	RungBandwidth
	RungDCMI
)

// String returns the name of the rung in status, heartbeats and metrics.
func (r Rung) String() string {
	return [...]string{"none", "rapl", "cpufreq", "bandwidth", "dcmi"}[r]
}

// RungState is the state of a rung.
type RungState int

// States of a rung.
const (
	RungMissing  RungState = iota // the machine has no such control
	RungOff                       // configuration rules it out
	RungLocked                    // firmware locked it: writes are refused or without effect
	RungRefused                   // the kernel refuses writes (permission, error)
	RungDrifting                  // another program keeps changing the written values
	RungFixed                     // it takes writes, but its range leaves nothing to take away
	RungReady                     // it accepts written values
	RungUsed                      // it enforces the cap; only in the result of Choose
)

// String returns the name of the state in the status. A drifting rung is called refused: it
// does not keep written values.
func (s RungState) String() string {
	return [...]string{"missing", "off", "locked", "refused", "refused", "fixed", "ready", "used"}[s]
}

// RungInfo is one rung with its state.
type RungInfo struct {
	Rung  Rung
	State RungState
	// Text is the reason; Choose adds its own.
	Text string
}

// Ladder is the decision which rung enforces the cap.
type Ladder struct {
	// Use is the rung that enforces the cap; RungNone: the node is uncontrolled.
	Use Rung
	// Bandwidth reports whether CPU bandwidth may be used below the lowest frequency.
	Bandwidth bool
	// Backstop reports whether the BMC's limit may be kept above the cap.
	Backstop bool
	// Software reports whether software enforces the cap: the node is charged its draw
	// at full load under the highest setting written.
	Software bool
	// Why in one sentence.
	Why string
	// Rungs are all of them with their states, best first, the used one marked.
	Rungs []RungInfo
}

// Choose selects the rung: RAPL limits if they work, otherwise frequency, with CPU
// bandwidth below its lowest step. Bandwidth limits only some slices of the machine, so it
// cannot enforce a cap alone; a node with only bandwidth is uncontrolled and charged its
// rated power. rungs may be in any order; an absent one is missing.
func Choose(rungs []RungInfo) Ladder {
	l := Ladder{Rungs: make([]RungInfo, 0, RungDCMI)}
	for r := RungRAPL; r <= RungDCMI; r++ {
		info := RungInfo{Rung: r, Text: "this machine has none"}
		for _, given := range rungs {
			if given.Rung == r {
				info = given
			}
		}
		l.Rungs = append(l.Rungs, info)
	}
	var passed []string
	for i := range l.Rungs[:2] {
		if info := &l.Rungs[i]; info.State == RungReady || info.State == RungUsed {
			l.Use, info.State = info.Rung, RungUsed
			break
		}
		passed = append(passed, l.Rungs[i].words())
	}
	l.Software = l.Use == RungFreq
	l.Bandwidth = l.Software && l.Rungs[2].State == RungReady
	l.Backstop = l.Use != RungNone && l.Rungs[3].State == RungReady
	l.Why = l.because(passed)
	return l
}

// words describes a rung that is not in use.
func (i RungInfo) words() string {
	s := i.Rung.String() + " is " + map[RungState]string{
		RungMissing: "missing", RungOff: "turned off", RungLocked: "locked", RungRefused: "refused", RungDrifting: "changed by another program", RungFixed: "fixed",
	}[i.State]
	if i.Text != "" {
		s += " (" + i.Text + ")"
	}
	return s
}

func (l *Ladder) because(passed []string) string {
	var s string
	switch l.Use {
	case RungRAPL:
		s = "package limits hold the cap" + l.limits(RungRAPL)
	case RungFreq:
		s = "frequency holds the cap" + l.limits(RungFreq) + ", since " + strings.Join(passed, " and ")
		switch {
		case l.Bandwidth:
			s += "; below the lowest frequency the CPU bandwidth of slices does"
		case l.Rungs[RungBandwidth-1].State == RungFixed:
			s += "; the CPU bandwidth of slices takes nothing more away"
		}
	case RungNone, RungBandwidth, RungDCMI:
		s = "nothing holds a cap: " + strings.Join(passed, ", ")
		if l.Rungs[2].State == RungReady {
			s += "; CPU bandwidth bounds only some slices, never the machine"
		}
	}
	return s
}

// limits returns what the used rung cannot take away, in brackets.
func (l *Ladder) limits(used Rung) string {
	if text := l.Rungs[used-1].Text; text != "" {
		return " (" + text + ")"
	}
	return ""
}
