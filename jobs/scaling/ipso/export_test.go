// Claims: none of its own; what other tests look at and no program needs.
package ipso

// At returns the value at a degree.
func (s *Stepped) At(n int) float64 {
	if n < s.From {
		return s.Below.At(float64(n))
	}
	return s.Above.At(float64(n))
}

// Speedup returns (2.8) with the fitted factors, and tasks whose slowest exceeds the mean as measured.
func (f *Factors) Speedup(n int) float64 {
	work := f.Eta * f.EX.At(float64(n))
	serial := 0.0
	if f.Eta < 1 {
		serial = (1 - f.Eta) * f.IN.At(n)
	}
	return (work + serial) / (work/float64(n)*(f.Spread+f.Q(n)) + serial)
}

// Q returns the overhead of scaling out at a degree.
func (f *Factors) Q(n int) float64 {
	return Model{Beta: f.Beta.Value, Gamma: f.Gamma.Value}.Q(float64(n))
}
