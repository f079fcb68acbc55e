package bad

//headroom:judge

import "headroom/ledger"

func over(n ledger.Node, seconds float64) bool {
	if seconds > 10*(1+ledger.Rho) { // want `a judge writes down the constant ledger.Rho itself`
		return true
	}
	return n.Charge() > n.Least() // want `a judge works out ledger.Least itself`
}
