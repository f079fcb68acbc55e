package bad

import "headroom/ledger"

func drift(seconds float64) float64 { return seconds * ledger.Rho }
