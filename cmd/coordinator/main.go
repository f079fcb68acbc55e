// Command coordinator runs one server of the cluster that enforces the power budget,
// and is the operators' command line.
package main

import (
	"context"
	"os"

	"headroom/coordinator/command"
	"headroom/internal/cli"
)

func main() {
	os.Exit(cli.Run(context.Background(), command.New(), os.Args[1:], os.Stdout, os.Stderr))
}
