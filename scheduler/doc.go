// Package scheduler is the body of the scheduler: it takes jobs, keeps them in
// one buffer per priority class, hands their tasks to the workers of the nodes,
// and uses fewer slots where a node's cap is low.
package scheduler
