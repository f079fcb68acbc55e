// Claims: the closed forms equal the paper's sums, computed literally with exact fractions or 300 bits; more load or more tasks
// never help; a number outside the model is an error with its name and the way out.
package theory

import (
	"errors"
	"math"
	"math/big"
	"strings"
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
			p, err := Predict(Cluster{Groups: 100, Workers: workers, Load: load, Fanout: 50, Mean: 100})
			if err != nil {
				t.Fatal(err)
			}
			zero := literal(workers, load)
			wait := (1 - zero) / (float64(workers)/100 - load*float64(workers)/100)
			for what, x := range map[string][2]float64{
				"(4.1)": {p.TaskZero, zero},
				"(4.2)": {p.Wait, wait},
				"(4.3)": {p.JobZeroSame, math.Pow(zero, 50)},
				"(4.6)": {p.JobZeroVaried, zero * math.Exp(-wait/100)},
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
			got, err := Sparrow(load, fanout)
			if want := literalSparrow(load, fanout); err != nil || math.Abs(got-want) > 1e-12 {
				t.Errorf("load %v, fan-out %d: %v, %v, want %v", load, fanout, got, err, want)
			}
		}
	}
}

// The tables that were computed elsewhere, with other tools: a few of their cells.
func TestPublishedCells(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		workers    int
		load, p, w float64
		varied     float64
	}{
		{50, 0.9, 0.6361355500, 7.277289, 0.59148643},
		{100, 0.9, 0.7830595191, 2.169405, 0.76625473},
		{200, 0.95, 0.6347361434, 3.652639, 0.61196984},
	} {
		got, err := Predict(Cluster{Groups: 150, Workers: c.workers, Load: c.load, Fanout: 100, Mean: 100})
		if err != nil || math.Abs(got.Wait-c.w) > 1e-6 || math.Abs(got.JobZeroVaried-c.varied) > 1e-8 || math.Abs(got.TaskZero-c.p) > 1e-7 {
			t.Errorf("%d workers at %v: %+v, %v", c.workers, c.load, got, err)
		}
	}
}

func TestLaws(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		c := Cluster{
			Groups: rapid.IntRange(2, 500).Draw(t, "groups"), Workers: rapid.IntRange(1, 500).Draw(t, "workers"),
			Load: rapid.Float64Range(0, 0.98).Draw(t, "load"), Mean: rapid.Float64Range(1e-3, 1e3).Draw(t, "mean"), Fanout: 1,
		}
		one, err := Predict(c)
		if err != nil {
			t.Fatal(err)
		}
		busier := c
		busier.Load += 0.01
		more, err := Predict(busier)
		if err != nil || more.TaskZero > one.TaskZero+1e-12 || more.Wait < one.Wait {
			t.Fatalf("more load: %+v, then %+v, %v", one, more, err)
		}
		c.Fanout = 2
		two, err := Predict(c)
		if err != nil || two.JobZeroSame > one.JobZeroSame {
			t.Fatalf("two tasks: %+v, then %+v, %v", one, two, err)
		}
		for _, p := range []float64{one.TaskZero, one.JobZeroSame, one.JobZeroVaried} {
			if !(p >= 0 && p <= 1) {
				t.Fatalf("%+v", one)
			}
		}
	})
}

func TestOutsideTheModel(t *testing.T) {
	t.Parallel()
	good := Cluster{Groups: 10, Workers: 10, Load: 0.5, Fanout: 10, Mean: 1}
	for _, x := range []struct {
		field string
		spoil func(c *Cluster)
	}{
		{"Groups", func(c *Cluster) { c.Groups = 0 }},
		{"Workers", func(c *Cluster) { c.Workers = -1 }},
		{"Workers", func(c *Cluster) { c.Workers = MaxWorkers + 1 }},
		{"Fanout", func(c *Cluster) { c.Fanout = 0 }},
		{"Fanout", func(c *Cluster) { c.Fanout = 11 }},
		{"Load", func(c *Cluster) { c.Load = 1 }},
		{"Load", func(c *Cluster) { c.Load = math.NaN() }},
		{"Load", func(c *Cluster) { c.Load = -0.1 }},
		{"Mean", func(c *Cluster) { c.Mean = 0 }},
		{"Mean", func(c *Cluster) { c.Mean = math.Inf(1) }},
	} {
		c := good
		x.spoil(&c)
		_, err := Predict(c)
		if e, ok := errors.AsType[*InputError](err); !ok || e.Field != x.field || e.Hint == "" || !strings.Contains(err.Error(), "must be") {
			t.Errorf("%+v: %v", c, err)
		}
	}
	for _, c := range []struct {
		load   float64
		fanout int
	}{{1, 5}, {0.5, 0}} {
		if _, err := Sparrow(c.load, c.fanout); err == nil {
			t.Errorf("%+v: no error", c)
		}
	}
}
