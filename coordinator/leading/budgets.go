package leading

import (
	"time"

	headroomv1 "headroom/api/headroom/v1"
	"headroom/coordinator/metrics"
	"headroom/coordinator/view"
	"headroom/units"
)

// budgetWatch counts the time in which domains are above their budgets.
type budgetWatch struct {
	counts *metrics.Counts
	looked time.Duration // when the domains were last compared with their budgets
}

// look counts the time since the last look in which domains drew, or were charged, more
// than their budgets. With unknown nodes the known sum counts, a lower bound of what is
// drawn. A gap without decisions counts up to the age at which a measurement expires.
func (b *budgetWatch) look(domains []*headroomv1.Domain, now time.Duration) {
	passed := min(now-b.looked, view.StaleReport)
	b.looked = now
	for _, m := range domains {
		if drawn, known := view.DrawnAtLeast(m); known && drawn > units.Power(m.GetBudgetUw()) {
			b.counts.Violated(m.GetName(), drawn-units.Power(m.GetBudgetUw()), passed)
		}
		if m.GetHeadroomUw() < 0 {
			b.counts.Short(m.GetName(), passed)
		}
	}
}
