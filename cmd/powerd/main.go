// Command powerd enforces the power cap of one node. The commands themselves are in
// package agent/command.
package main

import (
	"context"
	"os"

	"headroom/agent/command"
	"headroom/internal/cli"
)

func main() {
	os.Exit(cli.Run(context.Background(), command.New(), os.Args[1:], os.Stdout, os.Stderr))
}
