package vet

import (
	"go/ast"
	"go/types"
	"strings"

	"golang.org/x/tools/go/analysis"
)

// judged are the packages that decide, which a judge holds against the promises.
var judged = map[string]bool{
	module + "/lease": true, module + "/ledger": true, module + "/ledger/leader": true,
	module + "/capping": true, module + "/budget": true,
}

// read are the functions that a judge may ask: they decode what was committed, or tell
// what a process says of itself, which is what is judged.
var read = map[string]bool{
	"Decode": true, "New": true, "Restore": true, "Snapshot": true, "Apply": true, // the log
	"Charge": true, "Totals": true, "Cap": true, "Memory": true, "SprintStatus": true, "Why": true, "Table": true, "View": true,
	"Compare": true, // the order of epochs and stamps
}

// Judge returns the analyzer of files marked //headroom:judge, which hold a run against
// the promises: they take no number and no decision from the code that they judge, or a
// mistake there would move the judge with it. Types, encodings, names of errors and of
// states are the language that both speak.
func Judge() *analysis.Analyzer {
	return &analysis.Analyzer{
		Name: "judge",
		Doc:  "report judges that take constants and decisions from what they judge",
		Run:  judge,
	}
}

func judge(pass *analysis.Pass) (any, error) {
	for _, f := range written(pass) {
		if !judges(f) {
			continue
		}
		ast.Inspect(f, func(n ast.Node) bool {
			if id, ok := n.(*ast.Ident); ok {
				borrowed(pass, id)
			}
			return true
		})
	}
	return nil, nil
}

// judges reports whether a file carries the mark.
func judges(f *ast.File) bool {
	for _, group := range f.Comments {
		for _, c := range group.List {
			if strings.TrimSpace(c.Text) == "//headroom:judge" {
				return true
			}
		}
	}
	return false
}

// borrowed reports a name that a judge must write down itself.
func borrowed(pass *analysis.Pass, id *ast.Ident) {
	o := pass.TypesInfo.Uses[id]
	if o == nil || o.Pkg() == nil || !judged[o.Pkg().Path()] {
		return
	}
	switch o := o.(type) {
	case *types.Const:
		if named, ok := types.Unalias(o.Type()).(*types.Named); !ok || named.Obj().Pkg() != o.Pkg() {
			pass.Reportf(id.Pos(), "a judge writes down the constant %s.%s itself", o.Pkg().Name(), o.Name())
		}
	case *types.Func:
		if !read[o.Name()] {
			pass.Reportf(id.Pos(), "a judge works out %s.%s itself", o.Pkg().Name(), o.Name())
		}
	}
}
