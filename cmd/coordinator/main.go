// Command coordinator is one server of the group that holds the power budget,
// and the operators' command line.
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
