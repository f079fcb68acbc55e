// Command scheduler runs jobs by priority on power-capped nodes. It is the server, the
// worker of each node, and the users' command line.
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
