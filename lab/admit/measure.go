package admit

// Measures are the paper's measures of a run. What has no denominator is nil.
type Measures struct {
	// SDR is the part of the jobs that met their deadlines, PTR their part of all work, and Wasted the part of the slots'
	// time that went to jobs that missed.
	SDR, PTR, Wasted *float64
}

// Measure returns the measures of a run of jobs.
func (o *Outcome) Measure(jobs []Job) Measures {
	var met, all, workMet, workAll, lost, spent float64
	for i := range o.Jobs {
		e := &o.Jobs[i]
		all++
		workAll += jobs[i].Work
		spent += e.Got
		if e.Met {
			met++
			workMet += jobs[i].Work
		} else {
			lost += e.Got
		}
	}
	return Measures{SDR: ratio(met, all), PTR: ratio(workMet, workAll), Wasted: ratio(lost, spent)}
}

// Judge decides again which jobs have met their deadlines, by those of the jobs: for a run by a door that looks at none.
func (o *Outcome) Judge(jobs []Job) {
	for i := range o.Jobs {
		e := &o.Jobs[i]
		e.Met = e.ended && e.finish-jobs[i].Arrival <= jobs[i].Deadline+slack
	}
}

// slack is by how much a time may miss another through rounding, s.
const slack = 1e-6

// ratio is a part of a whole; nil of nothing.
func ratio(part, whole float64) *float64 {
	if whole <= 0 {
		return nil
	}
	r := min(1, max(0, part/whole))
	return &r
}
