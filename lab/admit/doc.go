// Package admit simulates the admission of jobs with deadlines by any
// policy of package admission, and computes the paper's measures.
//
// The one idea: Simulate drives the same Controller as a scheduler, with the same calls. The
// simulation has the work of each job; the controller learns it only when the job has ended,
// except under the policy oracle.
//
// Guarantees: the same file gives the same bytes. Each job of the file has one entry in the answer,
// and every number is finite. Nothing is read except the file and stdin. Jobs have perfect
// speed-up: losses of a real engine between slots are not simulated. The study of the paper
// (package lab/papers/pythia) uses the same Simulate.
package admit
