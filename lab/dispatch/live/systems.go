package live

import (
	"context"
)

// start starts the system of a policy.
func start(ctx context.Context, policy, dir, bin string) (system, error) {
	return nil, nil
}

func simulate(ctx context.Context, policy string, l *load, scale float64, seed uint64, seeds int) (map[cell]spread, error) {
	return nil, nil
}
