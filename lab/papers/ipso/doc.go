// Package ipso is `powerlab paper ipso`: the numbers of IPSO (Li, Duan, Nguyen, Che, Lei, Jiang: "IPSO: A Scaling Model for
// Data-Intensive Applications", ICDCS 2019; chapter 2 of Li's dissertation), computed by package jobs/scaling/ipso.
//
// The one idea: the paper's measurements are the input, its results are computed. Table 2.1 is printed; of the other cases only slopes,
// a step and a bound are, so that measurements of that shape are drawn, with noise, from seeds.
//
// Guarantees: the same seeds give the same bytes; what is printed is compared within a stated tolerance. Nothing is written
// outside the folder of --out.
package ipso
