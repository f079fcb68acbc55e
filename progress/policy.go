package progress

// Policy states how a progress rate is carried over to another cap and other containers.
type Policy string

// Policies by name.
const (
	// Learned learns how the rate follows cap and containers: the default.
	Learned Policy = "learned"
	// Paper is CAB's filter, equations 1 and 2: in proportion to both.
	Paper Policy = "paper"
	// Released is what CAB's published code does: seconds per task, older samples
	// weighted by the ratio of the caps, containers left aside.
	Released Policy = "released"
)

// Policies returns all policies, the default first.
func Policies() []Policy { return []Policy{Learned, Paper, Released} }
