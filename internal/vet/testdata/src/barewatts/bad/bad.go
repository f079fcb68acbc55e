package bad

const RatedW = 95.5 // want `RatedW is a bare float`

type Node struct {
	CapWatts float64            // want `CapWatts is a bare float`
	PeakW    *float64           `json:"peak"` // want `PeakW is a bare float`
	Joules   map[string]float64 // want `Joules is a bare float`
}

type Meter interface {
	Watts() float64 // want `bare float`
}

func Plan(budgetW float64) {} // want `bare float`

func Spent() (joules []float64) { return nil } // want `bare float`

func (n Node) MeanWatts() (float64, error) { return 0, nil } // want `bare float`
