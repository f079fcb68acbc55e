// Command powerd holds one node at its power cap. The commands themselves are in
// package agent.
package main

import (
	"context"
	"os"

	"headroom/agent"
	"headroom/internal/cli"
)

func main() {
	os.Exit(cli.Run(context.Background(), agent.NewCommand(), os.Args[1:], os.Stdout, os.Stderr))
}
