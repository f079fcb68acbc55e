// Claims: the closed forms equal the paper's sums, computed literally with exact fractions or 300 bits; more load or more tasks
// never help.
package pigeon

import (
	"math"
	"math/big"
	"testing"

	"pgregory.net/rapid"
)

// literal is (4.1) as printed, with 300 bits.
func literal(workers int, load float64) float64 {
	num := func(x float64) *big.Float { return new(big.Float).SetPrec(300).SetFloat64(x) }
	offered := num(0).Mul(num(float64(workers)), num(load))
	term, sum, power := num(1), num(0), num(1) // term is (N rho)^k / k!, power is (N rho)^N / N!
	for k := range workers {
		sum.Add(sum, term)
		term.Mul(term, offered).Quo(term, num(float64(k+1)))
	}
	power.Set(term)
	free := num(0).Sub(num(1), num(load))
	free.Mul(free, sum).Quo(free, power).Add(free, num(1))
	p, _ := num(0).Sub(num(1), num(0).Quo(num(1), free)).Float64()
	return p
}

// literalSparrow is (4.4) as printed, with exact fractions.
func literalSparrow(load float64, fanout int) float64 {
	rho := new(big.Rat).SetFloat64(load)
	idle := new(big.Rat).Sub(big.NewRat(1, 1), rho)
	sum := new(big.Rat)
	for i := fanout; i <= 2*fanout; i++ {
		term := new(big.Rat).SetInt(new(big.Int).Binomial(int64(2*fanout), int64(i)))
		for range i {
			term.Mul(term, idle)
		}
		for range 2*fanout - i {
			term.Mul(term, rho)
		}
		sum.Add(sum, term)
	}
	p, _ := sum.Float64()
	return p
}

func TestAsPrinted(t *testing.T) {
	t.Parallel()
	for _, workers := range []int{1, 2, 50, 100, 200, 1000} {
		for _, load := range []float64{0.05, 0.3, 0.5, 0.8, 0.95, 0.999} {
			p := predict(cluster{workers, 50, load, 100})
			zero := literal(workers, load)
			wait := (1 - zero) / (float64(workers)/100 - load*float64(workers)/100)
			for what, x := range map[string][2]float64{
				"(4.1)": {p.taskZero, zero},
				"(4.2)": {p.wait, wait},
				"(4.3)": {p.zeroSame, math.Pow(zero, 50)},
				"(4.6)": {p.zeroVaried, zero * math.Exp(-wait/100)},
			} {
				if math.Abs(x[0]-x[1]) > 1e-10*max(1, x[1]) {
					t.Errorf("%s, %d workers, load %v: %v, want %v", what, workers, load, x[0], x[1])
				}
			}
		}
	}
}

func TestSparrowAsPrinted(t *testing.T) {
	t.Parallel()
	for _, fanout := range []int{1, 2, 10, 50} {
		for _, load := range []float64{0, 0.25, 0.5, 0.75, 0.9} {
			got := probed(load, fanout)
			if want := literalSparrow(load, fanout); math.Abs(got-want) > 1e-12 {
				t.Errorf("load %v, fan-out %d: %v, want %v", load, fanout, got, want)
			}
		}
	}
}

func TestLaws(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		c := cluster{
			workers: rapid.IntRange(1, 500).Draw(t, "workers"), fanout: 1,
			load: rapid.Float64Range(0, 0.98).Draw(t, "load"), mean: rapid.Float64Range(1e-3, 1e3).Draw(t, "mean"),
		}
		busier, wider := c, c
		busier.load += 0.01
		wider.fanout = 2
		one, more, two := predict(c), predict(busier), predict(wider)
		if more.taskZero > one.taskZero+1e-12 || more.wait < one.wait {
			t.Fatalf("more load: %+v, then %+v", one, more)
		}
		if two.zeroSame > one.zeroSame {
			t.Fatalf("two tasks: %+v, then %+v", one, two)
		}
		for _, p := range []float64{one.taskZero, one.zeroSame, one.zeroVaried} {
			if !(p >= 0 && p <= 1) {
				t.Fatalf("%+v", one)
			}
		}
	})
}
