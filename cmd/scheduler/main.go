// Command scheduler runs jobs by priority on nodes whose power is capped: the
// server, the worker of each node, and the users' commands.
package main

import (
	"context"
	"os"

	"headroom/internal/cli"
	"headroom/scheduler/command"
)

func main() {
	os.Exit(cli.Run(context.Background(), command.New(), os.Args[1:], os.Stdout, os.Stderr))
}
