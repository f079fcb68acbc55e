package leading

import (
	"time"

	headroomv1 "headroom/api/headroom/v1"
	"headroom/coordinator/metrics"
	"headroom/coordinator/view"
	"headroom/units"
)

// budgetWatch counts for how long domains are above their budgets.
type budgetWatch struct {
	counts *metrics.Counts
	looked time.Duration // when the domains were last held against their budgets
}

// look counts the time since the last look in which domains drew, or were
// charged, more than their budgets. A gap in which nothing was decided counts as
// far as what was measured is still believed.
func (b *budgetWatch) look(domains []*headroomv1.Domain, now time.Duration) {
	passed := min(now-b.looked, view.StaleReport)
	b.looked = now
	for _, m := range domains {
		drawn := m.GetMeasuredUw()
		if m.GetMeasuredBy() == view.MeasuredByNodes {
			drawn += m.GetUnmanagedUw() // a meter sees what nobody manages as well
		}
		if m.MeasuredUw != nil && drawn > m.GetBudgetUw() {
			b.counts.Violated(m.GetName(), units.Power(drawn-m.GetBudgetUw()), passed)
		}
		if m.GetHeadroomUw() < 0 {
			b.counts.Short(m.GetName(), passed)
		}
	}
}
