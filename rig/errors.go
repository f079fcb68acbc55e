package rig

import "errors"

var (
	// ErrEnded reports a program that ended by itself; the message has the end of its log.
	ErrEnded = errors.New("rig: process ended by itself")
	// ErrConfig reports a Config that cannot be.
	ErrConfig = errors.New("rig: bad configuration")
)
