// Package sparkapp is what is known of one Spark application, whoever started it and
// wherever it runs: what the hook in its driver reports, what its REST interface answers
// where the hook is silent, how many executors its share comes to, and what its hook may do
// to keep a deadline or an error bound: end stages with what is done, copy tasks.
//
// The one idea: both sources end in one Progress, so that the engines (a driver beside the
// scheduler, an application of YARN) differ only in how an application is found and ended.
//
// Guarantees:
//   - whatever a driver sends is bounded in size, and refused as a whole where it is invalid;
//   - a value that no source reports is unknown, never 0;
//   - executors fit the shares: they never hold more cores than the shares together, but
//     for the one that each application keeps while it runs;
//   - no stage is let end with less than the floor, nor before its bound.
//
// It starts nothing, keeps no state and sends nothing by itself.
package sparkapp
