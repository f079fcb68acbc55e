package admit

// figures are the paper's measures of a run. What has no denominator is nil.
type figures struct {
	sdr, ptr, wasted *float64
}

// measure returns the measures of a run of jobs.
func (o *outcome) measure(jobs []job) figures {
	var met, all, workMet, workAll, lost, spent float64
	for i := range o.jobs {
		e := &o.jobs[i]
		all++
		workAll += jobs[i].work
		spent += e.got
		if e.met {
			met++
			workMet += jobs[i].work
		} else {
			lost += e.got
		}
	}
	return figures{sdr: ratio(met, all), ptr: ratio(workMet, workAll), wasted: ratio(lost, spent)}
}

// ratio is a part of a whole; nil of nothing.
func ratio(part, whole float64) *float64 {
	if whole <= 0 {
		return nil
	}
	r := min(1, max(0, part/whole))
	return &r
}
