// Command machine serves emulated machines and BMCs to tests of the product, on a unix socket
// whose path it prints. It ends when its standard input does.
package main

import (
	"fmt"
	"os"

	"headroom/lab/emulator"
)

func main() {
	if err := emulator.ServeTests(os.Stdin, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "error:", err)
		os.Exit(1)
	}
}
