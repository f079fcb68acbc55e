package papers

import (
	"runtime"
	"slices"
	"strconv"
	"sync"
)

// Stat is a mean over the seeds, with the bounds that hold the mean of other seeds in
// 95 of 100 cases.
type Stat struct {
	Mean, Low, High float64
	Known           bool
}

// Once is the stat of a single value, which has no bounds.
func Once(x float64) Stat { return Stat{x, x, x, true} }

// Judge is a target of a stat.
func Judge(id, what, unit string, got Stat, met bool, note string) Target {
	t := Target{ID: id, What: what, Unit: unit, Note: note}
	if !got.Known {
		t.Note = "not measured"
		return t
	}
	t.Got, t.Low, t.High, t.Met = &got.Mean, &got.Low, &got.High, met
	return t
}

// From adds the paper's own number.
func From(number float64, t Target) Target {
	t.Paper = &number
	return t
}

// Number is a number as tables have it.
func Number(x float64) string { return strconv.FormatFloat(x, 'f', 5, 64) }

// Each tries 0 to n-1 on all cores and returns the error of the first that failed; said
// hears after each how many are done.
func Each(n int, try func(i int) error, said func(done int)) error {
	failed, next, ended := make([]error, n), make(chan int), make(chan struct{})
	var workers sync.WaitGroup
	for range min(n, runtime.GOMAXPROCS(0)) {
		workers.Go(func() {
			for i := range next {
				failed[i] = try(i)
				ended <- struct{}{}
			}
		})
	}
	workers.Go(func() {
		defer close(next)
		for i := range n {
			next <- i
		}
	})
	for i := range n {
		<-ended
		said(i + 1)
	}
	workers.Wait()
	if i := slices.IndexFunc(failed, func(err error) bool { return err != nil }); i >= 0 {
		return failed[i]
	}
	return nil
}
