package demo

import "errors"

var (
	// ErrBroken says that the run broke a promise or did not come to its end.
	ErrBroken = errors.New("demo: a promise was broken")
	// ErrNoText says that too little readable text was found to make an input of.
	ErrNoText = errors.New("demo: no text found on this machine")
	// ErrEnded says that a program of the cluster ended although nobody ended it.
	ErrEnded = errors.New("demo: a program ended by itself")
)
