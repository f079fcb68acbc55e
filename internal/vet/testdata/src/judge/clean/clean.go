package clean

//headroom:judge

import "headroom/ledger"

const rho = 0.01

func over(data []byte, k ledger.Kind, seconds float64) bool {
	n := ledger.Decode(data)
	return k == ledger.Held && seconds > 10*(1+rho) && n.Charge() > n.Target
}
