// Claims: none of its own; what other tests look at and no program needs.
package capping

import "time"

// Age returns the time since the BMC's value last changed to a plausible one; false: never.
func (l *Learner) Age(now time.Duration) (time.Duration, bool) { return now - l.freshAt, l.began }
