// Package usba is `powerlab paper usba`: the results of USBA (Li, Duan, Che: "A Unified Scaling
// Model in the Era of Big Data Analytics", HP3C 2019; chapter 3 of Li's dissertation), computed by
// package jobs/scaling/usba. The printed parameters of Table 3.1 and our own fit are judged on the
// measured speed-ups of Table 3.3, the only printed measurements. Nothing is random.
package usba

import (
	"context"

	"github.com/spf13/cobra"

	"headroom/lab/papers"
)

// NewCommand is `powerlab paper usba`.
func NewCommand() *cobra.Command {
	return papers.Study{
		Paper: "usba", Seeds: 1,
		Short: "How jobs of many stages scale with size and degree (USBA)",
		Long: `Computes USBA's results: Tables 3.1 and 3.3 with the errors that the dissertation claims, and a fit to the measured
speed-ups of Table 3.3, the only measurements that it prints. Nothing is random: --seed and --seeds have no effect.`,
		Run: func(context.Context, *papers.Options) (*papers.Result, error) {
			targets, err := honest().judged()
			return &papers.Result{Targets: targets}, err
		},
	}.Command()
}
