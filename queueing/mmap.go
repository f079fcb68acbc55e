package queueing

import "errors"

// solveMMAP solves a queue whose arrivals are a marked Markovian process.
func solveMMAP(Queue, Options) (Result, error) {
	return Result{}, errors.New("queueing: arrivals.D: general MMAP arrivals are not built yet; give rates")
}
