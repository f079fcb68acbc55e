package rapl // want `internal/vet names \(\*headroom/rapl.Limiter\).SetWindow, which is not there`

type Limiter struct{}

func (l *Limiter) SetPower(constraint string, want int64) (int64, error) { return want, nil }
