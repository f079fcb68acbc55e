// Command headroomvet runs the project's own checks:
// headroomvet -test=false ./...
// It is go vet's tool too: go vet -vettool=bin/headroomvet ./...
package main

import (
	"golang.org/x/tools/go/analysis/multichecker"

	"headroom/internal/vet"
)

func main() { multichecker.Main(vet.All()...) }
