// Package pythia is `powerlab paper pythia`: the experiments of PYTHIA (Dimopoulos, Krintz, Wolski:
// "PYTHIA: Admission Control for Multi-Framework, Deadline-Driven, Big Data Workloads", UCSB TR
// 2017-02), with the paper's policies and ours as the admission control of simulated clusters.
//
// The one idea: only the jobs are simulated. The policies are those of package admission, driven by
// package admit's Simulate as by a scheduler, so the judged code is the code that runs. All
// policies get the same jobs, and only the oracle sees what a job takes before it has ended.
//
// Guarantees: the same seeds and traces give the same bytes. A target on a missing trace is
// not_run; an error in a trace is reported with file and line. Nothing is written outside the
// folder of --out.
package pythia
