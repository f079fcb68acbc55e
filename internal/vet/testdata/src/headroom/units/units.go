package units

type Power int64

func (p Power) Watts() float64 { return float64(p) / 1e6 }
