// Package vet holds the project's own static checks: rules of the design that no
// general linter knows.
//
// The one idea: a rule that a reviewer would have to remember is written down once, as
// an analyzer of go/analysis, and `make lint` applies it to every package. Each
// analyzer sees one package at a time and follows calls inside it only, so that the
// whole pass costs seconds and needs nothing but the compiler's export data.
//
//   - barewatts: watts and joules leave a package as units.Power and units.Energy.
//   - readback: what a hardware control holds after a write is looked at, and only the
//     agent writes.
//   - blocking: a control path marked //headroom:control does not wait for disks, names,
//     networks, programs or readers.
//   - apply: code marked //headroom:apply, the state machine, reads no clock, no chance
//     and no map order.
//   - judge: a file marked //headroom:judge takes no constant and no decision from the
//     packages that it judges.
//
// Guarantees: no list of exempted places exists; an analyzer that is wrong about a line
// gets a narrower rule. Tests and generated files are not judged. Calls through
// interfaces and into other packages are not followed: their packages mark their own.
package vet

import (
	"go/ast"
	"go/types"
	"strings"

	"golang.org/x/tools/go/analysis"
)

// module is the import path of the project.
const module = "headroom"

// All are the analyzers, in the order of the package comment.
func All() []*analysis.Analyzer {
	return []*analysis.Analyzer{BareWatts(), ReadBack(), Blocking(), Apply(), Judge()}
}

// written are the files of a package that people wrote, without its tests.
func written(pass *analysis.Pass) []*ast.File {
	var files []*ast.File
	for _, f := range pass.Files {
		if name := pass.Fset.Position(f.FileStart).Filename; !strings.HasSuffix(name, "_test.go") && !ast.IsGenerated(f) {
			files = append(files, f)
		}
	}
	return files
}

// called is the function or method that a call names, nil for conversions, builtins
// and values of function type.
func called(info *types.Info, call *ast.CallExpr) *types.Func {
	fun := ast.Unparen(call.Fun)
	switch x := fun.(type) {
	case *ast.IndexExpr:
		fun = x.X
	case *ast.IndexListExpr:
		fun = x.X
	}
	var id *ast.Ident
	switch x := fun.(type) {
	case *ast.Ident:
		id = x
	case *ast.SelectorExpr:
		id = x.Sel
	default:
		return nil
	}
	f, _ := info.Uses[id].(*types.Func)
	if f == nil {
		return nil
	}
	return f.Origin()
}

// builtin reports whether a call is of the predeclared function of that name.
func builtin(info *types.Info, call *ast.CallExpr, name string) bool {
	id, ok := ast.Unparen(call.Fun).(*ast.Ident)
	if !ok || id.Name != name {
		return false
	}
	_, ok = info.Uses[id].(*types.Builtin)
	return ok
}

// root is the variable that an expression such as a.b[i].c begins with, nil when it
// begins with anything else.
func root(info *types.Info, e ast.Expr) types.Object {
	for {
		switch x := ast.Unparen(e).(type) {
		case *ast.Ident:
			if o := info.Uses[x]; o != nil {
				return o
			}
			return info.Defs[x]
		case *ast.SelectorExpr:
			e = x.X
		case *ast.IndexExpr:
			e = x.X
		case *ast.SliceExpr:
			e = x.X
		case *ast.StarExpr:
			e = x.X
		default:
			return nil
		}
	}
}
