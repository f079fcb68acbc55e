// Package ipso is `powerlab paper ipso`: the results of IPSO (Li, Duan, Nguyen, Che, Lei, Jiang:
// "IPSO: A Scaling Model for Data-Intensive Applications", ICDCS 2019; chapter 2 of Li's
// dissertation), computed by package jobs/scaling/ipso.
//
// The one idea: the paper's measurements are the input, and its results are computed. The paper
// prints Table 2.1; for the other cases it prints only slopes, a step and a bound, so measurements
// of that shape are generated, with noise, from seeds.
//
// Guarantees: the same seeds give the same bytes. Printed values are compared within a stated
// tolerance. Nothing is written outside the folder of --out.
package ipso
