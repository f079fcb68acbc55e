// Command headroom is the front command of Headroom's programs. It finds the program
// that has a noun and replaces itself with it, so that only one name must be on PATH:
// "headroom budget set 2kW" runs "coordinator budget set 2kW".
package main

import (
	"context"
	"os"

	"headroom/internal/cli"
)

func main() {
	os.Exit(cli.Run(context.Background(), newRoot(locator{
		self: os.Executable, path: os.Getenv("PATH"), fixed: libexec,
	}), os.Args[1:], os.Stdout, os.Stderr))
}
