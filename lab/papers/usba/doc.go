// Package usba is `powerlab paper usba`: the results of USBA (Li, Duan, Che: "A Unified Scaling
// Model in the Era of Big Data Analytics", HP3C 2019; chapter 3 of Li's dissertation), computed by
// package jobs/scaling/usba.
//
// The one idea: the measured speed-ups of Table 3.3 are the only printed measurements, so they are
// the input. The printed parameters of Table 3.1 and our own fit are judged on them. The ratio r of
// launch and stages is not printed; it is fitted to the column of the paper's model.
//
// Guarantees: nothing is random, so every run gives the same bytes. Nothing is written outside the
// folder of --out.
package usba
