// Claims: none of its own; what other tests look at and no program needs.
package bmc

// PoweredOff reports whether a real BMC would have switched the node off: a limit with
// exception action "hard power off" was active and exceeded for its correction time.
func (b *BMC) PoweredOff() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.limit.fired
}
