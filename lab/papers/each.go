package papers

import (
	"runtime"
	"slices"
	"sync"
)

// Each tries 0 to n-1 on all cores and returns the error of the first that failed; said
// is called after each with the number done.
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
