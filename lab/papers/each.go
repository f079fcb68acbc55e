package papers

import (
	"cmp"
	"runtime"
	"sync"
)

// Each tries 0 to n-1 on all cores and returns the error of the first that failed; said
// is called after each with the number done.
func Each(n int, try func(i int) error, said func(done int)) error {
	failed, ended, cores := make([]error, n), make(chan struct{}), make(chan struct{}, runtime.GOMAXPROCS(0))
	var workers sync.WaitGroup
	for i := range n {
		workers.Go(func() {
			cores <- struct{}{}
			failed[i] = try(i)
			<-cores
			ended <- struct{}{}
		})
	}
	for i := range n {
		<-ended
		said(i + 1)
	}
	workers.Wait()
	return cmp.Or(failed...)
}
