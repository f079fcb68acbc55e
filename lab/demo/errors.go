package demo

import "errors"

var (
	// errBroken says that the run broke a promise or did not come to its end.
	errBroken = errors.New("demo: a guarantee was broken")
	// errNoText says that too little readable text was found to make an input of.
	errNoText = errors.New("demo: no text found on this machine")
	// errEnded says that a program of the cluster ended although nobody ended it.
	errEnded = errors.New("demo: a program exited unexpectedly")
)
