//go:build race

package testkit

// raced reports whether this is a build with the race detector.
const raced = true
