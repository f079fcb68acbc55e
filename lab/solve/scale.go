package solve

import (
	"context"

	"headroom/scheduler/scale"
)

func scaleOut(_ context.Context, in *scale.Input) (*scale.Answer, error) { return scale.Solve(in) }
