package throttle

import (
	"encoding/json"
	"errors"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// Signals slows processes by SIGSTOP and SIGCONT. Each CPU second they use is
// paid from a bucket that fills at the allowed rate: when it is empty they are
// all stopped, when it has filled again they all go on.
type Signals struct {
	path    string // where the held processes are noted for the next start
	members map[int]*member
	tokens  time.Duration // CPU time that may be used at once; negative is debt
	cores   float64       // CPUs allowed at the last step
	stopped bool
}

// member is one held process.
type member struct {
	start uint64        // identity with the pid
	cpu   time.Duration // CPU time already paid
}

// NewSignals is a throttle by signals. It notes the held processes in the file
// at path, and ends those that an earlier run noted there and left behind.
func NewSignals(path string) (*Signals, error) {
	s := &Signals{path: path, members: make(map[int]*member)}
	if err := s.sweep(); err != nil {
		return nil, err
	}
	return s, nil
}

// noted is one held process as the file has it.
type noted struct {
	PID   int    `json:"pid"`
	Start uint64 `json:"start"`
}

// sweep ends what an earlier run left stopped: the same pid and start time is the
// same process.
func (s *Signals) sweep() error {
	text, err := os.ReadFile(s.path)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	var left []noted
	if err == nil && json.Unmarshal(text, &left) == nil {
		for _, p := range left {
			if st, ok := readStat(p.PID); ok && st.start == p.Start {
				s.signal(p.PID, unix.SIGKILL)
			}
		}
	}
	return os.Remove(s.path)
}

// Kind is "signals".
func (s *Signals) Kind() string { return "signals" }

// String describes how the processes are slowed down.
func (s *Signals) String() string { return "signals: its processes are stopped and continued" }

// Hold takes over roots and their present descendants.
func (s *Signals) Hold(roots []int) error {
	changed := false
	here := make(map[int]bool)
	for _, pid := range Descendants(roots) {
		st, ok := readStat(pid)
		if !ok || st.state == 'Z' {
			continue
		}
		here[pid] = true
		if m := s.members[pid]; m != nil && m.start == st.start {
			continue
		}
		s.members[pid] = &member{start: st.start}
		changed = true
		if s.stopped {
			s.signal(pid, unix.SIGSTOP)
		}
	}
	for pid := range s.members {
		if !here[pid] {
			delete(s.members, pid)
			changed = true
		}
	}
	if changed {
		return s.note()
	}
	return nil
}

// note records the held processes, so that a killed run leaves none stopped forever.
func (s *Signals) note() error {
	list := make([]noted, 0, len(s.members))
	for pid, m := range s.members {
		list = append(list, noted{pid, m.start})
	}
	text, err := json.Marshal(list)
	return errors.Join(err, os.WriteFile(s.path, text, 0o600))
}

// Step pays for what was used and stops or continues every process.
func (s *Signals) Step(dt time.Duration, cores float64) (time.Duration, error) {
	used := s.used()
	s.cores = cores
	earned := time.Duration(cores * float64(dt))
	most := time.Duration(cores * float64(burst))
	s.tokens = min(s.tokens+earned-used, most)
	switch {
	case s.tokens <= 0 && !s.stopped:
		s.all(unix.SIGSTOP)
	case s.tokens > 0 && s.stopped:
		s.all(unix.SIGCONT)
	}
	return used, nil
}

// Next is a pulse away while processes run; while they are stopped it is when
// their debt is paid.
func (s *Signals) Next() time.Duration {
	switch {
	case len(s.members) == 0:
		return 0
	case !s.stopped || s.cores <= 0:
		return pulse
	default:
		return max(pulse, time.Duration(float64(-s.tokens)/s.cores))
	}
}

// used is the CPU time of all members since the last look.
func (s *Signals) used() time.Duration {
	var sum time.Duration
	for pid, m := range s.members {
		cpu, ok := cpuTime(pid)
		if !ok {
			continue // gone; the next Hold forgets it
		}
		sum += max(0, cpu-m.cpu)
		m.cpu = max(cpu, m.cpu)
	}
	return sum
}

func (s *Signals) all(sig unix.Signal) {
	s.stopped = sig == unix.SIGSTOP
	for pid := range s.members {
		s.signal(pid, sig)
	}
}

// signal reaches a process if it is still there; one that ended is no error.
func (s *Signals) signal(pid int, sig unix.Signal) {
	if pid > 1 {
		_ = unix.Kill(pid, sig)
	}
}

// Close ends every held process; SIGKILL reaches stopped ones too.
func (s *Signals) Close() error {
	s.all(unix.SIGKILL)
	_ = os.Remove(s.path) // where nothing was ever held there is none
	return nil
}
