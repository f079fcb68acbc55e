package ipso

import (
	"fmt"
	"math"

	"headroom/jobs/scaling/regress"
)

// DegreeMost bounds the scale-out degree: ten times the largest clusters that are known.
const DegreeMost = 1_000_000

// Model is the asymptotic form of IPSO.
type Model struct {
	// Eta is the parallel part of the work at n = 1 (2.9), from 0 to 1.
	Eta float64
	// Alpha and Delta are of EX(n)/IN(n) = alpha*n^delta (2.14); delta is from 0, as with a fixed size, to 1, as with a fixed time and
	// a constant serial part.
	Alpha, Delta float64
	// Beta and Gamma are of q(n) = beta*n^gamma (2.15).
	Beta, Gamma float64
}

// Amdahl returns a job of fixed size.
func Amdahl(eta float64) Model { return Model{Eta: eta, Alpha: 1} }

// Gustafson returns a job whose parallel work grows with the units.
func Gustafson(eta float64) Model { return SunNi(eta, 1) }

// SunNi returns a job whose parallel work grows with the memory, by n^growth.
func SunNi(eta, growth float64) Model { return Model{Eta: eta, Alpha: 1, Delta: growth} }

// Check refuses parameters out of their bounds.
func (m Model) Check() error {
	for _, x := range []struct {
		name        string
		value, most float64
	}{
		{"eta", m.Eta, 1}, {"alpha", m.Alpha, 1e9}, {"delta", m.Delta, 1}, {"beta", m.Beta, 1e9}, {"gamma", m.Gamma, 10},
	} {
		if !(x.value >= 0 && x.value <= x.most) {
			return fmt.Errorf("ipso: %w: %s is %v; it must be from 0 to %g", regress.ErrNumber, x.name, x.value, x.most)
		}
	}
	return nil
}

// overhead reports whether scaling out costs anything.
func (m Model) overhead() bool { return m.Beta > 0 && m.Gamma > 0 }

// Q returns the overhead of scaling out (2.15).
func (m Model) Q(n float64) float64 {
	if n <= 1 || !m.overhead() {
		return 0
	}
	return m.Beta * math.Pow(n, m.Gamma)
}

// Speedup returns (2.16), or (2.17) where there is no serial work; 1 at n = 1.
func (m Model) Speedup(n float64) float64 {
	if n <= 1 {
		return 1
	}
	ratio, serial := m.Alpha*math.Pow(n, m.Delta), 1-m.Eta
	if serial == 0 {
		ratio = 1
	}
	return (m.Eta*ratio + serial) / (m.Eta*ratio/n*(1+m.Q(n)) + serial)
}

// Type is how a job scales.
type Type string

// The types, from linear to peaked (Figs. 2.2 and 2.3).
const (
	Linear Type = "I"
	// Unbounded grows less than linearly.
	Unbounded Type = "II"
	// BoundedSerial is bounded by the serial work, BoundedOverhead by the cost of scaling out.
	BoundedSerial   Type = "III,1"
	BoundedOverhead Type = "III,2"
	// Peaked falls beyond a degree.
	Peaked Type = "IV"
)

// Type returns the type of the scaling.
func (m Model) Type() Type {
	alone := m.Eta == 1 // no serial work
	switch {
	case m.Eta == 0 || m.Alpha == 0:
		return BoundedSerial
	case m.overhead() && m.Gamma > 1:
		return Peaked
	case m.overhead() && m.Gamma == 1:
		return BoundedOverhead
	case !alone && m.Delta == 0:
		return BoundedSerial
	case m.overhead() || (!alone && m.Delta < 1):
		return Unbounded
	default:
		return Linear
	}
}

// Bound returns what the speed-up never exceeds as n grows; false for types I, II and IV.
func (m Model) Bound() (float64, bool) {
	work, serial := m.Eta*m.Alpha, 1-m.Eta
	switch m.Type() {
	case BoundedSerial:
		return (work + serial) / serial, true
	case BoundedOverhead:
		if m.Delta > 0 || serial == 0 {
			return 1 / m.Beta, true
		}
		return (work + serial) / (work*m.Beta + serial), true
	case Linear, Unbounded, Peaked:
	}
	return 0, false
}

// Peak returns the degree of the largest speed-up, and the speed-up; false where it only grows, or peaks beyond DegreeMost.
func (m Model) Peak() (n int, speedup float64, ok bool) {
	if m.Type() != Peaked {
		return 0, 0, false
	}
	n, speedup = peak(func(n int) float64 { return m.Speedup(float64(n)) }, DegreeMost)
	return n, speedup, n < DegreeMost
}

// peak searches the one maximum of a function on 1 to most. The function rises and then falls from 2 on; at 1 it may be above both.
func peak(of func(int) float64, most int) (int, float64) {
	low, high := 2, most
	for low < high {
		if middle := (low + high) / 2; of(middle) < of(middle+1) {
			low = middle + 1
		} else {
			high = middle
		}
	}
	if of(1) >= of(low) {
		return 1, of(1)
	}
	return low, of(low)
}
