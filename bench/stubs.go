package bench

import "context"

func measureNodeCut(context.Context, *lab) ([]Row, error)    { return nil, nil }
func measureAgentCost(context.Context, *lab) ([]Row, error)  { return nil, nil }
func measureClusterCut(context.Context, *lab) ([]Row, error) { return nil, nil }
func measureFailover(context.Context, *lab) ([]Row, error)   { return nil, nil }
