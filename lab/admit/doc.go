// Package admit is `powerlab admit`: a file of jobs with deadlines goes past the door of package admission, by any of
// its policies, and the paper's measures come out.
//
// The one idea: Simulate drives the very Controller that a scheduler would drive, with the same calls. It knows
// what each job takes; the controller is told that only when the job has ended, except under the policy oracle.
//
// Guarantees: the same file gives the same bytes; each job of the file has one entry in the answer; the answer holds no
// number that is infinite or none. Nothing outside of the file and stdin is read. Jobs progress with perfect speed-up:
// what a real engine loses between slots is not simulated. The study of the paper (package lab/papers/pythia) runs the same Simulate.
package admit
