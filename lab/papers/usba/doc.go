// Package usba is `powerlab paper usba`: the numbers of USBA (Li, Duan, Che: "A Unified Scaling Model in the Era of Big Data
// Analytics", HP3C 2019; chapter 3 of Li's dissertation), computed by package jobs/scaling/usba.
//
// The one idea: Table 3.3's measured speed-ups are all the measurements that are printed. They are the input; the printed parameters
// of Table 3.1 are judged on them, and so is our own fit. The ratio r of launch and stages is not printed: it is fitted to the
// column that the paper's model gave.
//
// Guarantees: there is no randomness: the same bytes on every run. Nothing is written outside the folder of --out.
package usba
