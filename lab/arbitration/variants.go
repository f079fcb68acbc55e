package arbitration

import (
	"fmt"
	"strconv"
	"time"

	"headroom/jobs/arbiter"
)

// variant is one way to decide.
type variant struct {
	name, says string
	decide     func() decider // makes the decider of one run
	tuned      baseline       // one whose sprint timer is chosen for each load
	learns     bool           // how jobs scale
	price      time.Duration  // of a member of our family
}

// with is the baseline with a sprint timer.
func (v *variant) with(timer time.Duration) variant {
	return variant{name: v.name, says: fmt.Sprintf("%s; sprint timer %v", v.says, timer), decide: func() decider {
		b := v.tuned
		b.timer = timer
		return &b
	}}
}

// baselines are the ways to decide that ours is held against.
func baselines() []variant {
	out := []variant{
		{name: "cab", says: "CAB alone: containers by stretch, early stops behind the uncapped finish", tuned: baseline{order: byShare}},
		{name: "cab-urgent-first", says: "urgent jobs first, CAB divides what they leave", tuned: baseline{order: byShareBelow}},
		{name: "dias", says: "DIAS: one job at a time by class, not preempted, drop ratio 20 %", tuned: baseline{order: oneByOne, theta: 0.2}},
		{name: "urgent-first", says: "urgent jobs first, inside a class who came first", tuned: baseline{order: byTurn}},
		{name: "urgent-first-fair", says: "urgent jobs first, inside a class in equal parts", tuned: baseline{order: byClass}},
		{name: "urgent-first-spend", says: "urgent jobs first, and all classes sprint", tuned: baseline{order: byTurn, spend: true}},
	}
	for _, percent := range []int{10, 20, 30, 40} {
		out = append(out, variant{
			name: fmt.Sprintf("dias-sweep-%d", percent), says: fmt.Sprintf("urgent jobs first, drop ratio %d %% for tolerant ones", percent),
			tuned: baseline{order: byTurn, theta: float64(percent) / 100},
		})
	}
	return out
}

// prices are those of quality that the family is tried with first: of a percent of a job's tasks, from no task given up
// to all that floors leave.
func prices() []time.Duration {
	const ms = time.Millisecond
	return []time.Duration{noPrice, 30_000 * ms, 15_000 * ms, 8000 * ms, 5000 * ms, arbiter.DefaultPercent, 2000 * ms, 1400 * ms, 1000 * ms, 500 * ms}
}

// noPrice stands for no task given up at any price.
const noPrice time.Duration = 0

// reserve is how a member of the family keeps joules for urgent jobs.
type reserve string

// The reserves: that of production, a tenth of it, nothing, and everything.
const usual, spend, free, save reserve = "", "-spend", "-all", "-save"

// member is one of our family: the arbiter with a price of quality and a reserve.
func member(price time.Duration, keep reserve) variant {
	name, says := "arbiter", "the arbiter"
	switch price {
	case arbiter.DefaultPercent:
	case noPrice:
		name, says = name+"-exact", says+", no task given up"
	default:
		text := strconv.FormatFloat(float64(price.Milliseconds())/1000, 'f', -1, 64)
		name, says = name+"-"+text+"s", says+", a percent of the tasks costs "+text+" s"
	}
	says += map[reserve]string{
		spend: ", a tenth of the usual joules reserved for urgent jobs",
		free:  ", no joules reserved for urgent jobs",
		save:  ", tolerant jobs never sprint",
	}[keep]
	v := ours(name+string(keep), says, tweak{percent: price, exact: price == noPrice, keep: keep})
	v.price = price
	return v
}

// shown are the variants of ours that are always shown: the default, its family over prices, the two other reserves,
// and two that show what a part of it is worth and never stand against baselines.
func shown() []variant {
	out := []variant{member(arbiter.DefaultPercent, usual)}
	for _, p := range prices() {
		if p != arbiter.DefaultPercent {
			out = append(out, member(p, usual))
		}
	}
	return append(out, member(arbiter.DefaultPercent, spend), member(arbiter.DefaultPercent, save),
		ours("arbiter-no-holds", "the arbiter, no machine gives watts to others", tweak{noHolds: true}),
		ours("arbiter-oracle", "the arbiter, if it knew the time of every task exactly", tweak{oracle: true}),
	)
}

// ours is a variant of the arbiter.
func ours(name, says string, t tweak) variant {
	return variant{name: name, says: says, decide: func() decider { return &joint{tweak: t} }}
}
