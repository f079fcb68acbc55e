package cluster

import "errors"

var (
	// ErrEnded is the error of a program that exited unexpectedly; the message has the end of its log.
	ErrEnded = errors.New("cluster: process exited unexpectedly")
	// ErrUnable reports that this machine lacks what something needs.
	ErrUnable = errors.New("cluster: not possible on this machine")
)
