package grass

import (
	"context"
	"fmt"
	"io"
	"os"
	"testing"
	"time"
)

func TestScratch(t *testing.T) {
	t0 := time.Now()
	tr, err := study{jobs: 36, history: 300}.run(context.Background(), 1, 4, io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	fmt.Fprintln(os.Stdout, time.Since(t0))
	for _, sc := range scenes() {
		for _, v := range named(sc.variants...) {
			var r result
			n := float64(len(tr))
			for _, x := range tr {
				y := x[key{sc.name, v.name}]
				r.all += y.all / n
				r.lost += y.lost / n
				r.second += y.second / n
				r.left += y.left / n
				r.fresh += y.fresh / n
				for b := range r.bins {
					r.bins[b] += y.bins[b] / n
				}
			}
			fmt.Printf("%-16s %-14s all %.3f bins %.3f lost %.2f second %.2f acc %.2f %.2f\n", sc.name, v.name, r.all, r.bins, r.lost, r.second, r.left, r.fresh)
		}
	}
}
