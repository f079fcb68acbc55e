// Claims: none of its own; what other tests look at and no program needs.
package usba

// Relative returns the speed-up against a lower degree (3.6), (3.11).
func (m Model) Relative(n, degree, base float64) float64 {
	return m.Speedup(n, degree) / m.Speedup(n, base)
}
