// Package pythia is `powerlab paper pythia`: the experiments of PYTHIA (Dimopoulos, Krintz, Wolski: "PYTHIA: Admission
// Control for Multi-Framework, Deadline-Driven, Big Data Workloads", UCSB TR 2017-02), with the paper's policies and ours at the
// door of simulated clusters.
//
// The one idea: only the jobs are simulated. The policies are those of package admission, driven by package admit's Simulate as a
// scheduler would drive them, so that what is judged is what runs. All policies get the same jobs, and no policy but
// oracle is told what a job takes before it has ended.
//
// Guarantees: the same seeds and traces give the same bytes; a target on a trace that is not there is not_run; whatever
// is wrong in a trace is an error with file and line. Nothing is written outside the folder of --out.
package pythia
