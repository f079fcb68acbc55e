package deflation

import "headroom/jobs/queueing"

// phasesMost bounds the phases of a fitted distribution: 100 have a coefficient of variation
// of 0.1, and jobs whose times vary less count as varying that much. Mean waits are in
// proportion to 1 + cv^2, so that is a percent at most.
const phasesMost = 100

// fit returns a PH distribution with these three moments; where that takes too many phases, or
// there is none, one with the first two.
func fit(m [3]float64) (queueing.PH, error) {
	cv2 := max(m[1]/(m[0]*m[0])-1, 1.0/phasesMost)
	if cv2 > 1.5/phasesMost {
		if ph, err := queueing.FitMoments(m[0], m[1], m[2]); err == nil && ph.Phases() <= phasesMost {
			return ph, nil
		}
	}
	return queueing.Fit(m[0], cv2)
}
