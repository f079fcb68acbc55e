package demo

import "errors"

var (
	// errBroken means that the run broke a promise or did not come to its end.
	errBroken = errors.New("demo: a guarantee was broken")
	// errNoText means that too little readable text was found to make an input of.
	errNoText = errors.New("demo: no text found on this machine")
)
