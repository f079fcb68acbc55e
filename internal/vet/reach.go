package vet

import (
	"go/ast"
	"go/types"
	"slices"
	"strings"

	"golang.org/x/tools/go/analysis"
)

// reached is a function that a marked one reaches, and how.
type reached struct {
	decl *ast.FuncDecl
	path string // "turn > apply > save"
}

// reach follows calls from the functions marked with a directive, inside the package.
// A package comment with the directive marks all its functions. A function that is only
// mentioned counts as called; what is started by a go statement, or handed to a method
// named Go, runs beside the caller and is not followed.
func reach(pass *analysis.Pass, directive string) []reached {
	decls := map[*types.Func]*ast.FuncDecl{}
	var todo []reached
	files := written(pass)
	whole := slices.ContainsFunc(files, func(f *ast.File) bool { return marked(f.Doc, directive) })
	for _, file := range files {
		for _, d := range file.Decls {
			decl, ok := d.(*ast.FuncDecl)
			if !ok || decl.Body == nil {
				continue
			}
			if f, ok := pass.TypesInfo.Defs[decl.Name].(*types.Func); ok {
				decls[f] = decl
			}
			if whole || marked(decl.Doc, directive) {
				todo = append(todo, reached{decl, decl.Name.Name})
			}
		}
	}
	seen := map[*ast.FuncDecl]bool{}
	for _, r := range todo {
		seen[r.decl] = true
	}
	for i := 0; i < len(todo); i++ {
		beside(pass.TypesInfo, todo[i].decl.Body, func(n ast.Node) {
			id, ok := n.(*ast.Ident)
			if !ok {
				return
			}
			f, ok := pass.TypesInfo.Uses[id].(*types.Func)
			if !ok {
				return
			}
			if decl := decls[f.Origin()]; decl != nil && !seen[decl] {
				seen[decl] = true
				todo = append(todo, reached{decl, todo[i].path + " > " + decl.Name.Name})
			}
		})
	}
	return todo
}

// marked reports whether a comment has a directive on a line of its own.
func marked(doc *ast.CommentGroup, directive string) bool {
	return doc != nil && slices.ContainsFunc(doc.List, func(c *ast.Comment) bool {
		return strings.TrimSpace(c.Text) == "//headroom:"+directive
	})
}

// beside visits what runs in the caller's own goroutine. The go statement itself is
// visited, what it starts is not; its arguments are.
func beside(info *types.Info, body ast.Node, visit func(ast.Node)) {
	var look func(n ast.Node) bool
	look = func(n ast.Node) bool {
		if n == nil {
			return false
		}
		visit(n)
		switch x := n.(type) {
		case *ast.GoStmt:
			for _, a := range x.Call.Args {
				ast.Inspect(a, look)
			}
			return false
		case *ast.CallExpr:
			if f := called(info, x); f != nil && f.Name() == "Go" && f.Signature().Recv() != nil {
				ast.Inspect(x.Fun, look)
				return false
			}
		}
		return true
	}
	ast.Inspect(body, look)
}
