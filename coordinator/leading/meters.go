package leading

import (
	"time"

	"headroom/coordinator/view"
)

// meterLife is how long a meter's reading counts: PDUs are read every few seconds, some every minute.
const meterLife = 90 * time.Second

// meters are the newest readings of domains' meters, by domain. They never enter the log.
type meters map[string]metered

// metered is a reading, and when it was made.
type metered struct {
	view.Reading

	at time.Duration // leader's monotonic time
}

// report takes in a reading.
func (m meters) report(domain string, r view.Reading, at time.Duration) { m[domain] = metered{r, at} }

// counting are the readings that count at a moment.
func (m meters) counting(now time.Duration) map[string]view.Reading {
	out := make(map[string]view.Reading, len(m))
	for domain, r := range m {
		if now-r.at <= meterLife {
			out[domain] = r.Reading
		}
	}
	return out
}
