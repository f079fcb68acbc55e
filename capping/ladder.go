package capping

import "strings"

// Rung is one way to hold a cap.
type Rung int

// Rungs, best first. DCMI is no rung that is stood on: it is the BMC's own limit
// a little above the cap, the last line behind whichever rung is used.
const (
	RungNone Rung = iota
	RungRAPL
	RungFreq
	RungBandwidth
	RungDCMI
)

// String is the rung as status, heartbeats and metrics name it.
func (r Rung) String() string {
	return [...]string{"none", "rapl", "cpufreq", "bandwidth", "dcmi"}[r]
}

// RungState is what a rung is good for now.
type RungState int

// States of a rung.
const (
	RungMissing  RungState = iota // the machine has no such control
	RungOff                       // configuration rules it out
	RungLocked                    // firmware locked it: writes are refused or without effect
	RungRefused                   // the kernel refuses writes (permission, error)
	RungDrifting                  // somebody else keeps changing what was written
	RungReady                     // it takes what is written
	RungUsed                      // it is what holds the cap; only in the answer of Choose
)

// String is the state as status names it. A rung that drifts is called refused:
// it does not hold what is written.
func (s RungState) String() string {
	return [...]string{"missing", "off", "locked", "refused", "refused", "ready", "used"}[s]
}

// RungInfo is one rung and how it stands.
type RungInfo struct {
	Rung  Rung
	State RungState
	// Text says why, in the words of whoever found out; Choose adds its own.
	Text string
}

// Ladder is the decision which rung holds the cap.
type Ladder struct {
	// Use is the rung that holds the cap; RungNone: the node is uncontrolled.
	Use Rung
	// Bandwidth says that CPU bandwidth may be used below the lowest frequency.
	Bandwidth bool
	// Backstop says that the BMC's limit may be kept above the cap.
	Backstop bool
	// Software says that the cap is held by software: the node is charged its draw
	// at full load under the highest setting written.
	Software bool
	// Why in one sentence.
	Why string
	// Rungs are all of them with their states, best first, the used one marked.
	Rungs []RungInfo
}

// Choose picks the rung: RAPL limits where they hold, else frequency, with CPU
// bandwidth below its lowest step. Bandwidth alone bounds only some slices of the
// machine, so it never is a cap by itself; a node with nothing better than that
// is uncontrolled, and charged its rated watts. rungs may come in any order; what
// is not named is missing.
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

// words is one rung that is not stood on.
func (i RungInfo) words() string {
	s := i.Rung.String() + " is " + map[RungState]string{
		RungMissing: "missing", RungOff: "turned off", RungLocked: "locked", RungRefused: "refused", RungDrifting: "changed by another program",
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
		return "package limits hold the cap"
	case RungFreq:
		s = "frequency holds the cap, since " + strings.Join(passed, " and ")
		if l.Bandwidth {
			s += "; below the lowest frequency the CPU bandwidth of slices does"
		}
	case RungNone, RungBandwidth, RungDCMI:
		s = "nothing holds a cap: " + strings.Join(passed, ", ")
		if l.Rungs[2].State == RungReady {
			s += "; CPU bandwidth bounds only some slices, never the machine"
		}
	}
	return s
}
